#!/usr/bin/env python3
"""A program compiled with the recorded C interface runs with a library of the current one: libabigail compares both.

    c_abi_test.py               compares the public C headers with tests/golden/c_interface.abi
    c_abi_test.py --record      writes that file: after a release, or after a break that raises the SONAME
    c_abi_test.py --self-test   changes an interface in harmless and harmful ways, and fails if one is misjudged

Functions and enumerators may be added, and members at the end of a struct whose first member is its size. What is
compared is what the headers declare: that libengine and libbuilder export it, engine_library_test.py says.
"""

import re
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

from sources import ROOT, sources

GOLDEN = f"{ROOT}/tests/golden/c_interface.abi"


def c_headers():
    """Public headers that C programs may include, as installed: anneal/engine/run/c_api.h."""
    with open(f"{ROOT}/cmake/public_headers.cmake", encoding="utf-8") as listed:
        public = set(re.findall(r"/include/anneal/(\S+\.h)", listed.read()))
    for path in sources(".h"):
        if path in public:
            with open(f"{ROOT}/{path}", encoding="utf-8") as file:
                if 'extern "C"' in file.read():
                    yield path


def declarations():
    """Those of all C headers, as the compiler sees them."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["ln", "-s", ROOT, f"{folder}/anneal"], check=True)
        includes = "".join(f"#include <anneal/{path}>\n" for path in c_headers())
        return subprocess.run(["cc", "-std=gnu2x", "-E", "-P", "-x", "c", f"-I{folder}", "-"], input=includes, text=True,
                              capture_output=True, check=True).stdout


def write_abi(text, path):
    """Describes a library that defines every declared function: its code does not matter."""
    # Not calls within the inline functions of a header.
    text = re.sub(r"^([\w *]*\banneal_\w+\([^;{}]*\));", r"\1 { __builtin_trap(); }", text, flags=re.M)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/interface.c", "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run(["cc", "-std=gnu2x", "-w", "-g", "-O0", "-fPIC", "-shared", "interface.c", "-o", "interface.so"],
                       check=True, cwd=folder)
        described = subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed",
                                    "--no-architecture", "interface.so"], check=True, cwd=folder, text=True, capture_output=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(described.stdout)


def structs(abi):
    """{name: element} of an interface's description."""
    return {each.get("name"): each for each in abi.iter("class-decl")}


def forget_growth(old, new):
    """Takes members from structs of `new` that old programs do not have: behind all that they have, in a struct that
    begins with its size, and not in its former padding, which old programs leave undefined."""
    before = structs(old)
    for name, struct in structs(new).items():
        members = struct.findall("data-member")
        names = [member.find("var-decl").get("name") for member in members]
        if name not in before or names[:1] != ["size"]:
            continue
        had = [member.find("var-decl").get("name") for member in before[name].findall("data-member")]
        added = members[len(had):]
        size = before[name].get("size-in-bits")
        if names[:len(had)] == had and added and int(added[0].get("layout-offset-in-bits")) >= int(size):
            for member in added:
                struct.remove(member)
            struct.set("size-in-bits", size)


def difference(old, text):
    """What breaks programs that were compiled with the interface in the file `old`; empty: nothing."""
    with tempfile.NamedTemporaryFile(suffix=".abi") as new:
        write_abi(text, new.name)
        tree = ElementTree.parse(new.name)
        forget_growth(ElementTree.parse(old).getroot(), tree.getroot())
        tree.write(new.name)
        done = subprocess.run(["abidiff", "--no-added-syms", old, new.name], text=True, capture_output=True)
        return done.stdout + done.stderr if done.returncode != 0 else ""


EXAMPLE = """
typedef unsigned long uint64_t;
typedef enum { ANNEAL_A = 1, ANNEAL_B = 2 } anneal_kind;
typedef struct { uint64_t size; int threads, retries; } anneal_growing;
typedef struct { uint64_t size; int count; } anneal_padded;
typedef struct { int rank; anneal_kind kind; } anneal_fixed;
int anneal_grow(const anneal_growing* options);
int anneal_pad(const anneal_padded* options);
int anneal_fix(anneal_fixed* result, int index);
"""
# (what is changed in EXAMPLE, text there, text in its place, whether old programs still run)
CASES = [
    ("nothing", "", "", True),
    ("a function is added", "int anneal_fix", "int anneal_added(int value);\nint anneal_fix", True),
    ("an enumerator is added", "ANNEAL_B = 2", "ANNEAL_B = 2, ANNEAL_C = 3", True),
    ("a member is added to a struct with a size", "retries;", "retries; int added;", True),
    ("a member is added in the padding of such a struct", "int count;", "int count; int added;", False),
    ("a member is added before others", "int threads,", "int added, threads,", False),
    ("a member is added to a struct without a size", "anneal_kind kind;", "anneal_kind kind; int added;", False),
    ("a member has another type", "int threads,", "float threads,", False),
    ("a function is gone", "int anneal_grow(const anneal_growing* options);", "", False),
    ("an enumerator has another value", "ANNEAL_B = 2", "ANNEAL_B = 3", False),
    ("a parameter has another type", "int index", "double index", False),
]


def self_test():
    with tempfile.NamedTemporaryFile(suffix=".abi") as old:
        write_abi(EXAMPLE, old.name)
        for what, there, instead, is_harmless in CASES:
            if (difference(old.name, EXAMPLE.replace(there, instead, 1)) == "") != is_harmless:
                yield f"{what}: judged {'harmful' if is_harmless else 'harmless'}"


def main(*arguments):
    if arguments == ("--record",):
        write_abi(declarations(), GOLDEN)
        return 0
    if arguments == ("--self-test",):
        found = list(self_test())
    else:
        broken = difference(GOLDEN, declarations())
        found = [f"{broken}\nPrograms compiled with the recorded C interface would break. If that is decided, raise the SONAME "
                 "and run tests/c_abi_test.py --record."] if broken else []
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
