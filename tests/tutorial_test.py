#!/usr/bin/env python3
"""Runs the shell blocks of a page in a temporary folder, and compares what they print with the blocks of text after them.

    tutorial_test.py ANNEAL [PAGE]    PAGE: docs/tutorial.md
    tutorial_test.py --self-test      feeds wrong pages and fails if one passes

Every command must succeed. Each line of a text block must be a line of what the shell block before it printed; `...`
replaces anything.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def blocks(page):
    return re.findall(r"^```(sh|text)\n(.*?)^```$", page, re.M | re.S)


def run(page, anneal):
    """Faults of the page, and the number of shell blocks."""
    faults, printed, count = [], "", 0
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, PATH=f"{Path(anneal).resolve().parent}:{os.environ['PATH']}",
                           GLYPHS=str(ROOT / "samples/glyphs"), TMPDIR=folder)
        for kind, text in blocks(page):
            if kind == "sh":
                count += 1
                result = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text], cwd=folder, env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                printed = result.stdout
                if result.returncode != 0:
                    faults.append(f"status {result.returncode} of\n{text}{printed}")
                continue
            for line in text.splitlines():
                pattern = ".*".join(re.escape(part) for part in re.sub(r" +", " ", line).split("..."))
                if not re.search(f"^{pattern}$", re.sub(r" +", " ", printed), re.M):
                    faults.append(f"no line is \"{line}\" in\n{printed}")
    return faults, count


def self_test():
    def page(shell, text):
        return f"```sh\n{shell}\n```\n\n```text\n{text}\n```\n"

    wrong = [name for name, text, expected in [
        ("a right page", page("echo one  two 3", "one two ..."), 0),
        ("a command that fails", page("false\necho x", "x"), 2),
        ("a command that fails in a pipe", "```sh\nfalse | cat\n```\n", 1),
        ("a missing line", page("echo one", "two"), 1),
        ("a part of a line", page("echo one two", "one"), 1),
        ("dots that are no pattern", page("echo 1x2", "1.2"), 1),
    ] if len(run(text, "/bin/true")[0]) != expected]
    return [f"{name} is not judged right" for name in wrong]


def main():
    if sys.argv[1] == "--self-test":
        faults, count = self_test(), 6
    else:
        faults, count = run((ROOT / (sys.argv[2] if len(sys.argv) > 2 else "docs/tutorial.md")).read_text(), sys.argv[1])
        if count == 0:
            faults = ["the page has no shell block"]
    print("\n".join(faults) or f"{count} blocks are right")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
