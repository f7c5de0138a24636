#!/usr/bin/env python3
"""The structure of the sources in figures, as a Markdown table: sizes, circles, functions, interface, commits.

    house_report.py [--build build/release] [REVISION...]    one column for each revision, then one for the working tree

A revision is read with `git archive`; raw symbols and stripped sizes need a build and are given for the working tree
alone. Functions are found by their first line and their braces, so a count may be off by some in a thousand.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from module_circles import circles, module_circles
from public_commands import PUBLIC_COMMANDS, reached_in_cli

ROOT = Path(__file__).resolve().parent.parent
EXPORTS = "tests/golden/exports_"
LIBRARIES = ("core", "graph", "importer", "optimizer", "kernels", "engine", "cli")
INCLUDE = re.compile(r'^\s*#\s*include\s*"anneal/([^"]+)"', re.M)
# A function's first line ends in a brace behind its parameters; `else if (...) {` and the like are none.
FUNCTION = re.compile(
    r"^(?P<indent> *)(?!(?:if|for|while|switch|else|do|catch|return|namespace|class|struct|enum|union|using|extern)\b)"
    r"[\w~:<>,&*\[\]\s=]*?(?P<name>[\w~]+|operator\S+) ?\((?P<parameters>[^{};]*)\)[^{};()]*\{", re.M)


def without_comments(text):
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    return token.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def functions(text):
    """(lines, number of parameters) of each function with a body."""
    text = without_comments(text)
    for found in FUNCTION.finditer(text):
        depth, at = 1, found.end()
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        parameters, nest, count = found["parameters"].strip(), 0, 1
        for letter in parameters:
            nest += letter in "(<[{"
            nest -= letter in ")>]}"
            count += letter == "," and nest == 0
        yield text.count("\n", found.start(), at) + 1, count if parameters else 0


def rows(read_all, subjects):
    """read_all: path -> text of a tree; subjects: of its last 100 commits."""
    ours = {path: text for path, text in read_all.items() if path.endswith((".h", ".cc"))}
    house = {path: text for path, text in ours.items() if path.startswith(LIBRARIES)}
    lengths = [text.count("\n") for text in ours.values()]
    includes = {path: INCLUDE.findall(text) for path, text in house.items()}
    yield "library and command: C++ files, lines", f"{len(house)}, {sum(t.count(chr(10)) for t in house.values()) / 1000:.1f}k"
    yield "lines of a file, tests included: median, largest", f"{statistics.median(lengths):.0f}, {max(lengths)}"
    headers = {path: {other for other in found if other in house} for path, found in includes.items() if path.endswith(".h")}
    yield "circles of headers", str(len(circles(headers)))
    knots = module_circles(includes)
    yield ("circles of modules (a header with its .cc): number, modules, largest",
           f"{len(knots)}, {sum(map(len, knots))}, {max(map(len, knots), default=0)}")
    folders = {}
    for path in ours:
        folders.setdefault(str(Path(path).parent), []).append(path)
    fullest = max((folder for folder in folders if folder.startswith(LIBRARIES)), key=lambda folder: len(folders[folder]))
    yield "fullest folder", f"{fullest}: {len(folders[fullest])}"
    found = [each for text in house.values() for each in functions(text)]
    lines = [each[0] for each in found]
    yield ("functions: number, median lines, above 40, above 80",
           f"{len(found)}, {statistics.median(lines):.0f}, {sum(n > 40 for n in lines)}, {sum(n > 80 for n in lines)}")
    yield "functions of 9 parameters or more, of 7 or more", f"{sum(p >= 9 for _, p in found)}, {sum(p >= 7 for _, p in found)}"
    public = set(re.findall(r"anneal/([a-z_/]+\.h)\n", read_all["cmake/public_headers.cmake"]))
    yield "public headers, lines", f"{len(public)}, {sum(ours[path].count(chr(10)) for path in public if path in ours)}"
    own = [other for path, found in includes.items() if path.startswith("cli/") for other in found
           if not other.startswith("cli/") and other not in public]
    yield "cli: headers that are not public, includes of them", f"{len(set(own))}, {len(own)}"
    starts = {f"cli/commands/{name}_command.cc" for name in PUBLIC_COMMANDS}
    own = [other for path in reached_in_cli(house, starts) for other in includes[path]
           if not other.startswith("cli/") and other not in public]
    yield "headers that are not public in the commands of public_commands.py, includes", f"{len(set(own))}, {len(own)}"
    listed = [read_all.get(f"{EXPORTS}{library}.txt", "").count("\n") for library in ("engine", "builder")]
    yield "exported names of libengine, of libbuilder", f"{listed[0]}, {listed[1]}"
    options = {name for path, text in house.items() if path.startswith(("engine/builder/", "engine/tune/", "optimizer/"))
               for name in re.findall(r"^struct (\w*Options)\b", text, re.M)}
    yield "option structs of builder, tuning and optimizer", f"{len(options)}"
    yield ("commit subjects, the last 100: median letters, above 72",
           f"{statistics.median(map(len, subjects)):.0f}, {sum(len(each) > 72 for each in subjects)}")


def exports(library):
    listed = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library], capture_output=True, text=True,
                            check=True).stdout
    return len({line.split()[-1] for line in listed.splitlines() if " A " not in line and "PRIVATE" not in line})


def built(folder):
    for name in ("engine", "builder"):
        library = Path(folder) / f"lib/lib{name}.so"
        if not library.exists():
            continue
        with tempfile.NamedTemporaryFile() as stripped:
            subprocess.run(["strip", "-o", stripped.name, library], check=True)
            size = Path(stripped.name).stat().st_size
        yield f"lib{name}: exported names (raw symbols), MB stripped", f"{exports(library)}, {size / 1e6:.2f}"


def is_read(path):
    return path.endswith((".h", ".cc", ".cmake")) or path.startswith(EXPORTS)


def tree_of(revision):
    archive = subprocess.run(["git", "-C", ROOT, "archive", revision], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        return {each.name: files.extractfile(each).read().decode("utf-8", "replace") for each in files
                if each.isfile() and is_read(each.name)}


def working_tree():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True,
                            text=True, check=True).stdout.split("\n")
    return {path: (ROOT / path).read_text(encoding="utf-8", errors="replace") for path in listed
            if is_read(path) and (ROOT / path).is_file()}


def subjects_of(revision):
    return subprocess.run(["git", "-C", ROOT, "log", "-100", "--format=%s", revision], capture_output=True, text=True,
                          check=True).stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", help="a build tree, for exported names and sizes of the libraries")
    parser.add_argument("revisions", nargs="*")
    arguments = parser.parse_args()
    columns = {revision: dict(rows(tree_of(revision), subjects_of(revision))) for revision in arguments.revisions}
    columns["working tree"] = {**dict(rows(working_tree(), subjects_of("HEAD"))),
                               **(dict(built(arguments.build)) if arguments.build else {})}
    print("| | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
    for name in columns["working tree"]:
        print(f"| {name} | " + " | ".join(column.get(name, "") for column in columns.values()) + " |")


if __name__ == "__main__":
    main()
