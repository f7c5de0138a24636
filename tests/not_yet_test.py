#!/usr/bin/env python3
"""Each "not yet" of the pages is missing: not_yet_test.py ANNEAL.

Every line of README.md and docs/ that says "not yet" has an entry here, with what would exist if it were false: a flag of the
command, or a name in a public header or in the Python package. docs/status.md is about work, not about features.
"""

import glob
import re
import subprocess
import sys

from sources import ROOT

COMMANDS = ("build", "run", "bench", "calibrate", "tune", "eval", "inspect", "compare", "check")
# A part of the line: regular expressions of which none may occur in the help of any command, or in the interface.
MISSING = {
    "`quantize_dynamic`": [r"quantize_dynamic", r"\bdynamic_quantization\b"],
    "`RunOptions.terminate`": [r"\bterminate\b", r"cancel_run", r"void cancel\("],
    "`PrePostProcessor`": [r"[Pp]re_?process"],
    "`--layerOutputTypes`": [r"--layer-output"],
    "`--allowWeightStreaming --sparsity`": [r"--weight-streaming", r"--sparsity"],
    "`--versionCompatible`": [r"--version-compatible"],
    "`--noDataTransfers`": [r"--no-data-transfers"],
    "`--exportTimes`": [r"--export-times"],
    "`IBuilder`": [r"class NetworkDefinition", r"add_layer\("],
}


def main(anneal):
    texts = [subprocess.run([anneal, command, "--help-all"], capture_output=True, text=True, check=True).stdout for command in COMMANDS]
    with open(f"{ROOT}/cmake/public_headers.cmake", encoding="utf-8") as listed:
        headers = re.findall(r"/anneal/([\w/]+\.h)\b", listed.read())
    for path in [f"{ROOT}/{header}" for header in headers] + glob.glob(f"{ROOT}/python/anneal/*.py"):
        with open(path, encoding="utf-8") as file:
            texts.append(file.read())
    assert len(texts) > 35, "the headers or the Python package were not found"
    problems, used = [], set()
    for path in [f"{ROOT}/README.md"] + sorted(glob.glob(f"{ROOT}/docs/*.md")):
        if path.endswith("status.md"):
            continue
        with open(path, encoding="utf-8") as page:
            for number, line in enumerate(page, 1):
                if "not yet" not in line.lower() or re.search(r'"not yet" means', line, re.I):
                    continue
                where = f"{path[len(ROOT) + 1:]}:{number}"
                found = [part for part in MISSING if part in line]
                if len(found) != 1:
                    problems.append(f"{where}: {len(found)} entries of tests/not_yet_test.py are about this line: {line.strip()}")
                used.update(found)
                problems += [f"{where}: not missing any more: {pattern} is there" for part in found for pattern in MISSING[part]
                             if any(re.search(pattern, text) for text in texts)]
    problems += [f"no page says \"not yet\" about {part}" for part in MISSING if part not in used]
    print(*problems, sep="\n")
    print(f"{len(used)} features that pages call missing")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
