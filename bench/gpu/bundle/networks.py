"""Whole networks: compared with the CPU, then latency, time on the device, copies and each step's time, beside PyTorch on
the same card.

Networks are made on the spot and built by as many processes as there are cores; then the batch of one of each is compared
with the CPU, tensor by tensor, and one network after another is timed. Ours in int8 stand beside PyTorch in f16, which has no int8 networks on a GPU.
"""

import json
import os
import re
import sys
import threading

import bundle.facts as facts
import bundle.record as record_files
from bundle.setting import in_parallel

INPUTS = {
    "resnet50": "input:{n}x3x224x224", "bert_base": "hidden:{n}x128x768,mask:{n}x1x1x128",
    "vit_b16": "input:{n}x3x224x224", "yolo": "input:{n}x3x640x640", "unet": "input:{n}x3x256x256",
}
FEW_INPUTS = {"unet": "input:{n}x3x16x16", "bert_base": "hidden:{n}x8x32,mask:{n}x1x1x8"}
BATCHES, TYPES = (1, 8, 64), ("f16", "int8")
COMPARED = {"f16": "ours in f16 with PyTorch in f16", "int8": "ours in int8 with PyTorch in f16"}
SECONDS = 0.6  # of runs that are timed
SECONDS_OF_IMPORT = 30  # a first import reads a cold disk
SECONDS_OF_BUILD = 100
SECONDS_OF_BENCH = 30
SECONDS_OF_COMPARING = 30
MOST_COMPARED_AT_ONCE = 4  # the CPU's side takes several threads
# Rounding that grows from step to step is no fault of a step.
INHERITED = "given B's tensors, each step of A agrees"
SECONDS_OF_TORCH = 60


def inputs_of(setting):
    """The networks of this run, by name with their inputs."""
    inputs = FEW_INPUTS if setting.few else INPUTS
    return {name: shapes for name, shapes in inputs.items() if setting.networks is None or name in setting.networks}


def onnx_python(setting, end):
    """A Python that has onnx and numpy, or None."""
    for program in dict.fromkeys((sys.executable, "/usr/bin/python3", "python3")):
        if setting.run([program, "-c", "import onnx, numpy"], min(SECONDS_OF_IMPORT, end.left())).ok:
            return program
    return None


def target_of(setting):
    """What to build for: sm_90, emulated. None if no card says what it is."""
    if setting.emulated:
        return "emulated"
    devices = facts.devices(setting)[0].get("devices", {})
    device = setting.device if ":" in setting.device else setting.device + ":0"
    found = re.search(r"sm_\d+", str(devices.get(device, {}).get("what", "")))
    return found[0] if found else None


def build_all(setting, end, cases, inputs, python, target):
    """Engines of all cases; gives the errors by case."""
    errors, few = {}, ["--few"] if setting.few else []

    def write(model):
        name, dtype = model
        if (setting.work / f"{name}.{dtype}.onnx").exists():
            return
        flags = few + (["--int8"] if dtype == "int8" else [])
        ended = setting.run([python, *facts.python_module(setting, "made_networks", name,
                                                          setting.work / f"{name}.{dtype}.onnx", *flags)[1:]],
                            min(SECONDS_OF_BUILD, end.left()), env=facts.python_environment(setting))
        if not ended.ok and not (ended.timed_out and end.left() <= 0):
            errors.update({case: f"writing the network: {ended.error()}" for case in cases if case[:2] == model})

    def build(case):
        name, dtype, batch = case
        if case in errors or end.left() <= 0:
            return
        targets = f"{target},cpu" if batch == 1 else target  # the batch of one is compared
        ended = setting.run([setting.root / "bin" / "anneal", "build", "-q", setting.work / f"{name}.{dtype}.onnx",
                             "--fp16", "--no-self-check", "--shapes", inputs[name].format(n=batch), "--target", targets,
                             "-o", engine_of(setting, case)], min(SECONDS_OF_BUILD, end.left()))
        if not ended.ok and not (ended.timed_out and end.left() <= 0):
            errors[case] = f"building: {ended.error()}"

    cores = len(os.sched_getaffinity(0))  # nothing is timed meanwhile
    in_parallel(write, sorted({case[:2] for case in cases}), cores)
    in_parallel(build, cases, cores)
    return errors


def engine_of(setting, case):
    return setting.work / "{}.{}.b{}.engine".format(*case)


def compare_with_cpu(setting, end, case):
    """What `anneal compare` says of the same engine on both; None if its time was cut."""
    answer = setting.work / "{}.{}.compare.json".format(*case)
    answer.unlink(missing_ok=True)
    target = "emulated" if setting.emulated else setting.device
    engine = engine_of(setting, case)
    ended = setting.run([setting.root / "bin" / "anneal", "compare", engine, engine, "--target-a", target, "--target-b",
                         "cpu", "--json", answer], min(SECONDS_OF_COMPARING, end.left()))
    if ended.timed_out and end.left() <= 0:
        return None
    return comparison(record_files.read_json(answer), ended)


def comparison(report, ended):
    """What a record keeps of a report of `anneal compare`."""
    if report is None:
        return {"error": ended.error()}
    differing = [each for each in report.get("tensors", []) if not each.get("agrees", True)]
    outputs = [each for each in report.get("tensors", []) if each.get("is_output")]
    item = {"seconds": round(ended.seconds, 2), "tensors": len(report.get("tensors", [])), "differing": differing[:20],
            "outputs": [{key: each.get(key) for key in ("name", "agrees", "max_abs_error", "sqnr_db", "cosine")}
                        for each in outputs]}
    if not ended.ok and INHERITED not in ended.output:
        item["error"] = ended.error()
    return item


def bench(setting, end, case, *flags):
    """What `anneal bench` says of one engine."""
    answer = setting.work / "bench.json"
    answer.unlink(missing_ok=True)
    target = "emulated" if setting.emulated else setting.device
    ended = setting.run([setting.root / "bin" / "anneal", "bench", engine_of(setting, case), "--target", target,
                         "--json", answer, "--warmup", "2", "--duration", 0.1 if setting.few else SECONDS, *flags],
                        min(SECONDS_OF_BENCH, end.left()))
    report = record_files.read_json(answer)
    return {"error": ended.error()} if report is None or not ended.ok else report


def times(setting, end, case):
    """The times of one engine; of a batch of one also with a thread that spins, as PyTorch's does."""
    report = bench(setting, end, case, "--profile")
    if "error" in report:
        return report
    spinning = bench(setting, end, case, "--spin") if case[2] == 1 and end.left() > 0 else {}
    profile = report.get("profile", [])
    copies = sum(step["microseconds"] for step in profile if step["kernel"] == "transfer")
    on_cpu = [step for step in profile if step["kernel"].startswith("cpu.")]
    steps = sum(step["microseconds"] for step in profile)
    spun = {key: spinning[name] for key, name in (("latency_spin_ms", "latency_milliseconds"), ("error", "error"))
            if name in spinning}
    return {**spun, "latency_ms": report["latency_milliseconds"], "per_second": report["inferences_per_second"],
            "memory_bytes": report.get("memory_bytes"), "steps": len(profile),
            "device_ms": (steps - copies - sum(step["microseconds"] for step in on_cpu)) / 1e3,
            "copies_ms": copies / 1e3, "cpu_steps_ms": sum(step["microseconds"] for step in on_cpu) / 1e3,
            "cpu_steps": len(on_cpu), "profile": profile}


def torch_times(setting, record, end, names, compiled):
    """A process for each network: latency and device time by batch, into items `NAME.torch.bN`."""
    mode = "torch_compile" if compiled else "torch"
    for name in names:
        batches = [batch for batch in (BATCHES if not setting.few else (1,))
                   if f"{name}.{mode}.b{batch}" not in record.items]
        if not batches or end.left() <= 0:
            continue

        def keep(text):
            try:
                line = json.loads(text)
            except ValueError:
                return
            if "batch" in line:
                record.add(f"{name}.{mode}.b{line.pop('batch')}", line)

        flags = (["--compile"] if compiled else []) + (["--few"] if setting.few else [])
        ended = setting.run(
            facts.python_module(setting, "torch_networks", name, facts.torch_device(setting),
                                ",".join(map(str, batches)), *flags),
            min(300 if compiled else SECONDS_OF_TORCH, end.left()), env=facts.python_environment(setting), on_line=keep)
        if not ended.ok and not (ended.timed_out and end.left() <= 0):
            for batch in batches:
                key = f"{name}.{mode}.b{batch}"
                if key not in record.items:
                    record.add(key, {"error": ended.error()})


def compare(record):
    """Ours beside PyTorch's, where both are there."""
    for key, item in record.items.items():
        name, dtype, batch = key.split(".")
        other = record.items.get(f"{name}.torch.{batch}", {})
        if dtype in TYPES and all(each.get("latency_ms", {}).get("median") for each in (item, other)):
            item["compared"] = COMPARED[dtype]
            item["latency_over_torch"] = item["latency_ms"]["median"] / other["latency_ms"]["median"]
            item["device_over_torch"] = item["device_ms"] / other["device_ms"] if other.get("device_ms") else None


def run(setting, record, end):
    inputs = inputs_of(setting)
    cases = [(name, dtype, batch) for name in inputs for dtype in TYPES
             for batch in (BATCHES if not setting.few else (1,))]
    left = [case for case in cases if "{}.{}.b{}".format(*case) not in record.items]
    record.set("method", "ours: `anneal bench` on an engine of one batch size, f32 inputs and outputs in host memory, "
               "copies included in the latency; latency_spin_ms: with --spin; the profile times single launches, so that device_ms is an upper "
               "bound. PyTorch: eager modules in f16, channels last, in a CUDA graph; device_ms is the graph alone, "
               "the latency has the copies of the same inputs and outputs through pinned memory.")
    python, target, why_not = onnx_python(setting, end), target_of(setting), None
    if left and (python is None or target is None):
        why_not = "no Python here has onnx and numpy, which write the networks" if python is None else \
            f"{setting.device} does not say its architecture"
        record.set("ours", why_not)
        left = []
    errors = build_all(setting, end, left, inputs, python, target)
    record.set("built_after_seconds", record.elapsed())
    if facts.no_torch():
        record.set("torch", facts.no_torch())
    lock = threading.Lock()

    def compare_one(case):
        key = "{}.{}.compared".format(*case[:2])
        if key in record.items or end.left() <= 0:
            return
        item = {"error": errors[case]} if case in errors else compare_with_cpu(setting, end, case)
        if item is not None:
            with lock:
                record.add(key, item)

    # A time of a wrong result is none: all are compared before the first is timed.
    in_parallel(compare_one, [case for case in left if case[2] == 1], MOST_COMPARED_AT_ONCE)
    record.set("compared_after_seconds", record.elapsed())
    # PyTorch's times of a network come right behind ours, so that a run that is cut can compare some.
    for name in inputs:
        for case in left:
            if case[0] != name or end.left() <= 0:
                continue
            item = {"error": errors[case]} if case in errors else times(setting, end, case)
            if end.left() > 0 or "error" not in item:
                record.add("{}.{}.b{}".format(*case), item)
            engine_of(setting, case).unlink(missing_ok=True)
        if not facts.no_torch():
            torch_times(setting, record, end, [name], False)
        compare(record)
    return why_not


def run_compiled(setting, record, end):
    """torch.compile takes minutes, so it is a command of its own."""
    if setting.emulated:
        return "what torch.compile makes for a CPU says nothing of a card"
    if facts.no_torch():
        return facts.no_torch()
    torch_times(setting, record, end, inputs_of(setting), True)
    return None
