#!/usr/bin/env python3
"""Op cases on the emulated device and on the virtual card: results are equal to the bit, or have a reason.

    op_results_test.py EMULATED.json... -- CARD.json...

The files are those of ANNEAL_OP_REPORT, the card's with ANNEAL_VIRTUAL_CARD_SUMS=in_order, so that tensor cores add as the emulated
device does. Every case of the card's files must be in the emulated device's. Functions such as exp are libdevice's on the card and the
host's on the emulated device: only layers that call one may differ.
"""

import collections
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench/gpu"))
sys.dont_write_bytecode = True
from bundle.bits import FUNCTIONS  # noqa: E402

SKIPPED = 77


def runs_of(paths):
    """By case and run: what the report says of it."""
    lines = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    return {(each["case"], run): result for each in lines for run, result in each["results"].items()}


def compare(emulated, card):
    """Problems; by kernel how many runs call a function and differ; how many runs are equal."""
    problems, reasons, equal = [], collections.Counter(), 0
    for (case, run), result in card.items():
        other = emulated.get((case, run))
        if other is None:
            problems.append(f"{case}, {run}: it did not run on the emulated device")
        elif result["digest"] == other["digest"]:
            equal += 1
        elif FUNCTIONS.search(result["layer"]):
            reasons[run.split(",")[0]] += 1
        else:
            problems.append(f"{case}, {run}: other bits for no known reason, of {result['layer']}")
    return problems, reasons, equal


def main(arguments):
    middle = arguments.index("--")
    if not all(Path(path).is_file() for path in arguments[middle + 1:]):
        print("nothing ran on the virtual card")
        return SKIPPED
    emulated, card = runs_of(arguments[:middle]), runs_of(arguments[middle + 1:])
    problems, reasons, equal = compare(emulated, card)
    for problem in problems:
        print(f"failed: {problem}", file=sys.stderr)
    print(f"{len(card)} runs of {len({case for case, _ in card})} cases, {equal} are equal, {len(problems)} problems; calls of functions differ: {dict(reasons)}")
    if equal < len(card) / 2:
        print("failed: fewer than half of the runs are equal", file=sys.stderr)
        return 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
