"""Whole networks with kernels chosen by their times, beside the same networks with the heuristic's kernels.

Each network is built with `anneal build --time-kernels` on the card, twice: the second build finds all times in the cache. Batches of
one network share the cache, which stays beside the results. The time of the first build is that of tuning. The engine is compared with one of
the heuristic's kernels, tensor by tensor.
"""

import json

import bundle.networks as networks
import bundle.record as record_files

SECONDS_OF_TUNING = 240
BATCHES, TYPES = (8, 1, 64), ("f16", "int8")  # what a short run should know first


def path_of_untuned(setting, case):
    return networks.engine_of(setting, case).with_suffix(".untuned")


def compare(setting, end, case):
    """The tuned engine with the one of the heuristic's kernels, on the card; None if its time was cut."""
    answer = setting.work / "compare.json"
    answer.unlink(missing_ok=True)
    ended = setting.run([setting.root / "bin" / "anneal", "compare", networks.engine_of(setting, case), path_of_untuned(setting, case),
                         "--target-a", setting.device, "--target-b", setting.device, "--json", answer],
                        min(networks.SECONDS_OF_COMPARING, end.left()))
    if ended.timed_out and end.left() <= 0:
        return None
    return networks.comparison(record_files.read_json(answer), ended)


def build(setting, end, case, cache):
    """Seconds, and the error if there is one."""
    name, dtype, batch = case
    inputs = networks.FEW_INPUTS if setting.few else networks.INPUTS
    ended = setting.run([setting.root / "bin" / "anneal", "build", "-q", setting.work / f"{name}.{dtype}.onnx", "--fp16",
                         "--no-self-check", "--shapes", inputs[name].format(n=batch), "--target", setting.device, "--time-kernels",
                         "--timing-cache", cache, "-o", networks.engine_of(setting, case)], min(SECONDS_OF_TUNING, end.left()))
    return ended.seconds, None if ended.ok else ended.error()


def kernels_of(setting, end, case):
    """How many steps of the engine run kernels of each library."""
    lines = []  # longer than the output that is kept
    ended = setting.run([setting.root / "bin" / "anneal", "inspect", networks.engine_of(setting, case), "--json"],
                        min(networks.SECONDS_OF_BENCH, end.left()), on_line=lines.append)
    try:
        plan = json.loads("\n".join(lines))["plans"][0]
    except (ValueError, KeyError, IndexError):
        return {"error": ended.error()}
    counts = {}
    for step in plan["steps"]:
        library = step["kernel"].split(".")[0]
        counts[library] = counts.get(library, 0) + 1
    return counts


def tuned(setting, end, case, cache):
    before = networks.bench(setting, end, case)
    if "error" in before:
        return before
    networks.engine_of(setting, case).rename(path_of_untuned(setting, case))
    seconds, error = build(setting, end, case, cache)
    if error is None:
        again, error = build(setting, end, case, cache)
    if error is not None:
        return {"error": f"tuning: {error}"}
    after = networks.bench(setting, end, case)
    if "error" in after:
        return after
    compared = compare(setting, end, case)
    ratio = after["latency_milliseconds"]["median"] / before["latency_milliseconds"]["median"]
    item = {"tuning_seconds": round(seconds, 2), "cached_build_seconds": round(again, 2),
            "latency_ms": after["latency_milliseconds"], "untuned_latency_ms": before["latency_milliseconds"],
            "tuned_over_untuned": ratio, "compared": compared, "steps_by_library": kernels_of(setting, end, case)}
    if compared is not None and "error" in compared:
        item["error"] = f"compared with the heuristic's kernels: {compared['error']}"
    return item


def run(setting, record, end):
    if setting.emulated:
        return "times of the emulated device are no card's"
    python, target = networks.onnx_python(setting, end), networks.target_of(setting)
    if python is None or target is None:
        return "no Python here has onnx and numpy, which write the networks" if python is None else \
            f"{setting.device} does not say its architecture"
    inputs = networks.inputs_of(setting)
    batches = BATCHES if not setting.few else (1,)
    cases = [(name, dtype, batch) for dtype in TYPES for batch in batches for name in inputs
             if "{}.{}.b{}".format(name, dtype, batch) not in record.items]
    record.set("method", "the median latency of `anneal bench`, with copies of f32 inputs and outputs, of an engine of the heuristic's "
               "kernels and of one of `anneal build --time-kernels`, built on this card; cached_build_seconds: of the same "
               "build again, with all times in the cache")
    for case in cases:
        if end.left() <= 0:
            break
        name, dtype, batch = case
        cache = setting.out / f"{name}.{dtype}.times"
        errors = networks.build_all(setting, end, [case], inputs, python, target)
        item = {"error": errors[case]} if case in errors else tuned(setting, end, case, cache)
        if end.left() > 0 or "error" not in item:
            record.add("{}.{}.b{}".format(*case), item)
        for engine in (networks.engine_of(setting, case), path_of_untuned(setting, case)):
            engine.unlink(missing_ok=True)
    return None
