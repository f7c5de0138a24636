#!/usr/bin/env python3
"""Whole networks on Anneal, ONNX Runtime and OpenVINO: speeds, outputs, memory and time to the first answer.

    make bench                                      # makes build/bench-venv and build/bench-nets, then runs this
    make bench FLAGS="--nets 'resnet|unet' --types int8 --threads 1"
    make bench FLAGS=--quick

Networks with an open batch are run with each of --batches, all others with the sizes of their data. All peers get the
same files, inputs and threads; in bf16, Anneal is built with --bf16 and OpenVINO is told to compute so, while ONNX
Runtime, which cannot on x86, computes in f32. A, B, C, D are measured in turn, A B C D A B C D ...; a round gives one
ratio of medians to each, and a speed is the median of all rounds: how many times as fast as ONNX Runtime. Columns:
Anneal (with oneDNN if it is installed), the spread of its rounds, `best` (its shortest run of all to ONNX Runtime's,
for a machine that is not quiet), `own` (without oneDNN), OpenVINO.

Outputs are compared with ONNX Runtime's first. Memory (`MB`) is the peak of the resident memory of a fresh process
during load and one inference, less what was resident before; `first` is the time from a cold file to the first answer
in that process, in ms. Rounds on a busy machine are repeated; what stays so is marked '*' and is no result. Where
Anneal is slower than ONNX Runtime, the steps that take most of its time follow. The exit status is 1 if outputs
differ.
"""

import argparse
import contextlib
import datetime
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import draw_speeds
from comparison import machine, models, outputs, results, table
from comparison.peers import Anneal, Other, PeerError, Work

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/images/cpu-speed.svg"
TIMINGS = ROOT / "build/bench.timings"
PEERS = ("anneal", "anneal_own", "onnxruntime", "openvino")
REPEATS = 2  # of a round that others disturbed


def make_peer(name, flags):
    if not name.startswith("anneal"):
        return Other(name)
    return Anneal(flags.anneal, has_onednn=name == "anneal", timings=TIMINGS if flags.time_kernels else None)


def load_all(peers, work, threads, stack):
    """Gives those that can run the case, what loading took or why they cannot, and their outputs."""
    ready, found, given = [], {}, {}
    for peer in peers:
        try:
            stack.callback(peer.close)
            found[peer.name] = peer.load(work, threads)
            given[peer.name] = peer.outputs()
            ready.append(peer)
        except PeerError as error:
            found[peer.name] = {"error": str(error)}
    return ready, found, given


def compare_outputs(given, found, bound):
    reference = given.pop(results.REFERENCE, None)
    for name, values in given.items():
        if reference is not None:
            difference = outputs.largest_difference(values, reference)
            found[name] |= {"difference": difference if math.isfinite(difference) else None,
                            "equal": difference <= bound}


def measure_in_turn(ready, rounds, seconds):
    """Each peer's measurements, round by round, and whether some were disturbed to the end."""
    kept, busy = {peer.name: [] for peer in ready}, False
    for _ in range(rounds):
        for _ in range(1 + REPEATS):
            measured = {peer.name: peer.measure(seconds) for peer in ready}
            disturbed = any(each["busy"] for each in measured.values())
            if not disturbed:
                break
        busy |= disturbed
        for name, each in measured.items():
            kept[name].append(each)
    return kept, busy


def measure_all(ready, found, flags):
    """Adds to what is found of each peer; gives whether the machine was busy."""
    measured, busy = measure_in_turn(ready, flags.rounds, flags.seconds)
    for name, rounds in measured.items():
        found[name] |= results.summary(rounds, measured.get(results.REFERENCE))
    for peer in ready:
        if isinstance(peer, Anneal) and found[peer.name].get("speed", 1) < 1:
            found[peer.name]["slowest_steps"] = peer.slowest_steps()
    return busy


def compare(work, threads, peers, flags):
    case, busy = work.case, False
    with contextlib.ExitStack() as stack:
        ready, found, given = load_all(peers, work, threads, stack)
        compare_outputs(given, found, outputs.CLOSE[case.type])
        try:
            busy = measure_all(ready, found, flags)
        except PeerError as error:
            found = {name: each | {"error": f"while all were measured: {error}"} for name, each in found.items()}
    return {"net": case.model.net, "folder": case.model.folder, "type": case.type, "threads": threads,
            "batch": case.batch, "file": case.model.path.name, "busy": busy, "peers": found}


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anneal", default=str(ROOT / "build/release/bin/anneal"))
    parser.add_argument("--nets", default="", help="only those whose name matches this regular expression")
    parser.add_argument("--types", default="f32,int8,bf16", help="(default: f32,int8,bf16; bf16 if the CPU has it)")
    parser.add_argument("--threads", type=numbers, help="of each peer (default: 1,2)")
    parser.add_argument("--batches", type=numbers, help="of networks with an open batch (default: 1,8)")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"(default: {','.join(PEERS)})")
    parser.add_argument("--rounds", type=int, help="how often all are measured in turn (default: 5)")
    parser.add_argument("--seconds", type=float, help="of one measurement (default: 0.4)")
    parser.add_argument("--quick", action="store_true", help="1 thread, batch 1, 2 rounds of 0.15 s, unless told")
    parser.add_argument("--time-kernels", action="store_true",
                        help="Anneal's are chosen by their times instead of by heuristics")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench.json", help="(default: build/bench.json)")
    parser.add_argument("--record", action="store_true",
                        help="to bench/results/cpu-DATE.json instead, and draw docs/images/cpu-speed.svg from it")
    parser.add_argument("models", nargs="+", help=".onnx files, or folders that hold some at any depth")
    flags = parser.parse_args()
    short, full = {"threads": [1], "batches": [1], "rounds": 2, "seconds": 0.15}, \
        {"threads": [1, 2], "batches": [1, 8], "rounds": 5, "seconds": 0.4}
    for name, value in (short if flags.quick else full).items():
        if getattr(flags, name) is None:
            setattr(flags, name, value)
    flags.types, flags.peers = flags.types.split(","), flags.peers.split(",")
    for given, known in ((flags.types, outputs.CLOSE), (flags.peers, PEERS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if "avx512_bf16" not in machine.instructions():
        flags.types = [each for each in flags.types if each != "bf16"]
    return flags


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True).stdout.strip()


def describe(flags):
    """What a report says beside its results."""
    version = re.search(r"\S+$", output_of(flags.anneal, "--version"))[0]
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": machine.cpu_name(), "cores": os.cpu_count(),
            "instructions": machine.instructions(),
            "versions": {"anneal": version, "commit": output_of("git", "describe", "--always", "--dirty"),
                         **{name: metadata.version(name) for name in ("onnxruntime", "openvino", "numpy")},
                         "python": platform.python_version(), "kernel": platform.release()},
            "command": " ".join(sys.argv), "time_kernels": flags.time_kernels,
            "rounds": flags.rounds, "seconds": flags.seconds}


def compare_all(cases, flags):
    """Prints a line for each result as it comes."""
    found = []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="anneal-bench-") as folder:
            work = Work(case, folder)
            for threads in flags.threads:
                found.append(compare(work, threads, [make_peer(name, flags) for name in flags.peers], flags))
                print("\n       ".join([table.line(found[-1]), *table.notes(found[-1])]), flush=True)
    return found


def save(report, flags):
    if not flags.record:
        return results.write(flags.json, report)
    results.write(ROOT / f"bench/results/cpu-{report['date'][:10]}{'-busy' if report['busy'] else ''}.json", report)
    if not report["busy"]:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(draw_speeds.picture(report))


def main():
    flags = parse_flags()
    cases = models.cases_of(models.read_models(flags.models, flags.nets), flags.types, flags.batches)
    report = describe(flags)
    versions = report["versions"]
    print(f"Anneal {versions['anneal']}, ONNX Runtime {versions['onnxruntime']}, OpenVINO {versions['openvino']}; "
          f"{report['machine']}, {report['cores']} cores; {flags.rounds} rounds of {flags.seconds} s\n{table.HEADER}",
          flush=True)
    report["results"] = compare_all(cases, flags)
    report["geometric_means"] = results.geometric_means(report["results"])
    report["busy"] = any(result["busy"] for result in report["results"])
    print("\n".join([*table.memory_lines(report["results"]), *table.mean_lines(report["geometric_means"])]))
    if report["busy"]:
        print("* the machine was BUSY: other processes took cores meanwhile, so these are no results")
    save(report, flags)
    ours = [peer for result in report["results"] for name, peer in result["peers"].items() if name.startswith("anneal")]
    return 0 if all(peer.get("equal", True) for peer in ours) else 1


if __name__ == "__main__":
    sys.exit(main())
