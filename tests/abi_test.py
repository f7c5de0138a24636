#!/usr/bin/env python3
"""A program compiled with the frozen C header of interface 1 runs with today's library, and with tomorrow's.

Tomorrow's library is the C interface compiled with a header whose structs have one more field each. Arguments: the
build folder, the C++ compiler. The last check proves the others: a library that ignores the sizes of structs must fail.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from sources import ROOT

FROZEN = Path(ROOT, "tests/abi/c_api_v1.h")
TODAY = Path(ROOT, "engine/run/c_api.h")
STRUCT = re.compile(r"typedef struct \{\n(?P<body>.*?)\n\} (?P<name>\w+);", re.S)


def call(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        print(" ".join(map(str, command)), done.stdout, sep="\n")
        sys.exit(1)
    return done.stdout


def fields(header):
    """[(struct, field)] of a header."""
    found = []
    for struct in STRUCT.finditer(re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)):
        for statement in struct["body"].split(";"):
            found += [(struct["name"], name) for name in re.findall(r"(\w+)(?:\[\w+\])?\s*(?:,|$)", statement.strip())]
    return found


def layout(header, wanted, scratch):
    """{struct.field: "offset size"}, and of each struct the bytes behind its last field."""
    lines = [f'#include "{header}"', "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    for struct, field in wanted:
        lines.append(f'printf("{struct}.{field} %zu %zu\\n", offsetof({struct}, {field}), sizeof((({struct}*)0)->{field}));')
    for struct in dict.fromkeys(struct for struct, _ in wanted):
        last = [field for owner, field in wanted if owner == struct][-1]
        lines.append(f'printf("{struct}+ %zu 0\\n", sizeof({struct}) - offsetof({struct}, {last}) - sizeof((({struct}*)0)->{last}));')
    Path(scratch, "layout.c").write_text("\n".join(lines) + "\nreturn 0; }\n")
    call("gcc", f"{scratch}/layout.c", "-o", f"{scratch}/layout")
    return dict(line.split(" ", 1) for line in call(f"{scratch}/layout").splitlines())


def tomorrow(build, compiler, scratch, name, ignores_sizes):
    """The folder of a libc_api.so made with a header whose structs are longer."""
    folder = Path(scratch, name)
    headers = folder / "include/anneal/engine/run"
    headers.mkdir(parents=True)
    longer, count = STRUCT.subn(r"typedef struct {\n\g<body>\n  int64_t added_tomorrow[4];\n} \g<name>;", TODAY.read_text())
    assert count == len({struct for struct, _ in fields(TODAY)}) >= 9, "every struct got longer"
    (headers / "c_api.h").write_text(longer)
    structs = Path(ROOT, "engine/run/c_struct.h").read_text()
    if ignores_sizes:
        structs, count = re.subn(r"std::min<uint64_t>\(size, sizeof\(Struct\)\)", "sizeof(Struct)", structs)
        assert count >= 2, "c_struct.h compares sizes"
    (headers / "c_struct.h").write_text(structs)
    call(compiler, "-std=c++20", "-O1", "-fPIC", "-shared", f"-I{folder}/include", f"-I{build}/include",
         f"{ROOT}/engine/run/c_engine.cc", "-o", f"{folder}/libc_api.so", f"-L{build}/lib", "-lengine", f"-Wl,-rpath,{build}/lib")
    return folder


def main(build, compiler):
    with tempfile.TemporaryDirectory(prefix="anneal-abi-") as scratch:
        old = fields(FROZEN)
        was, is_now = layout(FROZEN, old, scratch), layout(TODAY, old, scratch)
        moved = [f"{name} was at {was[name]}, is at {is_now[name]}" for name in was if "." in name and was[name] != is_now[name]]
        # A later field must not lie in the bytes behind the last one, which old programs count.
        padded = [f"{name[:-1]} ends with padding" for name in was if name.endswith("+") and was[name] != "0 0"]
        for problem in moved + padded:
            print(problem)
        if moved or padded:
            return 1
        call(f"{build}/bin/anneal", "build", f"{ROOT}/samples/glyphs/glyphs.onnx", "-o", f"{scratch}/glyphs.engine")
        call("gcc", "-std=c99", "-Wall", "-Werror", "-c", f"{ROOT}/tests/abi/client_v1.c", "-o", f"{scratch}/client.o")

        def run(name, *libraries):
            call("gcc", f"{scratch}/client.o", "-o", f"{scratch}/{name}", *libraries, f"-L{build}/lib", "-lengine",
                 f"-Wl,-rpath,{build}/lib")
            return subprocess.run([f"{scratch}/{name}", f"{scratch}/glyphs.engine"], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
        today = run("today")
        if today.returncode != 0 or len(today.stdout.split()) != 47:
            print("the old program fails with today's library:", today.stdout, sep="\n")
            return 1
        for ignores_sizes in (False, True):
            folder = tomorrow(build, compiler, scratch, f"tomorrow{ignores_sizes:d}", ignores_sizes)
            later = run(f"later{ignores_sizes:d}", f"{folder}/libc_api.so", f"-Wl,-rpath,{folder}")
            works = later.returncode == 0 and later.stdout == today.stdout
            if works == ignores_sizes:
                print("a library that ignores sizes passes, so this test proves nothing" if ignores_sizes else
                      "the old program fails with a library whose structs are longer:", later.stdout, sep="\n")
                return 1
    print(f"the program of interface 1 runs with today's library and with longer structs ({len(old)} fields)")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2]))
