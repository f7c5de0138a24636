#!/usr/bin/env python3
"""File-local functions are distinct from what other files see that cmake/unity.cmake compiles as one with theirs.

    check_unity.py              prints each name that another file declares, or that would take another file's calls
    check_unity.py --self-test  feeds the check wrong sources and fails if it accepts one

Two functions of one name and other parameters are overloads there: a call with a changed argument silently goes to the
neighbour's. That is so if both files have a local function of the name, and if one calls a function of a header that
the other has a local overload of. Types and variables need no check: two of one name do not compile.
"""

import re
import sys
from collections import defaultdict
from itertools import permutations
from os.path import dirname

from sources import ROOT, sources

FOLDERS = ("core/", "graph/", "kernels/", "engine/", "importer/", "optimizer/", "cli/")
# cmake/unity.cmake compiles these files alone.
ALONE = re.compile(r'foreach_target\.h|-inl\.h"')
TOKEN = re.compile(r'R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
TEMPLATE = re.compile(r"\btemplate\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>")
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "alignas", "decltype", "noexcept", "requires", "operator",
            "static_assert", "defined", "__attribute__", "asm", "catch"}


def without_text(text):
    """Without comments, literals and lines of the preprocessor."""
    text = TOKEN.sub(lambda match: " " if match[0].startswith("/") else '""', text)
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", "", text, flags=re.MULTILINE)


def outermost(text):
    """What stands in namespaces of a file: pairs of a statement without what is in its braces, and whether it is in an
    anonymous namespace."""
    scopes, statement, depth = [], "", 0
    for token in re.findall(r"[{};]|[^{};]+", text):
        if token == "{":
            opened = re.search(r"\bnamespace\s*([\w:]*)\s*$", statement)
            if depth == 0 and (opened or re.search(r'\bextern\s+""\s*$', statement)):
                scopes.append(opened is not None and not opened[1])
                statement = ""
            else:
                depth += 1
        elif token == "}":
            if depth > 0:
                depth -= 1
                # A function ends here; a type or an initializer goes on to its semicolon.
                if depth == 0 and not re.search(r"\b(?:struct|class|union|enum)\b(?!.*\))|=[^()]*$|\(\s*$|,\s*$",
                                               TEMPLATE.sub("", statement), re.DOTALL):
                    yield statement, any(scopes)
                    statement = ""
            elif scopes:
                scopes.pop()
                statement = ""
        elif token == ";" and depth == 0:
            yield statement, any(scopes)
            statement = ""
        elif depth == 0:
            statement += token


def function_name(statement):
    """That a statement declares, if it is a function outside of classes."""
    text = TEMPLATE.sub("", re.sub(r"\[\[.*?\]\]", "", statement))
    if re.match(r"\s*(?:using|typedef|friend|struct|class|union|enum)\b(?!.*\))", text, re.DOTALL):
        return None
    found = re.search(r"(?<![\w:~])([A-Za-z_]\w*)\s*\(", text)
    if found is None or found[1] in KEYWORDS or "=" in text[:found.start()] or not text[:found.start()].strip():
        return None
    return found[1]


def local_functions(text):
    return {name for statement, is_local in outermost(without_text(text))
            if is_local or re.search(r"\bstatic\b", statement) for name in [function_name(statement)] if name}


def unit_of(path, together):
    """The files that are compiled with this one have the same."""
    folder = dirname(path)
    return next((group[0] for group in together if folder in group), folder)


def headers_of(path, includes):
    """All that this file includes, directly or not."""
    found, waiting = set(), [path]
    while waiting:
        for header in includes.get(waiting.pop(), ()):
            if header not in found:
                found.add(header)
                waiting.append(header)
    return found


def problems(texts, together):
    """texts: {path: text} of all C++ files of the libraries and the command; together: lists of folders in one unit."""
    plain = {path: without_text(text) for path, text in texts.items()}
    includes = {path: re.findall(r'#\s*include "anneal/([^"]+)"', text) for path, text in texts.items()}
    units, declared = defaultdict(dict), defaultdict(set)
    for path, text in sorted(plain.items()):
        if path.endswith(".cc") and not ALONE.search(texts[path]):
            units[unit_of(path, together)][path] = local_functions(text)
        for name in {function_name(statement) for statement, _ in outermost(text)} if path.endswith(".h") else ():
            declared[name].add(path)
    for files in units.values():
        for path, other in permutations(files, 2):
            for name in sorted(files[path]):
                if name in files[other]:
                    if path > other:
                        yield f"{path}: {name}() is local to this file and to {other}, which are compiled as one: rename one"
                elif name in declared and re.search(rf"(?<![\w.:>~]){name}\s*\(", plain[other]):
                    if headers := sorted(declared[name] & headers_of(other, includes)):
                        yield (f"{path}: {name}() is local to this file and may take calls of {other}, which is compiled with "
                               f"it, to {name}() of {headers[0]}: rename it")


def self_test():
    header = ("core/a.h", "namespace anneal {\nbool fits(int size);\n}  // namespace anneal\n")

    def local(body):
        return f"namespace anneal {{\nnamespace {{\n\n{body}\n}}  // namespace\n}}  // namespace anneal\n"
    cases = [
        ("two local overloads", {"core/b.cc": local("bool fits(long size) { return f(size); }"),
                                 "core/c.cc": local("template <class T>\nbool fits(T size) { return g(size); }")}, 1),
        ("two static overloads", {"core/b.cc": "static int fits(long) { return 0; }", "core/c.cc": local("int fits(int) { return 1; }")}, 1),
        ("a declaration", {"core/b.cc": local("int fits(long);"), "core/c.cc": local("int fits(int) { return 1; }")}, 1),
        ("folders that are one unit", {"cli/b.cc": local("int f(long) { return 0; }"), "cli/flags/c.cc": local("int f(int) { return 1; }")}, 1),
        ("an overload of a header's", {"core/b.cc": local("bool fits(long size) { return size > 0; }"),
                                       "core/c.cc": '#include "anneal/core/a.h"\nbool x = fits(1);'}, 1),
        ("an overload of a header's that nobody else calls", {"core/b.cc": local("bool fits(long size) { return size > 0; }"),
                                                              "core/c.cc": '#include "anneal/core/a.h"\nbool x = y.fits(1);'}, 0),
        ("other folders", {"core/b.cc": local("int f(long) { return 0; }"), "graph/c.cc": local("int f(int) { return 1; }")}, 0),
        ("members, lambdas and text", {"core/b.cc": local("struct A {\n  int f(long) { return 0; }\n};\nint f(int);"),
                                       "core/c.cc": local("struct B {\n  int f(int) { return 1; }\n};\n"
                                                          "// int f(int) { return 1; }\nint g() {\n  const auto f = [](int) {};\n}")}, 0),
        ("files that are compiled alone", {"core/b.cc": local("int f(long) { return 0; }"),
                                           "core/c.cc": '#include "anneal/core/b-inl.h"\n' + local("int f(int) { return 1; }")}, 0),
    ]
    for what, files, count in cases:
        found = list(problems({**files, header[0]: header[1]}, [["cli", "cli/flags"]]))
        if len(found) != count:
            yield f"{what}: found {len(found)} problems instead of {count}"


def main(*arguments):
    if arguments == ("--self-test",):
        found = list(self_test())
    else:
        texts, together = {}, []
        for path in sources(".cc", ".h", "CMakeLists.txt"):
            with open(f"{ROOT}/{path}", encoding="utf-8") as file:
                text = file.read()
            if path.endswith("CMakeLists.txt"):
                together += [each.split() for each in re.findall(r"\bTOGETHER\s+([\w/\s]+)\)", text)]
            elif path.startswith(FOLDERS):
                texts[path] = text
        found = list(problems(texts, together))
        print(f"unity: {len(texts)} files, {len(found)} problems")
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
