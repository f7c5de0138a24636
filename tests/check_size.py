#!/usr/bin/env python3
"""Checks sizes: no source file above 600 lines, no folder above 45 C++ files, public headers together under 1,915 lines."""

import collections
import os
import re
import sys

from sources import ROOT, sources

FILE_LIMIT = 600
FOLDER_LIMIT = 45
PUBLIC_LIMIT = 1915


def lines_of(path):
    with open(f"{ROOT}/{path}", encoding="utf-8") as source:
        return sum(1 for _ in source)


def main():
    sizes = {path: lines_of(path) for path in sources(".h", ".cc", ".cuh", ".py", ".cu")}
    with open(f"{ROOT}/cmake/public_headers.cmake", encoding="utf-8") as listed:
        public = re.findall(r"include/anneal/(\S+\.h)\b", listed.read())
    problems = [f"{path}: {count} lines, {FILE_LIMIT} allowed: split it by idea"
                for path, count in sizes.items() if count > FILE_LIMIT]
    folders = collections.Counter(os.path.dirname(path) for path in sizes if path.endswith((".h", ".cc")))
    problems += [f"{folder}: {count} C++ files, {FOLDER_LIMIT} allowed: divide it by families"
                 for folder, count in folders.items() if count > FOLDER_LIMIT]
    problems += [f"cmake/public_headers.cmake: there is no {path}" for path in public if path not in sizes]
    public_lines = sum(sizes.get(path, 0) for path in public)
    if public_lines >= PUBLIC_LIMIT:
        problems.append(f"public headers have {public_lines} lines, {PUBLIC_LIMIT} allowed")
    for message in problems:
        print(message)
    code = {path: count for path, count in sizes.items() if path.endswith((".h", ".cc", ".cuh", ".cu"))}
    tests = sum(count for path, count in code.items() if path.startswith("tests/"))
    longest = max(sizes, key=sizes.get)
    print(f"size: {len(code)} C++ files, {sum(code.values()) - tests} lines and {tests} of tests; "
          f"longest {longest} ({sizes[longest]}); {len(public)} public headers, {public_lines} lines")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
