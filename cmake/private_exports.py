#!/usr/bin/env python3
"""Writes libengine's linker script: the public names, and those that libbuilder's code needs beside them.

    private_exports.py PUBLIC.map PUBLIC_NODE PRIVATE_NODE ENGINE_OBJECTS USER_OBJECTS OUT.map

PUBLIC.map names what applications may use. The two lists of objects are files, one path a line. A name that a user's
object leaves undefined and an object of the engine defines goes into PRIVATE_NODE, unless PUBLIC.map has it: libbuilder
then uses the engine's code and threads, and the dynamic loader refuses a libbuilder that needs another PRIVATE_NODE.
"""

import re
import subprocess
import sys
from fnmatch import fnmatchcase


def symbols(objects):
    """What they need, and {name: type letter} of what they define for others."""
    needed, defined = set(), {}
    for row in subprocess.run(["nm", "-P", *objects], check=True, capture_output=True, text=True).stdout.splitlines():
        words = row.split()
        if len(words) < 2 or len(words[1]) != 1:
            continue
        name, kind = words[:2]
        if kind in "Uvw":
            needed.add(name)
        elif kind.isupper() or kind == "u":
            defined[name] = kind
    return needed - set(defined), defined


def public_patterns(text):
    """Those of mangled names, and those of names as a C++ programmer writes them."""
    text = re.sub(r"#.*", "", text).partition("local:")[0].partition("global:")[2]
    inside = re.search(r'extern "C\+\+" \{(.*?)\};', text, re.DOTALL)
    split = lambda part: [each.strip().strip('"') for each in part.split(";") if each.strip()]  # noqa: E731
    return split(text.replace(inside[0], "") if inside else text), split(inside[1]) if inside else []


def demangled(names):
    done = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def private_names(public, needed, defined):
    mangled, written = public_patterns(public)
    # A compiler may leave out a template that another object has, as of the standard library; each library has its own.
    names = sorted(name for name in needed if name in defined and "6anneal" in name)
    return [name for name, text in zip(names, demangled(names))
            if not any(fnmatchcase(name, each) for each in mangled) and not any(fnmatchcase(text, each) for each in written)]


def doubled_state(engine, user):
    """Variables of inline functions that both define: each library would have its own."""
    return sorted(name for name in engine if name in user and re.match(r"_ZGV\w*6anneal", name))


def main(public_map, public_node, private_node, engine_list, user_list, out):
    lists = []
    for path in (engine_list, user_list):
        with open(path) as listed:
            lists.append(symbols(listed.read().split()))
    (_, engine), (needed, user) = lists
    if doubled := doubled_state(engine, user):
        print("libengine and libbuilder would each have a variable of its own:", *demangled(doubled), sep="\n", file=sys.stderr)
        return 1
    with open(public_map) as file:
        public = file.read()
    rows = "".join(f"    {name};\n" for name in private_names(public, needed, engine))
    text = f"{public[:public.index('{')]}{public_node} {public[public.index('{'):]}{private_node} {{\n  global:\n{rows}}} {public_node};\n"
    try:
        with open(out) as file:
            if file.read() == text:
                return 0
    except FileNotFoundError:
        pass
    with open(out, "w") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
