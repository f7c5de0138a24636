"""What measurements come to: speeds relative to ONNX Runtime, and their means.

Speed is one convention everywhere: how many times as fast as ONNX Runtime, so 1.2 takes 1 / 1.2 of its time and above
1 is faster.
"""

import json
import math
import statistics

REFERENCE = "onnxruntime"


def summary(rounds, reference):
    """Of one peer's rounds and ONNX Runtime's, which were measured in turn; `reference` may be None.

    The speed at best compares the shortest run of all with ONNX Runtime's: what a busy machine tells most reliably.
    """
    found = {"median_ms": statistics.median(each["median_ms"] for each in rounds),
             "least_ms": min(each["least_ms"] for each in rounds),
             "rounds_ms": [each["median_ms"] for each in rounds]}
    if reference:
        speeds = [theirs["median_ms"] / ours["median_ms"] for ours, theirs in zip(rounds, reference)]
        found |= {"speed": statistics.median(speeds), "least_speed": min(speeds), "largest_speed": max(speeds),
                  "speed_at_best": min(each["least_ms"] for each in reference) / found["least_ms"]}
    return found


def geometric_means(results):
    """Of each folder, type, threads and batch, by peer: the mean of the speeds and the least of them."""
    groups = {}
    for result in results:
        group = groups.setdefault(tuple(result[field] for field in ("folder", "type", "threads", "batch")), {})
        for name, speed in speeds_of(result).items():
            group.setdefault(name, []).append(speed)
    return [{"folder": folder, "type": kind, "threads": threads, "batch": batch,
             "nets": max(map(len, group.values()), default=0),
             "speeds": {name: math.exp(statistics.fmean(map(math.log, speeds))) for name, speeds in group.items()},
             "least": {name: min(speeds) for name, speeds in group.items()}}
            for (folder, kind, threads, batch), group in groups.items()]


def speeds_of(result):
    """Of the peers whose outputs are right (a wrong answer has no speed), and Anneal's relative to OpenVINO's."""
    peers = result["peers"]
    found = {name: peer["speed"] for name, peer in peers.items() if "speed" in peer and peer.get("equal")}
    found |= {name + "_at_best": peers[name]["speed_at_best"] for name in found}
    if "anneal" in found and "openvino" in found:
        found["anneal_to_openvino"] = statistics.median(
            theirs / ours for ours, theirs in zip(peers["anneal"]["rounds_ms"], peers["openvino"]["rounds_ms"]))
    return found


def write(path, report):
    """JSON with a line for each result."""
    results = ",\n  ".join(json.dumps(result) for result in report["results"])
    rest = json.dumps({name: value for name, value in report.items() if name != "results"}, indent=1)
    path.write_text(f'{rest[:-2]},\n "results": [\n  {results}\n ]\n}}\n')
