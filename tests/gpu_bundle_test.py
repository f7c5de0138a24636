#!/usr/bin/env python3
"""The GPU bundle is what it says it is, and its script runs through on the emulated device.

    gpu_bundle_test.py BUNDLE.tar.gz
"""

import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

NEWEST_GLIBC = (2, 36)
MOST_BYTES = 40 << 20


def is_elf(path):
    return path.is_file() and path.open("rb").read(4) == b"\x7fELF"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_programs(root):
    problems, newest = [], {}
    for path in sorted(p for p in root.rglob("*") if is_elf(p)):
        name = path.relative_to(root)
        if re.match(r"lib(cuda|nv|cublas|cudnn)", path.name):
            problems.append(f"{name} is NVIDIA's")
        dynamic = output_of("readelf", "-d", path)
        wanted = "$ORIGIN/../lib" if path.parent.name == "bin" else "$ORIGIN"
        if f"[{wanted}]" not in dynamic:
            problems.append(f"{name} has no run path {wanted}")
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            if not (root / "lib" / needed).exists() and not re.match(r"(libc|libm|ld-linux-x86-64)\.so", needed):
                problems.append(f"{name} needs {needed}, which is not in the bundle")
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output_of("readelf", "--dyn-syms", "-W", path))
        newest[str(name)] = max(((int(a), int(b)) for a, b in versions), default=(2, 0))
    program, version = max(newest.items(), key=lambda item: item[1])
    print(f"highest GLIBC symbol version: {version[0]}.{version[1]} ({program})")
    if version > NEWEST_GLIBC:
        problems.append(f"{program} needs glibc {version[0]}.{version[1]}")
    if not newest:
        problems.append("there is no program")
    if not list((root / "licenses").iterdir()):
        problems.append("there are no licences")
    return problems


def check_report(root, folder):
    path = folder / "report.json"
    run = subprocess.run([root / "run.sh", "--device", "emulated", "--out", path], cwd=folder)
    report = json.loads(path.read_text())
    problems = [f"run.sh ended with {run.returncode}"] if run.returncode else []
    for name, part in report.items():
        if isinstance(part, dict):
            print(f"{part['exit_status']:4} {part['seconds']:4} s  {name}")
            if part["exit_status"] != 0:
                problems.append(f"{name}: {part.get('printed', '')[-2000:]}")
    for part in ("machine", "devices", "device_tests", "op_suite_tenth", "kernel_times"):
        if part not in report:
            problems.append(f"the report has no {part}")
    if not any(name.startswith("model ") for name in report):
        problems.append("no model was run")
    return problems


def main():
    bundle = pathlib.Path(sys.argv[1])
    problems = []
    print(f"{bundle.name}: {bundle.stat().st_size >> 10} KiB")
    if bundle.stat().st_size >= MOST_BYTES:
        problems.append("it is over 40 MiB")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with tarfile.open(bundle) as archive:
            archive.extractall(folder)
        (root,) = folder.iterdir()
        problems += check_programs(root) + check_report(root, folder)
    for problem in problems:
        print(f"failed: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
