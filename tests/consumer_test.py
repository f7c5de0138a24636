#!/usr/bin/env python3
"""Builds and runs the samples against an installed tree, as a user would.

    consumer_test.py BUILD COMPILER TYPE              the tree is installed from a build folder, and moved
    consumer_test.py --prefix PREFIX COMPILER TYPE    the tree is there
"""

import os
import shlex
import struct
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
    "errors": "invalid_argument: input \"image\" has shape [9,1,32,32], the engine expects [N,1,32,32]"
              " (from [1,1,32,32] to [8,1,32,32])\na batch of 9 does not fit\n",
    "errors_c": "code 3: input \"image\" has shape [9,1,32,32], the engine expects [N,1,32,32]"
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
    ways += [("-xc", "-std=c11", header) for _, _, header in ways if header.name in ("c_api.h", "c_builder.h", "c_kernels.h")]
    assert len(ways) > 20, "the headers are not installed"

    def compile_alone(way):
        language, standard, header = way
        return subprocess.run([compiler, language, standard, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{include}", "-"],
                              input=f"#include <{header.relative_to(include)}>\n", text=True, capture_output=True).stderr
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = "".join(pool.map(compile_alone, ways))
    print(errors, end="")
    return not errors


def is_no_package(build, compiler, scratch):
    """A build tree in a search path is no installed package, and must not look like one."""
    alone = subprocess.run(["cmake", "-G", "Ninja", "-S", f"{ROOT}/samples/hello_engine", "-B", scratch,
                            f"-DCMAKE_CXX_COMPILER={compiler}"], text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, env={"PATH": f"{build}/bin:{os.environ['PATH']}"})
    if "annealTargets.cmake" in alone.stdout:
        print("find_package() takes the build tree for an installed package:", alone.stdout, sep="\n")
    return "annealTargets.cmake" not in alone.stdout


def kernels_of_its_own(prefix, tree, scratch):
    """The library of samples/custom_kernel runs on the CPU and on the emulated device, and nothing runs without it."""
    sample, anneal = Path(ROOT, "samples/custom_kernel"), f"{prefix}/bin/anneal"
    library, engine = f"{tree}/custom_kernel/soft_clip.so", f"{scratch}/soft_clip.engine"
    if len(Path(sample, "soft_clip.c").read_text().splitlines()) > 60:
        print("samples/custom_kernel/soft_clip.c must show a kernel within 60 lines")
        return False
    values = [-4, -1, 0, 0.5, 1, 2, 3, 1000]
    Path(scratch, "x.raw").write_bytes(struct.pack("8f", *values))
    call(anneal, "build", f"{sample}/soft_clip.onnx", "--library", library, "--target", "cpu,emulated", "-o", engine)
    for device in ("cpu", "emulated"):
        call(anneal, "run", engine, "--library", library, "--device", device, "--input", "x=x.raw", "--shapes", "x:2x4",
             "--save", f"{scratch}/{device}", cwd=scratch)
        results = struct.unpack("8f", Path(scratch, device, "y.npy").read_bytes()[-32:])
        for x, y in zip(values, results):
            if abs(y - 2 * x / (1 + 0.5 * abs(x))) > 1e-5:
                print(f"SoftClip of {x} on {device} is {y}")
                return False
    for command in (["compare", f"{sample}/soft_clip.onnx"], ["compare", engine, f"{sample}/soft_clip.onnx"],
                    ["bench", engine, "--duration", "0.1"], ["bench", f"{sample}/soft_clip.onnx", "--duration", "0.1"],
                    ["inspect", f"{sample}/soft_clip.onnx"], ["run", f"{sample}/soft_clip.onnx", "--input", "random"]):
        call(anneal, *command, "--library", library, cwd=scratch)
    for command in (["build", f"{sample}/soft_clip.onnx", "-o", f"{scratch}/none.engine"], ["run", engine, "--input", "random"],
                    ["inspect", engine]):
        without = subprocess.run([anneal, *command], text=True, capture_output=True, cwd=scratch)
        if without.returncode != 3 or "--library" not in without.stderr or "SoftClip" not in without.stderr:
            print("without its library,", command, "gives", without.returncode, without.stderr)
            return False
    if "cuda.custom.library" not in call(anneal, "inspect", engine, "--library", library):
        print("inspect must show the kernel")
        return False
    return True


def main(build, prefix, compiler, build_type):
    with open(f"{ROOT}/README.md") as readme, open(f"{ROOT}/samples/hello_engine/main.cc") as program:
        if f"```cpp\n{program.read()}```" not in readme.read():
            print("README.md must show samples/hello_engine/main.cc as it is")
            return 1
    with tempfile.TemporaryDirectory(prefix="anneal-consumer-") as scratch:
        tree = f"{scratch}/build"
        if not prefix:
            # An installed tree may be moved.
            prefix = f"{scratch}/moved"
            call("cmake", "--install", build, "--prefix", f"{scratch}/prefix")
            os.rename(f"{scratch}/prefix", prefix)
        for path in ("share/doc/anneal/LICENSE", "share/man/man1/anneal.1", "share/bash-completion/completions/anneal"):
            if not os.path.isfile(f"{prefix}/{path}"):
                print(f"{path} is not installed")
                return 1
        if not headers_compile_alone(prefix, compiler):
            return 1
        if build and not is_no_package(build, compiler, f"{scratch}/alone"):
            return 1
        for sample in ("hello_engine", "hello_builder", "accuracy_vs_latency", "custom_kernel", "regression", "matmul_travel",
                       "pipeline"):
            call("cmake", "-G", "Ninja", "-S", f"{ROOT}/samples/{sample}", "-B", f"{tree}/{sample}",
                 f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_BUILD_TYPE={build_type}")
            call("cmake", "--build", f"{tree}/{sample}")
        for program in ("hello_engine/hello_engine", "hello_engine/hello_engine_c", "hello_builder/hello_builder",
                        "hello_builder/hello_builder_c",
                        "accuracy_vs_latency/accuracy_vs_latency", "regression/regression", "matmul_travel/matmul_travel",
                        "pipeline/pipeline"):
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
        if not kernels_of_its_own(prefix, tree, scratch):
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
        call(compiler, "-std=c++20", f"{ROOT}/samples/hello_engine/main.cc", "-o", f"{scratch}/by_pkg_config", *shlex.split(config.stdout),
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
    if sys.argv[1] == "--prefix":
        sys.exit(main(None, *sys.argv[2:]))
    sys.exit(main(sys.argv[1], None, *sys.argv[2:]))
