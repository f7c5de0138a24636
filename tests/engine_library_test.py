#!/usr/bin/env python3
"""What the shared libraries need, export and contain.

    engine_library_test.py [--record] libengine.so libbuilder.so [libanneal_emulated.so]

The exported names are those of tests/golden/exports_engine.txt and exports_builder.txt; --record writes these files.
Names for libbuilder alone are in a private version node and not in the files. Contents are read from the maps that the
linker writes beside the libraries. Whether a fault would be found is tried with one: an importer's object in a library.
"""

import os
import re
import subprocess
import sys
import tempfile
from os.path import abspath, basename, dirname, getsize

from sources import ROOT

MAY_NEED = ("libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libhwy.so", "ld-linux")
# Only the emulated device's compiler and the builder's commands start processes.
STARTS_PROCESSES = {"posix_spawn", "posix_spawnp", "fork", "vfork", "execve", "execvp", "system", "popen"}
ABOVE_ENGINE = ("importer/", "optimizer/", "engine/data/", "engine/builder/", "engine/compare/", "engine/tune/", "engine/onnx/", "cli/")
MOST_STRIPPED_BYTES = 5_000_000
MOST_STRIPPED_BUILDER_BYTES = 3_500_000
MOST_EXPORTS = {"libengine.so": 75, "libbuilder.so": 30}  # fewer names than that
MOST_PRIVATE = 250


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library))


def is_public(row):
    return "@ANNEAL_PRIVATE" not in row


def rows_of(library, *flags):
    return output("nm", "-D", "--defined-only", *flags, library).splitlines()


def exported(library):
    """{mangled name: type letter} of the public names."""
    rows = [row.split() for row in filter(is_public, rows_of(library))]
    return {row[-1].split("@")[0]: row[-2] for row in rows if row[-2] != "A"}


def demangled(library):
    """The public names as a C++ programmer writes them, without the two names of one constructor or destructor."""
    rows = [re.sub(r"@@?[\w.]+$", "", row) for row in filter(is_public, rows_of(library, "-C"))]
    names = {row.split(" ", 2)[2] if row[0] != " " else row.split(None, 1)[1] for row in rows}
    return sorted(name for name in names if not name.startswith("ANNEAL_"))


def golden_problems(library, record):
    path = f"{ROOT}/tests/golden/exports_{basename(library).split('.')[0].removeprefix('lib')}.txt"
    names = demangled(library)
    if record:
        with open(path, "w") as golden:
            golden.write("\n".join(names) + "\n")
    with open(path) as golden:
        listed = golden.read().splitlines()
    problems = [f"{basename(library)} exports {name}, which {path} lacks" for name in names if name not in listed]
    problems += [f"{basename(library)} does not export {name}" for name in listed if name not in names]
    most = MOST_EXPORTS[f"{basename(library).split('.')[0]}.so"]
    if len(names) >= most:
        problems.append(f"{basename(library)} exports {len(names)} names, {most} are too many")
    return problems


def contents(library_map):
    """{object: bytes of it that the linker kept}, from the map that it wrote."""
    with open(library_map, encoding="utf-8") as file:
        kept = file.read().partition("\nLinker script and memory map")[2]
    held = {}
    for size, path in re.findall(r"^ \.\S+\s+0x[0-9a-f]+\s+0x([0-9a-f]+) (\S+\.o)$", kept, re.MULTILINE):
        held[path] = held.get(path, 0) + int(size, 16)
    return {path: size for path, size in held.items() if size > 0}


def room_of(path):
    """kernels/cuda/code of the object of a unity file, core/version of that of a source; None: not ours."""
    found = re.search(r"\.dir/(?:\./)?(?:unity/\w+/|(?:__/)?generated/anneal/|__/)?(.+)\.cc\.o$", path)
    return found and found[1]


def objects_above(library_map):
    """Those that libengine must not have."""
    return [path for path in contents(library_map) if f"{room_of(path)}/".startswith(ABOVE_ENGINE)]


def engine_objects(library_map):
    """Those that libengine is linked from."""
    return [path for path in contents(library_map) if re.search(r"\banneal_(engine|small)_objects\.dir/", path)]


def map_of(library):
    return f"{dirname(library)}/{basename(library).split('.')[0].removeprefix('lib')}.map"


def stripped_bytes(library):
    with tempfile.NamedTemporaryFile() as copy:
        output("strip", "-o", copy.name, library)
        return getsize(copy.name)


def engine_problems(library, library_map):
    """Everything in this library that libengine must not have."""
    found = [f"needs {name}" for name in needed(library) if not name.startswith(MAY_NEED)]
    names = output("nm", "-D", "-C", "--defined-only", library) + output("nm", "-C", library)
    found += [f"contains a symbol of {word}" for word in ("google::protobuf", "anneal_onnx") if word in names]
    wanted = {row.split()[-1].split("@")[0] for row in output("nm", "-D", "--undefined-only", library).splitlines()}
    found += [f"calls {name}()" for name in sorted(wanted & STARTS_PROCESSES)]
    return found + [f"contains {path}, which belongs to a higher room" for path in objects_above(library_map)]


def builder_problems(library, library_map):
    """libbuilder has no code of the engine: a process that has both libraries has one pool of threads."""
    found = [f"contains {path}, which is libengine's" for path in engine_objects(library_map)]
    if not any(name.startswith("libengine.so") for name in needed(library)):
        found.append("does not need libengine")
    return found


def other_version_is_refused(engine, builder):
    """Whether the loader refuses libbuilder beside a libengine with other private names."""
    with tempfile.TemporaryDirectory() as folder:
        with open(engine, "rb") as file:
            code = file.read()
        name = next(each for each in needed(builder) if each.startswith("libengine.so"))
        with open(f"{folder}/{name}", "wb") as file:
            file.write(code.replace(b"ANNEAL_PRIVATE_", b"ANNEAL_ANOTHER_"))
        load = ["import ctypes, sys", f"ctypes.CDLL('{folder}/{name}')", f"ctypes.CDLL('{abspath(builder)}')"]
        done = subprocess.run([sys.executable, "-c", "\n".join(load)], text=True, capture_output=True,
                              env={**os.environ, "LD_LIBRARY_PATH": folder})
        return done.returncode != 0 and "ANNEAL_PRIVATE_" in done.stderr


def planted_problems(engine, builder):
    """What would not be found: an object of the importer in libengine, one of the engine in libbuilder."""
    higher, lower = objects_above(map_of(builder)), engine_objects(map_of(engine))
    if not higher or not lower:
        return ["the linker's maps name no objects"]
    build = dirname(dirname(abspath(engine)))
    with tempfile.TemporaryDirectory() as folder:
        library, library_map = f"{folder}/libplanted.so", f"{folder}/planted.map"
        importer = next(path for path in higher if f"{room_of(path)}/".startswith("importer/"))
        subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-o", library, f"-Wl,-Map={library_map}", lower[0], importer],
                       check=True, cwd=build)
        found = []
        if objects_above(library_map) != [importer]:
            found.append(f"{importer} in a library is not found")
        if engine_objects(library_map) != [lower[0]]:
            found.append(f"{lower[0]} in a library is not found")
        return found


def main(*arguments):
    record = arguments[0] == "--record"
    engine, builder, *emulated = arguments[1:] if record else arguments
    problems = [f"libengine {problem}" for problem in engine_problems(engine, map_of(engine))]
    problems += [f"libbuilder {problem}" for problem in builder_problems(builder, map_of(builder))]
    problems += planted_problems(engine, builder)
    for library in emulated:
        if names := set(exported(library)) - {"anneal_emulated_gpu"}:
            problems.append(f"{basename(library)} exports {names}")
        if any(name.startswith("libengine") for name in needed(library)):
            problems.append(f"{basename(library)} needs libengine: a command without libraries could not open it")
    if not other_version_is_refused(engine, builder):
        problems.append("libbuilder is loaded with a libengine of another version")
    for library in (engine, builder):
        problems += golden_problems(library, record)
    stripped = stripped_bytes(engine)
    if stripped >= MOST_STRIPPED_BYTES:
        problems.append(f"libengine takes {stripped} bytes when it is stripped")
    stripped_builder = stripped_bytes(builder)
    if stripped_builder >= MOST_STRIPPED_BUILDER_BYTES:
        problems.append(f"libbuilder takes {stripped_builder} bytes when it is stripped")
    private = [row for row in rows_of(engine) if not is_public(row)]
    if len(private) >= MOST_PRIVATE:
        problems.append(f"libengine has {len(private)} private names for libbuilder, {MOST_PRIVATE} are too many")
    if "_ZTIN6anneal5ErrorE" not in exported(engine):
        problems.append("libengine does not show the type information of anneal::Error")
    strong = [{name for name, kind in exported(library).items() if kind in "TDBR"} for library in (engine, builder)]
    problems += [f"defined in both libraries: {name}" for name in sorted(strong[0] & strong[1])]

    for problem in problems:
        print(problem)
    print(f"libengine takes {stripped / 1e6:.2f} MB stripped, needs {' '.join(needed(engine))}; shows {len(exported(engine))} "
          f"symbols, and {len(private)} to libbuilder alone; libbuilder takes {stripped_builder / 1e6:.2f} MB and shows "
          f"{len(exported(builder))}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
