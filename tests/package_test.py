#!/usr/bin/env python3
"""The packages of `make package`, as strangers use them.

    package_test.py FOLDER    with the packages

The tarball: the samples are built against it, from a folder of any name. The Debian packages: they are installed by apt-get into
an empty Debian 12 that debootstrap makes, where the command builds and runs a model. Both must contain no NVIDIA library.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sources import ROOT

SKIPPED = 77
COMPONENTS = ("libanneal0", "libanneal-dev_", "anneal_")


def call(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        print(" ".join(map(str, command)), done.stdout, sep="\n")
        sys.exit(1)
    return done.stdout


def foreign_files(listing):
    return [line for line in listing.splitlines() if any(name in line for name in ("libcu", "libnv", "cudnn"))]


def tarball_works(folder, scratch):
    (tarball,) = Path(folder).glob("anneal-*-linux-*.tar.gz")
    names = call("tar", "tf", tarball)
    prefix = f"{scratch}/a folder of any name"
    os.mkdir(prefix)
    call("tar", "xf", tarball, "-C", prefix, "--strip-components=1")
    print(call(f"{ROOT}/tests/consumer_test.py", "--prefix", prefix, "c++", "Release"), end="")
    if foreign_files(names):
        print(f"{tarball} contains libraries of NVIDIA:", foreign_files(names))
        return False
    print(f"{tarball.name}: the samples build and run against it, {tarball.stat().st_size / 1e6:.1f} MB")
    return True


def debian_packages_work(folder, scratch):
    packages = [next(Path(folder).glob(f"{name}*.deb")) for name in COMPONENTS]
    for package in packages:
        if files := foreign_files(call("dpkg-deb", "-c", package)):
            print(f"{package} contains libraries of NVIDIA:", files)
            return False
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        print("the Debian packages are not installed anywhere: that takes root and debootstrap")
        return None
    root = f"{scratch}/debian"
    made = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], text=True, capture_output=True)
    if made.returncode != 0:
        print("debootstrap fails, so the Debian packages are not installed anywhere:", made.stdout[-2000:], made.stderr[-2000:])
        return None
    for path in packages + [Path(ROOT, "samples/glyphs/glyphs.onnx")]:
        shutil.copy(path, f"{root}/tmp")
    # The settings by which this machine reaches the mirror.
    for path in ("/etc/apt/apt.conf.d", "/etc/ssl/certs"):
        if os.path.isdir(path):
            shutil.copytree(path, root + path, dirs_exist_ok=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    call("chroot", root, "apt-get", "install", "-q", "-y", "--no-install-recommends", *(f"/tmp/{path.name}" for path in packages),
         env=environment)
    # The emulated device is found, and a compiler is not.
    emulated = subprocess.run(["chroot", root, "anneal", "build", "/tmp/glyphs.onnx", "-o", "/tmp/none.engine", "--target", "emulated"],
                              text=True, capture_output=True).stderr
    if "needs a C++ compiler" not in emulated:
        print("the emulated device must be installed, and ask for a compiler:", emulated, sep="\n")
        return False
    call("chroot", root, "anneal", "build", "/tmp/glyphs.onnx", "-o", "/tmp/glyphs.engine")
    printed = call("chroot", root, "anneal", "run", "/tmp/glyphs.engine", "--input", "random")
    if "scores" not in printed:
        print("the command from its package must run an engine:", printed, sep="\n")
        return False
    for path in ("usr/share/man/man1/anneal.1", "usr/include/anneal/anneal.h", "usr/lib/libengine.so"):
        if not os.path.lexists(f"{root}/{path}"):
            print(f"the packages do not install {path}")
            return False
    call("chroot", root, "apt-get", "remove", "-q", "-y", "libanneal0.1", env=environment)
    if os.path.exists(f"{root}/usr/bin/anneal") or os.path.exists(f"{root}/usr/include/anneal"):
        print("files are left when the packages are removed")
        return False
    print("Debian packages: installed, run and removed in an empty Debian 12")
    return True


def main(folder):
    with tempfile.TemporaryDirectory(prefix="anneal-package-") as scratch:
        results = [tarball_works(folder, scratch), debian_packages_work(folder, scratch)]
    if False in results:
        return 1
    return SKIPPED if None in results else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
