#!/usr/bin/env python3
"""Whole models on Anneal and on ONNX Runtime: the ratio of their times, taken in turn on one machine.

    make bench                                      # makes build/bench-venv, then runs this
    make bench MODELS="a.onnx folder" FLAGS="--threads 2 --rounds 9"

Of each model both get the same input: the first test_data_set beside it, or random numbers with open
sizes 1. Outputs are compared first. Then A (Anneal) and B (ONNX Runtime) are measured in turn,
A B A B ..., with the same number of threads; a round gives one ratio of medians, and the result is
the median ratio of all rounds with its spread. What other processes took of the machine is measured
too: results of a busy machine are marked with '*' and are no results.

Both times are of one inference with inputs and outputs already in memory; that of ONNX Runtime holds
some microseconds of Python. Raw numbers go to bench/results/DATE-MACHINE.json, or to --json FILE.
"""

import argparse
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parent.parent
NUMPY_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
               "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(uint8)": "uint8", "tensor(int8)": "int8",
               "tensor(bool)": "bool"}
# The largest difference, as a share of the reference's largest magnitude, that is called equal.
CLOSE = {"float": 1e-3, "half": 2e-2, "quantized": 5e-2}
BUSY_CORES = 0.1  # of all cores, used by others


def models_in(path):
    path = Path(path)
    if path.is_file():
        return [path]
    found = sorted(path.rglob("*.onnx"))
    if not found:
        sys.exit(f"compare_onnxruntime.py: {path} holds no .onnx file")
    return found


def model_name(model):
    return model.parent.name if model.name == "model.onnx" else model.stem


def kind_of(model):
    proto = onnx.load(str(model), load_external_data=False)
    if any("Quantize" in node.op_type or "Integer" in node.op_type for node in proto.graph.node):
        return "quantized"
    half = onnx.TensorProto.FLOAT16
    return "half" if any(tensor.data_type == half for tensor in proto.graph.initializer) else "float"


def feeds_for(model, session):
    data = model.parent / "test_data_set_0"
    files = sorted(data.glob("input_*.pb"), key=lambda path: int(path.stem.split("_")[1]))
    inputs = session.get_inputs()
    if len(files) == len(inputs) and model.name == "model.onnx":
        return {each.name: numpy_helper.to_array(onnx.load_tensor(str(file))) for each, file in zip(inputs, files)}
    generator = numpy.random.default_rng(0)
    feeds = {}
    for each in inputs:
        shape = [size if isinstance(size, int) and size > 0 else 1 for size in each.shape]
        feeds[each.name] = generator.random(shape).astype(NUMPY_TYPES[each.type])
    return feeds


class Anneal:
    def __init__(self, command, model, feeds, threads, scratch):
        self.command, self.engine = command, str(scratch / "model.engine")
        self.threads, self.scratch = threads, scratch
        self.call("build", str(model), "-o", self.engine, "--quiet")
        self.inputs = []
        for i, (name, value) in enumerate(feeds.items()):
            numpy.save(scratch / f"input_{i}.npy", value)
            self.inputs += ["--input", f"{name}={scratch}/input_{i}.npy"]

    def call(self, *words):
        done = subprocess.run([self.command, *words], text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(" ".join(done.stderr.split()).removeprefix("anneal: error: "))
        return done.stdout

    def outputs(self):
        text = self.call("run", self.engine, *self.inputs, "--save", str(self.scratch / "out"), "--top", "0")
        return [numpy.load(path) for path in re.findall(r"^saved +(.*)$", text, re.MULTILINE)]

    def measure(self, seconds):
        report = self.scratch / "bench.json"
        self.call("bench", self.engine, *self.inputs, "--threads", str(self.threads), "--warmup", "100ms",
                  "--duration", str(seconds), "--json", str(report))
        found = json.loads(report.read_text())
        return {"median_ms": found["latency_milliseconds"]["median"], "p90_ms": found["latency_milliseconds"]["p90"],
                "runs": found["runs"], "other_cores": found["machine_load"]["other_cores"],
                "busy": found["machine_load"]["busy"]}


class OnnxRuntime:
    def __init__(self, session, feeds):
        self.session, self.feeds = session, feeds
        self.binding = session.io_binding()
        for name, value in feeds.items():
            self.binding.bind_cpu_input(name, numpy.ascontiguousarray(value))
        for output in session.get_outputs():
            self.binding.bind_output(output.name)

    def outputs(self):
        return self.session.run(None, self.feeds)

    def measure(self, seconds):
        end = time.perf_counter() + 0.1
        while time.perf_counter() < end:
            self.session.run_with_iobinding(self.binding)
        before, start, times = processor_time(), time.perf_counter(), []
        while len(times) < 3 or time.perf_counter() - start < seconds:
            begin = time.perf_counter()
            self.session.run_with_iobinding(self.binding)
            times.append(1e3 * (time.perf_counter() - begin))
        took, after = time.perf_counter() - start, processor_time()
        others = max(0.0, (after[0] - before[0]) - (after[1] - before[1])) / took
        times.sort()
        return {"median_ms": statistics.median(times), "p90_ms": times[math.ceil(0.9 * len(times)) - 1],
                "runs": len(times), "other_cores": others, "busy": others > BUSY_CORES * os.cpu_count()}


def processor_time():
    """Seconds that all processes, and this one, had of all cores."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    own = os.times()
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK"), own.user + own.system


def largest_difference(ours, theirs):
    """As a share of the largest magnitude; infinite if types, shapes or what is not finite differ."""
    if len(ours) != len(theirs):
        return math.inf
    worst = 0.0
    for a, b in zip(ours, theirs):
        b = numpy.asarray(b)
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


def compare(model, flags):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = flags.threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    feeds = feeds_for(model, session)
    with tempfile.TemporaryDirectory(prefix="anneal-bench-") as folder:
        ours = Anneal(flags.anneal, model, feeds, flags.threads, Path(folder))
        theirs = OnnxRuntime(session, feeds)
        kind = kind_of(model)
        difference = largest_difference(ours.outputs(), theirs.outputs())
        rounds = [{"anneal": ours.measure(flags.seconds), "onnxruntime": theirs.measure(flags.seconds)}
                  for _ in range(flags.rounds)]
    ratios = [each["anneal"]["median_ms"] / each["onnxruntime"]["median_ms"] for each in rounds]
    return {"anneal_ms": statistics.median(each["anneal"]["median_ms"] for each in rounds),
            "onnxruntime_ms": statistics.median(each["onnxruntime"]["median_ms"] for each in rounds),
            "ratio": statistics.median(ratios), "least_ratio": min(ratios), "largest_ratio": max(ratios),
            "difference": difference if math.isfinite(difference) else None, "equal": difference <= CLOSE[kind],
            "kind": kind, "busy": any(side["busy"] for each in rounds for side in each.values()), "rounds": rounds}


def cpu_name():
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def machine_kind():
    words = re.sub(r"\((R|TM)\)|processor|cpu", " ", cpu_name(), flags=re.IGNORECASE)
    return "-".join(re.findall(r"[a-z0-9]+", words.lower())[:4] + [f"{os.cpu_count()}cores"])


def row(name, result):
    if "error" in result:
        return f"{'-':>8}  {'-':>15}  {'-':>10}  {'-':>10}  {'-':>8}  {name}: {result['error'][:120]}"
    spread = f"{result['least_ratio']:.2f} to {result['largest_ratio']:.2f}"
    difference = "-" if result["difference"] is None else f"{result['difference']:.1e}"
    return (f"{result['ratio']:>7.2f}{'*' if result['busy'] else ' '}  {spread:>15}  {result['anneal_ms']:>10.3f}  "
            f"{result['onnxruntime_ms']:>10.3f}  {difference:>8}  {name}{'' if result['equal'] else ': OUTPUTS DIFFER'}")


def git_commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True, capture_output=True)
    return done.stdout.strip() or None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anneal", default=str(ROOT / "build/release/bin/anneal"))
    parser.add_argument("--threads", type=int, default=1, help="of both (default: 1)")
    parser.add_argument("--rounds", type=int, default=5, help="how often both are measured (default: 5)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of one measurement (default: 0.4)")
    parser.add_argument("--filter", default="", help="only models whose name matches this regular expression")
    parser.add_argument("--json", help="where the raw numbers go (default: bench/results/DATE-MACHINE.json)")
    parser.add_argument("models", nargs="+", help=".onnx files, or folders that hold some at any depth")
    flags = parser.parse_args()
    models = [model for path in flags.models for model in models_in(path) if re.search(flags.filter, model_name(model))]
    version = subprocess.run([flags.anneal, "--version"], text=True, capture_output=True, check=True).stdout.split()[-1]

    print(f"{version} against ONNX Runtime {onnxruntime.__version__}, {cpu_name()}, {os.cpu_count()} cores, "
          f"{flags.threads} thread(s) each, {flags.rounds} rounds of {flags.seconds} s")
    print(f"{'ratio':>7}   {'spread':>15}  {'Anneal ms':>10}  {'ORT ms':>10}  {'differs':>8}  model")
    results = {}
    for model in models:
        name = model_name(model)
        try:
            results[name] = compare(model, flags)
        except Exception as error:  # one model that cannot be run shall not end the others
            results[name] = {"error": " ".join(str(error).split())}
        print(row(name, results[name]), flush=True)

    measured = [each for each in results.values() if "ratio" in each]
    busy = any(each["busy"] for each in measured)
    if measured:
        mean = math.exp(statistics.fmean(math.log(each["ratio"]) for each in measured))
        print(f"{mean:7.2f}   geometric mean of {len(measured)} models; below 1 Anneal is faster")
    if busy:
        print("* the machine was BUSY: other processes took cores meanwhile, so these are no results")
    now = datetime.datetime.now(datetime.timezone.utc)
    name = f"{now:%Y-%m-%d}-{machine_kind()}-{flags.threads}t{'-busy' if busy else ''}.json"
    to = Path(flags.json) if flags.json else ROOT / "bench/results" / name
    to.write_text(json.dumps({
        "date": now.isoformat(timespec="seconds"), "machine": cpu_name(), "cores": os.cpu_count(), "busy": busy,
        "anneal": version, "commit": git_commit(), "onnxruntime": onnxruntime.__version__, "threads": flags.threads,
        "rounds": flags.rounds, "seconds": flags.seconds, "command": " ".join(sys.argv), "results": results,
    }, indent=1) + "\n")
    print(f"raw numbers: {to}")
    return 0 if all(each.get("equal") for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
