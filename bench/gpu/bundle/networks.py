"""Whole networks: latency, time on the device, copies and each step's time, beside PyTorch on the same card.

Networks are made on the spot and built by as many processes as there are cores but two; then one after another is
timed. Ours in int8 stand beside PyTorch in f16, which has no int8 networks on a GPU.
"""

import json
import re
import sys

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
SECONDS_OF_TORCH = 60


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
        ended = setting.run([setting.root / "bin" / "anneal", "build", "-q", setting.work / f"{name}.{dtype}.onnx",
                             "--fp16", "--shapes", inputs[name].format(n=batch), "--target", target,
                             "-o", engine_of(setting, case)], min(SECONDS_OF_BUILD, end.left()))
        if not ended.ok and not (ended.timed_out and end.left() <= 0):
            errors[case] = f"building: {ended.error()}"

    in_parallel(write, sorted({case[:2] for case in cases}), setting.jobs)
    in_parallel(build, cases, setting.jobs)
    return errors


def engine_of(setting, case):
    return setting.work / "{}.{}.b{}.engine".format(*case)


def bench(setting, end, case):
    """What `anneal bench` says of one engine."""
    answer = setting.work / "bench.json"
    answer.unlink(missing_ok=True)
    target = "emulated" if setting.emulated else setting.device
    ended = setting.run([setting.root / "bin" / "anneal", "bench", engine_of(setting, case), "--target", target,
                         "--profile", "--json", answer, "--warmup", "2", "--duration", 0.1 if setting.few else SECONDS],
                        min(SECONDS_OF_BENCH, end.left()))
    report = record_files.read_json(answer)
    if report is None or not ended.ok:
        return {"error": ended.error()}
    profile = report.get("profile", [])
    copies = sum(step["microseconds"] for step in profile if step["kernel"] == "transfer")
    on_cpu = [step for step in profile if step["kernel"].startswith("cpu.")]
    steps = sum(step["microseconds"] for step in profile)
    return {"latency_ms": report["latency_milliseconds"], "per_second": report["inferences_per_second"],
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
    inputs = FEW_INPUTS if setting.few else INPUTS
    cases = [(name, dtype, batch) for name in inputs for dtype in TYPES
             for batch in (BATCHES if not setting.few else (1,))]
    left = [case for case in cases if "{}.{}.b{}".format(*case) not in record.items]
    record.set("method", "ours: `anneal bench` on an engine of one batch size, f32 inputs and outputs in host memory, "
               "copies included in the latency; the profile times single launches, so that device_ms is an upper "
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
    # PyTorch's times of a network come right behind ours, so that a run that is cut can compare some.
    for name in inputs:
        for case in left:
            if case[0] != name or end.left() <= 0:
                continue
            item = {"error": errors[case]} if case in errors else bench(setting, end, case)
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
    torch_times(setting, record, end, FEW_INPUTS if setting.few else INPUTS, True)
    return None
