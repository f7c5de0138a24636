"""What measurements come to: speeds relative to ONNX Runtime, differences of outputs, means, and the table of them.

Speed is one convention everywhere: how many times as fast as ONNX Runtime, so 1.2 takes 1 / 1.2 of its time and above
1 is faster.
"""

import json
import math
import statistics

import numpy

REFERENCE = "onnxruntime"
# The largest difference, as a share of the reference's largest magnitude, that is called equal.
CLOSE = {"f32": 1e-3, "f16": 2e-2, "int8": 5e-2, "bf16": 5e-2}


def largest_difference(ours, theirs):
    """As a share of the largest magnitude; infinite if types, shapes or what is not finite differ."""
    if len(ours) != len(theirs):
        return math.inf
    worst = 0.0
    for a, b in zip(ours, theirs):
        if a.shape != b.shape or a.dtype != b.dtype:
            return math.inf
        a, b = a.astype("float64"), b.astype("float64")
        finite = numpy.isfinite(b)
        if not numpy.array_equal(finite, numpy.isfinite(a)):
            return math.inf
        if finite.any():
            scale = numpy.abs(b[finite]).max() or 1.0
            worst = max(worst, float(numpy.abs(a[finite] - b[finite]).max() / scale))
    return worst


def summary(rounds, reference):
    """Of one peer's rounds and ONNX Runtime's, which were measured in turn; `reference` may be None."""
    found = {"median_ms": statistics.median(each["median_ms"] for each in rounds),
             "rounds_ms": [each["median_ms"] for each in rounds]}
    if reference:
        speeds = [theirs["median_ms"] / ours["median_ms"] for ours, theirs in zip(rounds, reference)]
        found |= {"speed": statistics.median(speeds), "least_speed": min(speeds), "largest_speed": max(speeds)}
    return found


def geometric_means(results):
    """Of each folder, type, threads and batch: each peer's speed, and Anneal's relative to OpenVINO's."""
    groups = {}
    for result in results:
        key = (result["folder"], result["type"], result["threads"], result["batch"])
        for name, speed in speeds_of(result).items():
            groups.setdefault(key, {}).setdefault(name, []).append(speed)
    return [{"folder": folder, "type": kind, "threads": threads, "batch": batch,
             "nets": max(len(speeds) for speeds in groups[folder, kind, threads, batch].values()),
             "speeds": {name: math.exp(statistics.fmean(map(math.log, speeds)))
                        for name, speeds in groups[folder, kind, threads, batch].items()},
             "least": {name: min(speeds) for name, speeds in groups[folder, kind, threads, batch].items()}}
            for folder, kind, threads, batch in groups]


def speeds_of(result):
    """Of the peers whose outputs are right: a wrong answer has no speed."""
    peers = result["peers"]
    found = {name: peer["speed"] for name, peer in peers.items() if "speed" in peer and peer.get("equal")}
    if "anneal" in found and "openvino" in found:
        found["anneal_to_openvino"] = statistics.median(
            theirs / ours for ours, theirs in zip(peers["anneal"]["rounds_ms"], peers["openvino"]["rounds_ms"]))
    return found


# The table: one line for a result, peers that could not run in lines below.

HEADER = (f"{'Anneal':>7}{'spread':>13}{'own':>7}{'OpenV.':>7}  {'ms':>9}{'ORT ms':>9}  {'differs':>8}"
          f"{'MB':>6}{'ORT':>6}{'first':>7}{'ORT':>6}  type threads batch net")


def number(peer, field, scale=1, digits=2):
    value = peer.get(field)
    return "-" if value is None else f"{value / scale:.{digits}f}"


def line(result):
    peers = result["peers"]
    anneal, own, reference, openvino = (peers.get(name, {}) for name in ("anneal", "anneal_own", REFERENCE, "openvino"))
    spread = f"{anneal['least_speed']:.2f}-{anneal['largest_speed']:.2f}" if "speed" in anneal else "-"
    difference = f"{anneal['difference']:.1e}" if anneal.get("difference") is not None else "-"
    return (f"{number(anneal, 'speed'):>7}{'*' if result['busy'] else ' '}{spread:>12}{number(own, 'speed'):>7}"
            f"{number(openvino, 'speed'):>7}  {number(anneal, 'median_ms', digits=3):>9}"
            f"{number(reference, 'median_ms', digits=3):>9}  {difference:>8}"
            f"{number(anneal, 'memory_bytes', 1e6, 0):>6}{number(reference, 'memory_bytes', 1e6, 0):>6}"
            f"{number(anneal, 'first_answer_ms', digits=0):>7}{number(reference, 'first_answer_ms', digits=0):>6}"
            f"  {result['type']:>4} {result['threads']:>7} {result['batch'] or '-':>5} {result['net']}")


def notes(result):
    """What went wrong, and where the time goes if Anneal is slower."""
    for name, peer in result["peers"].items():
        if "error" in peer:
            yield f"{name}: {peer['error'][:200]}"
        elif peer.get("equal") is False:
            yield f"{name}: OUTPUTS DIFFER by {peer['difference']} of ONNX Runtime's largest"
    if steps := result["peers"].get("anneal", {}).get("slowest_steps"):
        yield "slower; most of its time: " + ", ".join(
            f"{step['step']} ({step['kernel']}) {100 * step['share']:.0f} %" for step in steps)


def mean_lines(means):
    yield "geometric means of speeds; above 1 is faster than ONNX Runtime (last column: Anneal to OpenVINO)"
    yield f"{'Anneal':>7}{'least':>7}{'own':>7}{'least':>7}{'OpenV.':>7}{'to OV':>7}  type threads batch of"
    for mean in means:
        cells = [mean[part].get(name) for name, part in (
            ("anneal", "speeds"), ("anneal", "least"), ("anneal_own", "speeds"), ("anneal_own", "least"),
            ("openvino", "speeds"), ("anneal_to_openvino", "speeds"))]
        yield ("".join(f"{cell:7.2f}" if cell else f"{'-':>7}" for cell in cells)
               + f"  {mean['type']:>4} {mean['threads']:>7} {mean['batch'] or '-':>5} {mean['nets']} of {mean['folder']}")


def write(path, report):
    """JSON with a line for each result."""
    results = ",\n  ".join(json.dumps(result) for result in report["results"])
    rest = json.dumps({name: value for name, value in report.items() if name != "results"}, indent=1)
    path.write_text(f'{rest[:-2]},\n "results": [\n  {results}\n ]\n}}\n')
