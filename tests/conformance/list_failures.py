#!/usr/bin/env python3
"""Writes a known-failures file from the results of `anneal check --json FILE`.

    anneal check CASES --json results.json; list_failures.py results.json [LIST...] > NAME.tsv

Cases that a LIST has already are left out: those of newest_suite.tsv from emulated.tsv.
Read the difference before committing it: a line that is new is a case that used to pass.
"""

import json
import re
import sys


def reason(text):
    """The model's path and the machine's folders say nothing about why."""
    text = re.sub(r"\S*\.onnx: ", "", text.strip())
    text = re.sub(r"^target \S+: some layers would fall back to the CPU, which is not allowed:\s*", "", text)
    return text.removeprefix("the model needs what is not supported: ")


def main(path, lists):
    with open(path) as file:
        cases = json.load(file)["cases"]
    known = set()
    for name in lists:
        with open(name) as file:
            known.update(line.split("\t")[0] for line in file)
    for case in sorted(cases, key=lambda case: case["name"]):
        if case["status"] != "passed" and case["name"] not in known:
            print(case["name"], reason(case["reason"]), sep="\t")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
