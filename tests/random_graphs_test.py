#!/usr/bin/env python3
"""Random graphs against ONNX Runtime: random_graphs_test.py PROGRAM [COUNT [FIRST [KIND]]]

PROGRAM (build/release/tests/bin/random_graphs) streams each graph with its inputs and the results of the project's
reference kernels; the same program compares the engines with these. Graphs that differ are left in build/random-graphs.
"""

import collections
import pathlib
import re
import struct
import subprocess
import sys

import numpy
import onnx
import onnx.numpy_helper
import onnxruntime

FAILED = pathlib.Path("build/random-graphs")

# Graphs that ONNX Runtime refuses, where nothing is compared: it has no kernel for the types, or it
# loses the result of two Casts that bodies read.
REFUSED = re.compile(r"NOT_IMPLEMENTED|Could not find an implementation|Missing Input")


def records(stream):
    def number():
        data = stream.read(8)
        return struct.unpack("<Q", data)[0] if len(data) == 8 else None

    def text():
        return stream.read(number())

    def tensor():
        proto = onnx.TensorProto()
        proto.ParseFromString(text())
        return proto

    while (seed := number()) is not None:
        kind, model = text().decode(), text()
        runs = []
        for _ in range(number()):
            inputs = [tensor() for _ in range(number())]
            outputs = [(tensor(), float(text())) for _ in range(number())]
            runs.append((inputs, outputs))
        yield seed, kind, model, runs


def difference(want, got, allowed):
    """Of two results; "" if they agree."""
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{want.dtype}{list(want.shape)} instead of {got.dtype}{list(got.shape)}"
    if want.size == 0:
        return ""
    a, b = want.astype(numpy.float64), got.astype(numpy.float64)
    with numpy.errstate(invalid="ignore"):
        wrong = ~((numpy.abs(a - b) <= allowed) | (a == b) | (numpy.isnan(a) & numpy.isnan(b)))
    if not wrong.any():
        return ""
    at = numpy.argmax(wrong)
    return f"{a.flat[at]} instead of {b.flat[at]} at {at} of {a.size} ({wrong.sum()} differ by more than {allowed:.3g})"


def judge(model, runs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for run, (inputs, outputs) in enumerate(runs):
        got = session.run(None, {each.name: onnx.numpy_helper.to_array(each) for each in inputs})
        for (proto, allowed), result in zip(outputs, got):
            text = difference(onnx.numpy_helper.to_array(proto), result, allowed)
            if text:
                return f"output {proto.name} of run {run}: {text}"
    return ""


def main(program, count="20000", first="0", kind=""):
    command = [program, "--count", count, "--first", first] + (["--kind", kind] if kind else [])
    agreed, refused, failures = 0, collections.Counter(), []
    with subprocess.Popen(command + ["--stream"], stdout=subprocess.PIPE) as stream:
        for seed, kind, model, runs in records(stream.stdout):
            try:
                text = judge(model, runs)
            except Exception as error:  # onnxruntime has many types of them
                text = str(error).strip().splitlines()[0]
                if REFUSED.search(text):
                    refused[re.sub(r".*(Could not find.*?)\(.*", r"\1", text)[:100]] += 1
                    continue
                text = "ONNX Runtime refuses it: " + text
            if not text:
                agreed += 1
                continue
            failures.append(seed)
            print(f"{kind} {seed}: {text}")
            FAILED.mkdir(parents=True, exist_ok=True)
            (FAILED / f"{kind}_{seed}.onnx").write_bytes(model)
    print(f"{agreed} of {count} graphs agree with ONNX Runtime, {len(failures)} differ, it refuses {sum(refused.values())}")
    engines = subprocess.run(command + ["--thorough"]).returncode
    return 1 if failures or engines or stream.returncode else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
