#!/usr/bin/env python3
"""Of the cases of the ONNX suite that pass on the CPU, the share that runs with every layer on the emulated GPU.

    emulated_share_test.py DATA

DATA has conformance_index.tsv. The lists beside this file say which cases do not. Fails if the share is below LEAST, if a
line of emulated.tsv names no case or one that fails on the CPU, or has no reason. Ends with 77 where the index is missing.
"""

import sys
from pathlib import Path

LEAST = 0.95
HERE = Path(__file__).parent


def rows(path):
    lines = path.read_text().splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]


def main(data):
    index = Path(data) / "conformance_index.tsv"
    if not index.exists():
        print(f"skipped: {index} is not there")
        return 77
    _, *cases = rows(index)
    # The emulated GPU would need hours for the networks of "light".
    names = {f"{folder}/{case}" for folder, case, *_ in cases if folder != "light"}
    on_cpu = names - {row[0] for row in rows(HERE / "newest_suite.tsv")}
    listed = rows(HERE / "emulated.tsv")
    wrong = [f"{row[0]}: no case that passes on the CPU" for row in listed if row[0] not in on_cpu]
    wrong += [f"{row[0]}: no reason" for row in listed if len(row) != 2 or not row[1].strip()]
    wrong += [f"{name}: two lines" for name in {row[0] for row in listed} if sum(row[0] == name for row in listed) > 1]
    share = 1 - len(listed) / len(on_cpu)
    print(f"{len(on_cpu) - len(listed)} of {len(on_cpu)} cases, {share:.1%}")
    if share < LEAST:
        wrong.append(f"fewer than {LEAST:.0%} of the cases run with every layer on the GPU")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
