#!/usr/bin/env python3
"""What two runs of the bundle gave, case by case: of two GPUs, or of a GPU and the virtual card.

    compare_results.py A B [--all]    folders with the JSON files of run.py

Compared are op cases (passed or failed, kernels, bits of the results), tests, prebuilt engines, and networks against the CPU. Times are
not compared. Results of a kernel may have other bits for the reasons of bundle/bits.py: these are counted, and --all lists them. All
other differences are listed. The exit status is 1 if there is one, 2 if no case was compared.
"""

import argparse
import collections
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import bundle.record as record  # noqa: E402


def parts_of(folder):
    """Of a folder of results: its parts by name."""
    values = [record.read_json(path) for path in sorted(Path(folder).glob("*.json"))]
    return {value["part"]: value for value in values if isinstance(value, dict) and value.get("format") == record.FORMAT}


def text_of(error):
    return " ".join(str(error).split())[:200]


def wrong_steps(item):
    """Of a comparison with the CPU: the tensors that differ although the steps before were given the CPU's."""
    return sorted(each["name"] for each in item.get("differing", ()) if not each.get("agrees_alone", False))


def differences(name, a, b):
    """Of one item that both have: sentences on what differs, and (kernel, reason) of other bits that have a reason."""
    found, reasons = [], []
    if ("error" in a) != ("error" in b):
        found.append(f"{name}: fails in {'A' if 'error' in a else 'B'} alone: {text_of(a.get('error', b.get('error')))}")
        return found, reasons
    if "kernels" in a and set(a["kernels"]) != set(b.get("kernels", {})):
        found.append(f"{name}: kernels {sorted(a['kernels'])} and {sorted(b.get('kernels', {}))}")
    digests = {side: each["digests"] for side, each in (("A", a), ("B", b)) if "digests" in each}
    for key in sorted(set(digests.get("A", {})) & set(digests.get("B", {}))):
        if digests["A"][key] != digests["B"][key]:
            kernel, _, reason = key.partition(": ")
            if reason:
                reasons.append((kernel, reason))
            else:
                found.append(f"{name}: {kernel} gives other bits, for no known reason")
    if "differing" in a and (wrong := [wrong_steps(each) for each in (a, b)])[0] != wrong[1]:
        found.append(f"{name}: tensors that differ from the CPU's are {wrong[0]} and {wrong[1]}")
    return found, reasons


def compare(a, b):
    """Of two folders' parts: sentences, reasons with the cases that they are of, and by part how many items both have."""
    sentences, reasons, both = [], collections.defaultdict(list), collections.Counter()
    for part in sorted(set(a) & set(b)):
        for name in a[part]["items"]:
            if name not in b[part]["items"]:
                continue
            both[part] += 1
            found, why = differences(name, a[part]["items"][name], b[part]["items"][name])
            sentences += [f"{part}, {each}" for each in found]
            for each in why:
                reasons[each].append(name)
    return sentences, reasons, both


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("a")
    arguments.add_argument("b")
    arguments.add_argument("--all", action="store_true", help="list the cases whose bits differ with a reason")
    given = arguments.parse_args()
    a, b = parts_of(given.a), parts_of(given.b)
    for side, parts in (("A", a), ("B", b)):
        print(f"{side}: {', '.join(sorted({str(part.get('card')) for part in parts.values()})) or 'nothing'}")
    sentences, reasons, both = compare(a, b)
    for part, count in sorted(both.items()):
        only = [sum(1 for name in one[part]["items"] if name not in other[part]["items"]) for one, other in ((a, b), (b, a))]
        is_same_code = a[part]["code"]["digest"] == b[part]["code"]["digest"]
        print(f"{part}: {count} items in both, {only[0]} in A alone, {only[1]} in B alone" + ("" if is_same_code else ", of other programs"))
    for (kernel, reason), cases in sorted(reasons.items()):
        print(f"{kernel}: other bits in {len(cases)} cases, {reason}" + (f": {', '.join(cases)}" if given.all else ""))
    for sentence in sentences:
        print(sentence)
    print(f"{len(sentences)} differences without a reason")
    return 2 if not both else int(bool(sentences))


if __name__ == "__main__":
    sys.exit(main())
