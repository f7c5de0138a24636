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


def library_folder(prefix):
    """Where libengine.so lies: lib, or lib/x86_64-linux-gnu."""
    return next(folder for folder, _, files in os.walk(f"{prefix}/lib") if "libengine.so" in files)


def main(build, compiler, build_type):
    with open(f"{ROOT}/README.md") as readme, open(f"{ROOT}/tests/consumer/main.cc") as program:
        if f"```cpp\n{program.read()}```" not in readme.read():
            print("README.md must show tests/consumer/main.cc as it is")
            return 1
    with tempfile.TemporaryDirectory(prefix="anneal-consumer-") as scratch:
        # An installed tree may be moved.
        prefix, tree = f"{scratch}/moved", f"{scratch}/build"
        call("cmake", "--install", build, "--prefix", f"{scratch}/prefix")
        os.rename(f"{scratch}/prefix", prefix)
        for path in ("share/doc/anneal/LICENSE", "share/man/man1/anneal.1", "share/bash-completion/completions/anneal"):
            if not os.path.isfile(f"{prefix}/{path}"):
                print(f"{path} is not installed")
                return 1
        # A build tree in a search path is no installed package, and must not look like one.
        alone = subprocess.run(["cmake", "-G", "Ninja", "-S", f"{ROOT}/tests/consumer", "-B", f"{scratch}/alone",
                                f"-DCMAKE_CXX_COMPILER={compiler}"], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env={"PATH": f"{build}/bin:{os.environ['PATH']}"})
        if "annealTargets.cmake" in alone.stdout:
            print("find_package() takes the build tree for an installed package:", alone.stdout, sep="\n")
            return 1
        call("cmake", "-G", "Ninja", "-S", f"{ROOT}/tests/consumer", "-B", tree, f"-DCMAKE_PREFIX_PATH={prefix}",
             f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_BUILD_TYPE={build_type}")
        call("cmake", "--build", tree)
        call(f"{tree}/consumer_build", f"{ROOT}/samples/glyphs/glyphs.onnx", f"{scratch}/glyphs.engine",
             f"{scratch}/glyphs_int8.engine")
        scores = call(f"{tree}/consumer", cwd=scratch).split()
        if len(scores) != 47:
            print("the program must print the 47 scores of the glyphs, not", scores)
            return 1
        config = subprocess.run(["pkg-config", "--cflags", "--libs", "anneal-engine"], text=True, capture_output=True,
                                check=True, env={**os.environ, "PKG_CONFIG_PATH": library_folder(prefix) + "/pkgconfig"})
        call(compiler, f"{ROOT}/tests/consumer/main.cc", "-o", f"{scratch}/by_pkg_config", *config.stdout.split(),
             f"-Wl,-rpath,{library_folder(prefix)}")
        if call(f"{scratch}/by_pkg_config", cwd=scratch).split() != scores:
            print("the program compiled by pkg-config prints other scores")
            return 1
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
