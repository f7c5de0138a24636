#!/usr/bin/env python3
"""Counts methods per class: more than 25 fail. A class name of two headers fails, too.

    check_classes.py              checks the sources
    check_classes.py --list       prints the largest classes
    check_classes.py --self-test  feeds the check wrong sources and fails if it accepts one

Methods are those declared in the class's body, also in its private parts. Constructors, destructors, assignments,
defaulted and deleted functions, and the call operators of a visitor do not count. Tests are not checked.
"""

import collections
import re
import sys

from sources import ROOT, sources

METHOD_LIMIT = 25
# Today's exceptions, with the number of methods that each may have. Shorten this list, never lengthen it.
ALLOWED = {"SizeTable": 56, "Graph": 42, "Chooser": 27}

LITERAL = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'(?!\w)', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
TYPE = re.compile(r"\b(class|struct|union)\s+(?:alignas\([^)]*\)\s*|\[\[.*?\]\]\s*)*([A-Za-z_]\w*)(?:\s+final)?\s*(?::[^:].*)?$", re.S)
NO_METHOD = re.compile(r"^\s*(?:using|typedef|friend|static_assert|[A-Z][A-Z0-9_]*\s*\()|\(\s*\*|=\s*(?:default|delete)\s*$")


def without_templates(text):
    text = re.sub(r"\boperator\s*\(\)", "operator_call", text)
    text = re.sub(r"\boperator\s*[^\s\w(]+", "operator_", text)
    before = None
    while before != text:
        before, text = text, re.sub(r"<[^<>]*>", "", text)
    return text


def is_method(statement, class_name):
    statement = re.sub(r"\brequires\b[^(]*\(.*?\)(?=\s*\w)", "", without_templates(statement), flags=re.S)
    statement = re.sub(r"^\s*template\b|\[\[.*?\]\]|\b(?:public|private|protected)\s*:", "", statement)
    head = statement.split("(", 1)[0]
    if "(" not in statement or "=" in head or NO_METHOD.search(statement.strip()):
        return False
    name = re.search(r"(~?\w+)\s*$", head)
    if not name or name.group(1).lstrip("~") in (class_name, "operator_call"):
        return False
    return not re.search(r"\boperator_\s*$", head) or not re.search(rf"\b{class_name}\s*&\s*operator_\s*$", head)


def classes_of(text):
    """(name, full name if the linker knows it, methods) of each class in the text, nested ones too."""
    text = DIRECTIVE.sub("", LITERAL.sub(lambda m: " " if m.group()[0] in "/" else '""', text))
    found = []
    stack = []  # of (kind, name, methods), kind "namespace", "hidden", "class" or "block"
    statement = ""
    for c in text:
        inner = stack[-1] if stack else ["namespace", "", 0]
        if c == "{":
            head = without_templates(statement).strip()
            of_type = TYPE.search(head)
            if inner[0] != "block" and re.search(r"\bnamespace\b[\w\s:]*$", head):
                name = re.search(r"\bnamespace\s+([\w:]+)$", head)
                stack.append(["namespace", name.group(1), 0] if name else ["hidden", "", 0])
            elif inner[0] != "block" and "(" not in re.sub(r"alignas\([^)]*\)", "", head) and of_type and \
                    not re.search(r"\benum\b", head):
                stack.append(["class", of_type.group(2), 0])
            else:
                stack.append(["block", statement, 0])
                continue
            statement = ""
        elif c == "}":
            if not stack:
                continue
            kind, name, methods = stack.pop()
            outer = stack[-1] if stack else ["namespace", "", 0]
            if kind == "class":
                visible = all(each[0] == "namespace" for each in stack)
                found.append((name, "::".join([each[1] for each in stack] + [name]) if visible else None, methods))
                statement = name
            elif kind == "block" and outer[0] == "class":
                # A body ends a method; the braces of an initializer, also in a constructor's list, do not.
                head = without_templates(name).strip()
                in_list = re.search(r"\)[\w\s]*:[^:]", head) and re.search(r"[\w>]$", head) and \
                    not re.search(r"\)\s*(?:const|noexcept|override|final)$", head)
                if "(" in head and "=" not in head.split("(")[0] and not in_list:
                    outer[2] += is_method(name, outer[1])
                    statement = ""
                else:
                    statement = name + "@"
            elif kind == "block" and outer[0] != "block":
                statement = ""
            else:
                statement = ""
        elif inner[0] == "block":
            continue
        elif c == ";":
            if inner[0] == "class":
                inner[2] += is_method(statement, inner[1])
            statement = ""
        else:
            statement += c
            if c == ":" and re.search(r"^\s*(?:public|private|protected)\s*:$", statement):
                statement = ""
    return found


def problems_of(files):
    problems = []
    places = collections.defaultdict(list)
    for path, text in files.items():
        for name, full_name, methods in classes_of(text):
            if methods > ALLOWED.get(name, METHOD_LIMIT):
                problems.append(f"{path}: {name} has {methods} methods, {ALLOWED.get(name, METHOD_LIMIT)} allowed: "
                                "divide it into classes with one job each, or make functions of what needs no state")
            if full_name and not path.startswith("kernels/cuda/device/"):  # texts of their own
                places[full_name].append(path)
    for name, files_of in places.items():
        if len(set(files_of)) > 1:
            problems.append(f"{', '.join(sorted(set(files_of)))}: two classes are named {name}, which the linker takes for one: "
                            "rename one")
    return problems


def self_test():
    many = "".join(f"int f{i}() const;" for i in range(METHOD_LIMIT + 1))
    bodies = "".join(f"int f{i}(int a = 1) {{ return {{}}; }}" for i in range(METHOD_LIMIT + 1))
    few = "".join(f"int f{i} = g(1); using T{i} = int(int); std::function<int(int)> h{i} = {{}};" for i in range(99))
    wrong = [{"a.h": f"class A {{ public: {many} }};"}, {"a.cc": f"namespace {{ struct A : B {{ {bodies} }}; }}"},
             {"a.h": f"class A {{ A() : x_(1), y_{{2}} {{}} private: {bodies} }};"},
             {"a.h": "namespace n { struct A { int x; }; }", "b.h": "namespace n { class A { int y; }; }"}]
    right = [{"a.h": f"struct A {{ A(); ~A() = default; {few} struct B {{ int f(); }}; }};"},
             {"a.cc": "struct A { " + "".join(f"int operator()(T{i}) const {{ return 1; }}" for i in range(99)) + "};"},
             {"a.h": "struct A; struct A { int x{}; };", "b.h": "struct A; namespace { struct A { int y; }; }"}]
    accepted = [files for files in wrong if not problems_of(files)]
    refused = [(files, problems_of(files)) for files in right if problems_of(files)]
    for files in accepted:
        print(f"wrong, but accepted: {files}")
    for files, why in refused:
        print(f"right, but refused: {files}: {why}")
    return 1 if accepted or refused else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    files = {}
    for path in sources(".h", ".cc"):
        if not path.startswith("tests/"):
            with open(f"{ROOT}/{path}", encoding="utf-8") as source:
                files[path] = source.read()
    counts = [(methods, name, path) for path, text in files.items() for name, _, methods in classes_of(text)]
    if sys.argv[1:] == ["--list"]:
        for methods, name, path in sorted(counts, reverse=True)[:40]:
            print(f"{methods:4} {name} ({path})")
        return 0
    problems = problems_of(files)
    for message in problems:
        print(message)
    largest = max(counts)
    print(f"classes: {len(counts)}, {METHOD_LIMIT} methods at most but for {len(ALLOWED)} named ones; "
          f"largest {largest[1]} ({largest[0]})")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
