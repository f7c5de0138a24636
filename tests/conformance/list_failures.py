#!/usr/bin/env python3
"""Writes a known-failures file from the results of `anneal check --json FILE`.

    anneal check CASES --json results.json; list_failures.py results.json > NAME.tsv

Read the difference before committing it: a line that is new is a case that used to pass.
"""

import json
import re
import sys


def reason(text):
    """The model's path and the machine's folders say nothing about why."""
    text = re.sub(r"\S*\.onnx: ", "", text.strip())
    return text.removeprefix("the model needs what is not supported: ")


def main(path):
    with open(path) as file:
        cases = json.load(file)["cases"]
    for case in sorted(cases, key=lambda case: case["name"]):
        if case["status"] != "passed":
            print(case["name"], reason(case["reason"]), sep="\t")


if __name__ == "__main__":
    main(sys.argv[1])
