#!/usr/bin/env python3
"""Two types of one name, which the linker takes for one, though their files differ: classes, structs, unions and enums.

    check_types.py              checks the sources
    check_types.py --self-test  feeds the check wrong sources and fails if it accepts one

Types in anonymous namespaces and in functions are their file's own, and texts of device functions are programs of their own.
"""

import collections
import re
import sys

from sources import ROOT, sources

LITERAL = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'(?!\w)', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
TYPE = re.compile(r"\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:alignas\([^)]*\)\s*|\[\[.*?\]\]\s*)*"
                  r"([A-Za-z_][\w:]*)(?:\s+final)?\s*(?::[^:].*)?$", re.S)


def without_templates(text):
    before = None
    while before != text:
        before, text = text, re.sub(r"<[^<>]*>", "", text)
    return text


def types_of(text):
    """The full names of the types that the text defines and other files could define, too."""
    text = DIRECTIVE.sub("", LITERAL.sub(lambda m: " " if m.group()[0] in "/" else '""', text))
    stack, statement, found = [], "", []
    for c in text:
        if c == "{":
            head = without_templates(statement).strip()
            namespace = re.search(r"\bnamespace\b\s*([\w:]*)$", head)
            of_type = None if "(" in re.sub(r"alignas\([^)]*\)", "", head) else TYPE.search(head)
            if namespace:
                stack.append(namespace.group(1) or None)
            elif of_type and None not in stack:
                stack.append(of_type.group(1))
                found.append("::".join(stack))
            else:
                stack.append(None)
            statement = ""
        elif c == "}":
            if stack:
                stack.pop()
            statement = ""
        elif c == ";":
            statement = ""
        else:
            statement += c
    return found


def problems_of(files):
    places = collections.defaultdict(set)
    for path, text in files.items():
        if not path.startswith("kernels/cuda/device/"):
            for name in types_of(text):
                places[name].add(path)
    return [f"{', '.join(sorted(paths))}: two types are named {name}, which the linker takes for one: rename one"
            for name, paths in sorted(places.items()) if len(paths) > 1]


def self_test():
    wrong = [{"a.h": "namespace n { struct A { int x; }; }", "b.h": "namespace n { class A final : B { int y; }; }"},
             {"a.h": "namespace n { enum class A : int { kB }; }", "b.cc": "namespace n { struct A { int y; }; }"},
             {"a.cc": "struct A::State { int x; };", "b.cc": "struct A::State { int y; };"}]
    right = [{"a.h": "struct A; struct A { int x{}; };", "b.h": "struct A; namespace { struct A { int y; }; }"},
             {"a.cc": "void f() { struct A { int x; }; }", "b.cc": "void g() { struct A { int y; }; }"},
             {"a.h": "namespace n { struct A { int x; }; }", "b.h": "namespace m { struct A { int y; }; }"}]
    faults = [f"wrong, but accepted: {files}" for files in wrong if not problems_of(files)]
    faults += [f"right, but refused: {problems_of(files)}" for files in right if problems_of(files)]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    files = {}
    for path in sources(".h", ".cc"):
        if not path.startswith(("tests/", "samples/", "bench/")):
            with open(f"{ROOT}/{path}", encoding="utf-8") as source:
                files[path] = source.read()
    problems = problems_of(files)
    print("\n".join([*problems, f"types: {sum(len(types_of(text)) for text in files.values())}, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
