#!/usr/bin/env python3
"""Installs a build into an empty prefix and builds and runs the samples against it, as a user would.

Arguments: the build folder, the C++ compiler, the CMake build type.
"""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources import ROOT


# samples/hello_engine: the program and the text that it prints.
PROGRAMS = {
    "async_c": "image may be written again\n47 scores\n",
    "dynamic_batch": "[1,47]\n[4,47]\n[8,47]\n",
    "dynamic_batch_c": "[1,47]\n[4,47]\n[8,47]\n",
    "errors": "invalid_argument: input \"image\" has shape [9,1,32,32], the engine wants [N,1,32,32]"
              " (from [1,1,32,32] to [8,1,32,32])\na batch of 9 does not fit\n",
    "errors_c": "code 3: input \"image\" has shape [9,1,32,32], the engine wants [N,1,32,32]"
                " (from [1,1,32,32] to [8,1,32,32])\na batch of 9 does not fit\n",
}


def call(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        print(" ".join(command), done.stdout, sep="\n")
        sys.exit(1)
    return done.stdout


def library_folder(prefix):
    """Where libengine.so lies: lib, or lib/x86_64-linux-gnu."""
    return next(folder for folder, _, files in os.walk(f"{prefix}/lib") if "libengine.so" in files)


def headers_compile_alone(prefix, compiler):
    """Each installed header, as the first one of a program; the C interface as C, too."""
    include = Path(prefix) / "include"
    ways = [("-xc++", "-std=c++20", header) for header in sorted(include.rglob("*.h"))]
    ways += [("-xc", "-std=c11", header) for _, _, header in ways if header.name in ("c_api.h", "c_builder.h")]
    assert len(ways) > 20, "the headers are not installed"

    def compile_alone(way):
        language, standard, header = way
        return subprocess.run([compiler, language, standard, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{include}", "-"],
                              input=f"#include <{header.relative_to(include)}>\n", text=True, capture_output=True).stderr
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = "".join(pool.map(compile_alone, ways))
    print(errors, end="")
    return not errors


def main(build, compiler, build_type):
    with open(f"{ROOT}/README.md") as readme, open(f"{ROOT}/samples/hello_engine/main.cc") as program:
        if f"```cpp\n{program.read()}```" not in readme.read():
            print("README.md must show samples/hello_engine/main.cc as it is")
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
        if not headers_compile_alone(prefix, compiler):
            return 1
        # A build tree in a search path is no installed package, and must not look like one.
        alone = subprocess.run(["cmake", "-G", "Ninja", "-S", f"{ROOT}/samples/hello_engine", "-B", f"{scratch}/alone",
                                f"-DCMAKE_CXX_COMPILER={compiler}"], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env={"PATH": f"{build}/bin:{os.environ['PATH']}"})
        if "annealTargets.cmake" in alone.stdout:
            print("find_package() takes the build tree for an installed package:", alone.stdout, sep="\n")
            return 1
        for sample in ("hello_engine", "hello_builder", "accuracy_vs_latency"):
            call("cmake", "-G", "Ninja", "-S", f"{ROOT}/samples/{sample}", "-B", f"{tree}/{sample}",
                 f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_BUILD_TYPE={build_type}")
            call("cmake", "--build", f"{tree}/{sample}")
        for program in ("hello_engine/hello_engine", "hello_engine/hello_engine_c", "hello_builder/hello_builder",
                        "hello_builder/hello_builder_c",
                        "accuracy_vs_latency/accuracy_vs_latency"):
            # Inline functions of public headers must not call what only libbuilder may.
            if "ANNEAL_PRIVATE" in call("readelf", "-V", f"{tree}/{program}"):
                print(f"{program} needs private names of libengine: the next version would refuse it")
                return 1
        model = f"{ROOT}/samples/glyphs/glyphs.onnx"
        call(f"{prefix}/bin/anneal", "build", model, "-o", f"{scratch}/glyphs.engine", "--min-shapes", "1x1x32x32",
             "--max-shapes", "8x1x32x32")
        # Programs that build with calibration, in C++ and in C.
        for program, engine in (("hello_builder", "glyphs_int8"), ("hello_builder_c", "glyphs_c_int8")):
            call(f"{tree}/hello_builder/{program}", model, f"{scratch}/{engine}.engine")
            if "is int8" not in call(f"{prefix}/bin/anneal", "inspect", f"{scratch}/{engine}.engine", "--decisions"):
                print(f"the engine of {program} must have int8 layers")
                return 1
        for sample in ("main.cc", "main.c"):
            with open(f"{ROOT}/samples/hello_builder/{sample}") as program:
                if len(program.readlines()) > 25:
                    print(f"samples/hello_builder/{sample} must show building within 25 lines")
                    return 1
        scores = call(f"{tree}/hello_engine/hello_engine", cwd=scratch).split()
        if len(scores) != 47:
            print("the program must print the 47 scores of the glyphs, not", scores)
            return 1
        for program in ("hello_engine_c", "async"):
            if call(f"{tree}/hello_engine/{program}", cwd=scratch).split() != scores:
                print(f"the program {program} prints other scores")
                return 1
        for program, printed in PROGRAMS.items():
            if printed not in call(f"{tree}/hello_engine/{program}", cwd=scratch):
                print(f"the program {program} must print {printed}")
                return 1
        for path in Path(ROOT, "samples/hello_engine").glob("*.c*"):
            if len(path.read_text().splitlines()) >= 25:
                print(f"{path} has 25 lines or more: an application must be able to do this in fewer")
                return 1
        config = subprocess.run(["pkg-config", "--cflags", "--libs", "anneal-engine"], text=True, capture_output=True,
                                check=True, env={**os.environ, "PKG_CONFIG_PATH": library_folder(prefix) + "/pkgconfig"})
        call(compiler, "-std=c++20", f"{ROOT}/samples/hello_engine/main.cc", "-o", f"{scratch}/by_pkg_config", *config.stdout.split(),
             f"-Wl,-rpath,{library_folder(prefix)}")
        if call(f"{scratch}/by_pkg_config", cwd=scratch).split() != scores:
            print("the program compiled by pkg-config prints other scores")
            return 1
        needed = call("readelf", "-d", f"{tree}/hello_engine/hello_engine")
        if "libbuilder" in needed or "libengine" not in needed:
            print("a program that links anneal::engine must need libengine and not libbuilder:", needed, sep="\n")
            return 1
        installed = call(f"{prefix}/bin/anneal", "--version", env={"PATH": os.environ["PATH"]})
        print(f"{installed.strip()} runs from its prefix")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
