#!/usr/bin/env python3
"""What the two shared libraries need, export and contain. Arguments: [--record] libengine.so libbuilder.so

The exported names are those of tests/golden/exports_engine.txt and exports_builder.txt; --record writes these files.
The same questions are asked of libbuilder, which must fail those about Protobuf and about the
optimizer: a check that accepts libbuilder checks nothing.
"""

import re
import subprocess
import sys
import tempfile
from os.path import basename, getsize

from sources import ROOT, sources

MAY_NEED = ("libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libhwy.so", "ld-linux")
ABOVE_ENGINE = ("importer/", "optimizer/", "engine/data/", "engine/builder/", "engine/tune/", "cli/")
MOST_STRIPPED_BYTES = 5_000_000
MOST_EXPORTS = 200


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library))


def exported(library):
    """{mangled name: type letter}"""
    rows = output("nm", "-D", "--defined-only", library).splitlines()
    return {row.split()[-1].split("@")[0]: row.split()[-2] for row in rows}


def demangled(library):
    """The exported names as a C++ programmer writes them, without the two names of one constructor or destructor."""
    rows = output("nm", "-D", "-C", "--defined-only", library).splitlines()
    return sorted({re.sub(r"@@?.*$", "", row.split(" ", 2)[2] if row[0] != " " else row.split(None, 1)[1]) for row in rows})


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
    if len(names) >= MOST_EXPORTS:
        problems.append(f"{basename(library)} exports {len(names)} names, {MOST_EXPORTS} are too many")
    return problems


def source_files(library):
    """Base names of the sources that were linked in: the FILE entries of the symbol table."""
    return set(re.findall(r"\bFILE\s+LOCAL\s+DEFAULT\s+ABS\s+(\S+)", output("readelf", "-sW", library)))


def stripped_bytes(library):
    with tempfile.NamedTemporaryFile() as copy:
        output("strip", "-o", copy.name, library)
        return getsize(copy.name)


def excess(library):
    """Everything in this library that libengine must not have."""
    found = [f"needs {name}" for name in needed(library) if not name.startswith(MAY_NEED)]
    names = output("nm", "-D", "-C", "--defined-only", library) + output("nm", "-C", library)
    for word in ("google::protobuf", "anneal_onnx"):
        found += [f"contains a symbol of {word}"] if word in names else []
    listed = sources(".cc")
    above = {basename(path) for path in listed if path.startswith(ABOVE_ENGINE)}
    below = {basename(path) for path in listed if not path.startswith(ABOVE_ENGINE + ("tests/",))}
    found += [f"contains {name}, which belongs to a higher room"
              for name in sorted(source_files(library) & (above - below))]
    return found


def main(*arguments):
    record = arguments[0] == "--record"
    engine, builder = arguments[1:] if record else arguments
    problems = [f"libengine {problem}" for problem in excess(engine)]
    for library in (engine, builder):
        problems += golden_problems(library, record)
    stripped = stripped_bytes(engine)
    if stripped >= MOST_STRIPPED_BYTES:
        problems.append(f"libengine takes {stripped} bytes when it is stripped")
    if not source_files(engine) & {"version.cc"}:
        problems.append("libengine does not name its sources: was it stripped?")
    if "_ZTIN6anneal5ErrorE" not in exported(engine):
        problems.append("libengine does not show the type information of anneal::Error")
    strong = [{name for name, kind in exported(library).items() if kind in "TDBR"} for library in (engine, builder)]
    problems += [f"defined in both libraries: {name}" for name in sorted(strong[0] & strong[1])]

    has_importer = any(path.startswith("importer/") for path in sources(".cc"))
    if has_importer and not excess(builder):
        problems.append("libbuilder passes the test that is made to keep its contents out of libengine")

    for problem in problems:
        print(problem)
    print(f"libengine takes {stripped / 1e6:.2f} MB stripped, needs {' '.join(needed(engine))}; shows {len(exported(engine))} symbols; "
          f"libbuilder shows {len(exported(builder))}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
