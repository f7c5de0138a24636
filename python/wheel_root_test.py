#!/usr/bin/env python3
"""Installs the wheels in empty systems without a compiler, and runs the README's program of Python there.

    wheel_root_test.py FOLDER    with the wheels of `make wheel`

The systems are Debian 12 and Ubuntu 24.04, made by debootstrap. Prints the seconds from the start of `pip install` to the end of
the program; more than a minute is a failure. A system for whose Python there is no wheel is skipped: `make wheel PYTHON=python3.12`
makes one for 3.12 and later.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = 77
MOST_SECONDS = 60
GUTSY = "/usr/share/debootstrap/scripts/gutsy"  # what debootstrap's scripts of all Ubuntu suites are
# Name, tag of the wheel, and debootstrap's arguments around the folder.
SYSTEMS = (("Debian 12", "cp311-cp311", ("bookworm",), ()),
           # Debian has no package with Ubuntu's keys; nothing of this system is kept.
           ("Ubuntu 24.04", "cp312-abi3", ("--no-check-gpg", "--components=main,universe", "noble"),
            ("http://archive.ubuntu.com/ubuntu", GUTSY)))


def program():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return next(block for block in blocks if "import anneal" in block)


def make_root(root, before, after):
    made = subprocess.run(["debootstrap", "--variant=minbase", "--include=python3-venv,ca-certificates", *before, root, *after],
                          text=True, capture_output=True)
    if made.returncode != 0:
        print("debootstrap fails:", made.stdout[-1000:], made.stderr[-1000:])
        return False
    # The settings by which this machine reaches PyPI.
    for path in ("/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf"):
        Path(root + path).unlink(missing_ok=True)
        shutil.copy(path, root + path)
    return True


def run_in(root, wheel):
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
    os.makedirs(f"{root}/root/samples/glyphs")
    shutil.copy(ROOT / "samples/glyphs/glyphs.onnx", f"{root}/root/samples/glyphs")
    shutil.copy(wheel, f"{root}/root")
    Path(root, "root/first.py").write_text(program())
    commands = ("python3 -m venv /root/venv && cd /root && ! command -v gcc cc c++",
                f"/root/venv/bin/pip install -q --no-cache-dir /root/{wheel.name}",
                "cd /root && venv/bin/python first.py")
    seconds = []
    for command in commands:
        start = time.monotonic()
        done = subprocess.run([shutil.which("chroot"), root, "sh", "-c", command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=environment)
        seconds.append(time.monotonic() - start)
        if done.returncode != 0:
            print(command, done.stdout, sep="\n")
            return None
    print(done.stdout, end="")
    return seconds[1:]


def main(folder):
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        print("the wheels are not installed anywhere: that takes root and debootstrap")
        return SKIPPED
    results = []
    for name, tag, before, after in SYSTEMS:
        wheel = next(Path(folder).glob(f"anneal-*-{tag}-*.whl"), None)
        if wheel is None:
            print(f"{name}: there is no wheel {tag} in {folder}")
            results.append(None)
            continue
        with tempfile.TemporaryDirectory(prefix="anneal-root-") as scratch:
            root = f"{scratch}/root"
            if not make_root(root, before, after):
                results.append(None)
                continue
            seconds = run_in(root, wheel)
            results.append(seconds is not None and sum(seconds) < MOST_SECONDS)
            if seconds:
                print(f"{name}: {wheel.name} is installed after {seconds[0]:.1f} s, its first program ends after {sum(seconds):.1f} s")
    return 1 if False in results else SKIPPED if None in results else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
