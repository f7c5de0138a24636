#!/usr/bin/env python3
"""Checks that the pages of docs/reference are those of these headers and docstrings.

The last line of each page is a hash of all that the pages are made from, and of the page. So this needs no parser of C++:
it fails when a public header, a docstring or the generator changed and `make reference` did not run, and when a page was
edited by hand. tests/reference_test.py makes the pages again where python3-clang is installed.
"""

import glob
import hashlib
import re
import sys

from sources import ROOT

sys.path.append(f"{ROOT}/docs/reference/generator")
import package  # noqa: E402

STAMP = re.compile(r"\n<!-- made from (\w+), text (\w+) -->\n$")


def sources_of(root):
    with open(f"{root}/cmake/public_headers.cmake", encoding="utf-8") as listed:
        headers = re.findall(r"include/anneal/(\S+\.h)\b", listed.read())
    return sorted([f"{root}/{path}" for path in headers] + glob.glob(f"{root}/docs/reference/generator/*.py"))


def stamp_of(root):
    """A hash of the sources of the pages."""
    made = hashlib.sha256()
    for path in sources_of(root):
        with open(path, "rb") as source:
            content = source.read()
        made.update(f"{path[len(root):]} {len(content)}\n".encode() + content)
    for module in ("anneal", "anneal.torch"):  # signatures and docstrings: what functions do is not on the pages
        made.update(repr(package.read_package(root, module)).encode())
    return made.hexdigest()[:16]


def stamped(text, stamp):
    return f"{text}\n<!-- made from {stamp}, text {hashlib.sha256(text.encode()).hexdigest()[:16]} -->\n"


def problems_of(root):
    stamp, problems = stamp_of(root), []
    pages = sorted(glob.glob(f"{root}/docs/reference/*.md"))
    if not pages:
        return ["docs/reference has no pages: run `make reference`"]
    for path in pages:
        with open(path, encoding="utf-8") as page:
            text = page.read()
        name = path[len(root) + 1:]
        found = STAMP.search(text)
        if not found or stamped(text[: found.start()], found.group(1)) != text:
            problems.append(f"{name}: edited by hand: change the header or the docstring, and run `make reference`")
        elif found.group(1) != stamp:
            problems.append(f"{name}: a public header or a docstring changed: run `make reference`")
    return problems


def main():
    problems = problems_of(ROOT)
    for problem in problems:
        print(problem)
    print(f"reference: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
