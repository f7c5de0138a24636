#!/usr/bin/env python3
"""Installs a build into an empty prefix and builds and runs tests/consumer against it, as a user would.

Arguments: the build folder, the C++ compiler, the CMake build type.
"""

import os
import subprocess
import sys
import tempfile

from sources import ROOT


def call(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        print(" ".join(command), done.stdout, sep="\n")
        sys.exit(1)
    return done.stdout


def main(build, compiler, build_type):
    with open(f"{ROOT}/README.md") as readme, open(f"{ROOT}/tests/consumer/main.cc") as program:
        if f"```cpp\n{program.read()}```" not in readme.read():
            print("README.md must show tests/consumer/main.cc as it is")
            return 1
    with tempfile.TemporaryDirectory(prefix="anneal-consumer-") as scratch:
        prefix, tree = f"{scratch}/prefix", f"{scratch}/build"
        call("cmake", "--install", build, "--prefix", prefix)
        call("cmake", "-G", "Ninja", "-S", f"{ROOT}/tests/consumer", "-B", tree, f"-DCMAKE_PREFIX_PATH={prefix}",
             f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_BUILD_TYPE={build_type}")
        call("cmake", "--build", tree)
        call(f"{tree}/consumer_build", f"{ROOT}/samples/glyphs/glyphs.onnx", f"{scratch}/glyphs.engine",
             f"{scratch}/glyphs_int8.engine")
        print(call(f"{tree}/consumer", f"{scratch}/glyphs.engine"), end="")
        sample = f"{scratch}/sample"
        call("cmake", "-G", "Ninja", "-S", f"{ROOT}/samples/accuracy_vs_latency", "-B", sample,
             f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_BUILD_TYPE={build_type}")
        call("cmake", "--build", sample)
        if "is int8" not in call(f"{prefix}/bin/anneal", "inspect", f"{scratch}/glyphs_int8.engine", "--decisions"):
            print("the program's second engine must have int8 layers")
            return 1
        needed = call("readelf", "-d", f"{tree}/consumer")
        if "libbuilder" in needed or "libengine" not in needed:
            print("a program that links anneal::engine must need libengine and not libbuilder:", needed, sep="\n")
            return 1
        installed = call(f"{prefix}/bin/anneal", "--version", env={"PATH": os.environ["PATH"]})
        print(f"{installed.strip()} runs from its prefix")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
