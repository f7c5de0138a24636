#!/usr/bin/python3
"""Writes docs/reference/*.md from the public headers and from the docstrings of the Python package.

    make_reference.py            writes the pages
    make_reference.py --check    fails if a page is not what this would write

Needs python3-clang of Debian: `make reference` installs it. tests/check_reference.py finds pages that are out of date
without it, by the hash of all that they are made from, which is their last line.
"""

import argparse
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(f"{HERE}/../../..")
sys.path[:0] = [HERE, f"{ROOT}/tests"]

import headers  # noqa: E402
import package  # noqa: E402
import pages  # noqa: E402
from check_reference import stamp_of, stamped  # noqa: E402

# Names that say all that there is to say.
NEED_NO_COMMENT = {
    "core/dims.h": {"PerAxis", "rank", "size", "empty", "operator[]", "push_back", "begin", "end", "span", "filled"},
    "core/dtype.h": {"is_float", "is_half", "is_8bit", "is_signed_integer", "is_unsigned_integer", "is_integer"},
    "core/error.h": {"Error", "code"},
    "core/tensor.h": {"dtype", "dims", "count"},
    "core/tensor_view.h": {"ConstTensorView"},
    "engine/data/dataset.h": {"size"},
    "engine/onnx/onnx_model.h": {"OnnxModel"},
    "optimizer/calibration_table.h": {"kMostExponent"},
    "optimizer/precision.h": {"SharedTable", "allows", "allows_half"},
}


def undocumented(header):
    """The types and functions without a comment: of their own, or of the paragraph of declarations that they are in."""
    found = []

    def visit(symbols, scope):
        said = False
        for symbol in symbols:
            members = [member for member in symbol.members if member.comment]
            has_text = bool(symbol.comment) or len(members) * 2 >= len(symbol.members) > 0
            said = has_text or (said and symbol.is_in_paragraph)
            if not said and symbol.kind not in ("field", "enumerator"):
                found.append(scope + (symbol.name or "enum"))
            visit(symbol.members, f"{symbol.name}::")

    visit(header.symbols, "")
    return [name for name in found if name.split("::")[-1] not in NEED_NO_COMMENT.get(header.path, ())]


def made_pages():
    with open(f"{ROOT}/cmake/public_headers.cmake", encoding="utf-8") as listed:
        paths = re.findall(r"include/anneal/(\S+\.h)\b", listed.read())
    read = headers.read_headers(ROOT, [path for path in paths if path != pages.UMBRELLA])
    by_path = {header.path: header for header in read}
    made = pages.header_pages({p: h for p, h in by_path.items() if not headers.is_c(p)}, pages.CPP_PAGES, "cpp")
    made += pages.header_pages({p: h for p, h in by_path.items() if headers.is_c(p)}, pages.C_PAGES, "c")
    made.append(pages.python_page(package.read_package(ROOT), package.read_package(ROOT, "anneal.torch")))
    silent = [f"{header.path}: {name}" for header in read for name in undocumented(header)]
    return [pages.index_page(made), *made], silent


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true")
    arguments = options.parse_args()
    if headers.cindex is None:
        print("python3-clang is missing: `make reference` installs it", file=sys.stderr)
        return 77
    try:
        made, silent = made_pages()
    except pages.MissingSymbol as missing:
        print(f"make_reference.py: {missing}", file=sys.stderr)
        return 1
    stamp, stale = stamp_of(ROOT), []
    wanted = {page.path for page in made}
    for name in sorted(set(os.listdir(f"{ROOT}/docs/reference")) - wanted):
        if name.endswith(".md") and arguments.check:
            stale.append(name)
        elif name.endswith(".md"):
            os.remove(f"{ROOT}/docs/reference/{name}")
    for page in made:
        path = f"{ROOT}/docs/reference/{page.path}"
        text = stamped(page.text(), stamp)
        if arguments.check:
            present = ""
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    present = file.read()
            if present != text:
                stale.append(page.path)
        else:
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
    for each in silent:
        print(f"{each} has no comment: say what it is at the end of its line", file=sys.stderr)
    if stale:
        print(f"{', '.join(stale)} in docs/reference: run `make reference`", file=sys.stderr)
    return 1 if stale or silent else 0


if __name__ == "__main__":
    sys.exit(main())
