#!/usr/bin/env python3
"""Whole models on Anneal and on ONNX Runtime, in turn, one thread each: the ratio of medians.

    pip install onnxruntime numpy
    bench/compare_onnxruntime.py [--anneal build/release/bin/anneal] [--rounds 5] MODEL.onnx...

Open sizes are 1. Times of both include one whole inference on random input and nothing else.
"""

import argparse
import json
import re
import statistics
import subprocess
import tempfile
import time

import numpy
import onnxruntime

NUMPY_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int64)": "int64",
               "tensor(int32)": "int32", "tensor(uint8)": "uint8", "tensor(int8)": "int8"}


def onnxruntime_session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    generator = numpy.random.default_rng(0)
    feeds = {}
    for each in session.get_inputs():
        shape = [size if isinstance(size, int) and size > 0 else 1 for size in each.shape]
        feeds[each.name] = generator.random(shape).astype(NUMPY_TYPES[each.type])
    return session, feeds


def onnxruntime_milliseconds(session, feeds, runs):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def anneal_milliseconds(anneal, engine, feeds, runs):
    shapes = ",".join(f"{name}:{'x'.join(map(str, value.shape))}" for name, value in feeds.items())
    inputs = [word for name in feeds for word in ("--input", f"{name}=random")]
    text = subprocess.run([anneal, "run", engine, *inputs, "--shapes", shapes, "--threads", "1", "--iterations", str(runs)],
                          check=True, text=True, stdout=subprocess.PIPE).stdout
    number, unit = re.search(r"latency\s+median ([\d.]+) (us|ms|s)\b", text).groups()
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


def compare(anneal, model, rounds, runs):
    with tempfile.NamedTemporaryFile(suffix=".engine") as engine:
        subprocess.run([anneal, "build", model, "-o", engine.name, "--quiet"], check=True)
        session, feeds = onnxruntime_session(model)
        pairs = [(anneal_milliseconds(anneal, engine.name, feeds, runs), onnxruntime_milliseconds(session, feeds, runs))
                 for _ in range(rounds)]
    return {"model": model, "anneal_ms": statistics.median(ours for ours, _ in pairs),
            "onnxruntime_ms": statistics.median(theirs for _, theirs in pairs),
            "ratio": statistics.median(ours / theirs for ours, theirs in pairs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anneal", default="build/release/bin/anneal")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", help="write the results there")
    parser.add_argument("models", nargs="+")
    flags = parser.parse_args()
    results = []
    for model in flags.models:
        result = compare(flags.anneal, model, flags.rounds, flags.runs)
        results.append(result)
        print(f"{result['ratio']:7.2f} x  {result['anneal_ms']:9.3f} ms against {result['onnxruntime_ms']:9.3f} ms  {model}")
    if flags.json:
        with open(flags.json, "w") as file:
            json.dump({"onnxruntime": onnxruntime.__version__, "threads": 1, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
