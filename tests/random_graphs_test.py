#!/usr/bin/env python3
"""Random graphs against ONNX Runtime: random_graphs_test.py PROGRAM [COUNT [FIRST [KIND]]]

PROGRAM (build/release/tests/bin/random_graphs) streams each graph with its inputs and the results of the project's
reference kernels; the same program compares the engines with these. Graphs that differ are left in build/random-graphs.
Where ONNX Runtime differs, ONNX's own evaluator decides in f64: a graph fails unless the reference kernels are right.
"""

import collections
import pathlib
import re
import struct
import subprocess
import sys

import numpy
import onnx
import onnx.defs
import onnx.helper
import onnx.numpy_helper
import onnx.reference
import onnxruntime

FAILED = pathlib.Path("build/random-graphs")

# Graphs that ONNX Runtime refuses, where nothing is compared: it has no kernel for the types, or it
# loses the result of two Casts that bodies read.
REFUSED = re.compile(r"NOT_IMPLEMENTED|Could not find an implementation|Missing Input")


def is_refused(model, text):
    """Also by ONNX's shape inference, which counts windows of ceil_mode that begin in the padding at the end. The kernels do not."""
    pools = [node for node in onnx.load_from_string(model).graph.node if node.op_type in ("MaxPool", "AveragePool", "LpPool")]
    rounds_up = any(each.name == "ceil_mode" and each.i for node in pools for each in node.attribute)
    return REFUSED.search(text) or ("ShapeInferenceError" in text and rounds_up)


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


def widen(graph, opset):
    """All floats of a graph become f64."""
    f32, f64 = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE

    def widen_tensor(tensor):
        if tensor.data_type == f32:
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(numpy.float64), tensor.name))

    def widen_type(proto):
        for part in (proto.tensor_type, proto.sequence_type.elem_type.tensor_type, proto.optional_type.elem_type.tensor_type):
            if part.elem_type == f32:
                part.elem_type = f64

    for tensor in graph.initializer:
        widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        widen_type(value.type)
    for node in graph.node:
        for each in node.attribute:
            if each.type == onnx.AttributeProto.GRAPH:
                widen(each.g, opset)
            elif each.type == onnx.AttributeProto.TENSOR:
                widen_tensor(each.t)
            elif each.name in ("to", "dtype", "stash_type") and each.i == f32:
                each.i = f64
        if "stash_type" in onnx.defs.get_schema(node.op_type, opset).attributes and not any(each.name == "stash_type" for each in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("stash_type", f64))


def exact_results(model, inputs):
    """Of one run, in f64, by ONNX's evaluator; none where it lacks an operator."""
    proto = onnx.load_from_string(model)
    try:
        widen(proto.graph, proto.opset_import[0].version)
        arrays = {each.name: onnx.numpy_helper.to_array(each) for each in inputs}
        wide = {name: array.astype(numpy.float64) if array.dtype == numpy.float32 else array for name, array in arrays.items()}
        results = [numpy.asarray(each) for each in onnx.reference.ReferenceEvaluator(proto).run(None, wide)]
    except Exception as error:  # it has many types of them
        print(f"f64 does not decide: {error}")
        return []
    return [each.astype(numpy.float32) if each.dtype == numpy.float64 else each for each in results]


def onnx_runtime(model):
    """A function from inputs to results."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, {each.name: onnx.numpy_helper.to_array(each) for each in inputs})


def judge(model, runs, peer):
    """What differs from the peer: as two lists, failures and results of the peer that f64 refutes."""
    failed, refuted = [], []
    for run, (inputs, outputs) in enumerate(runs):
        exact = None
        for at, ((proto, allowed), got) in enumerate(zip(outputs, peer(inputs))):
            want = onnx.numpy_helper.to_array(proto)
            text = difference(want, got, allowed)
            if not text:
                continue
            if exact is None:
                exact = exact_results(model, inputs)
            is_right = at < len(exact) and not difference(want, exact[at], allowed)
            (refuted if is_right else failed).append(f"output {proto.name} of run {run}: {text}")
    return failed, refuted


def main(program, count="20000", first="0", kind=""):
    command = [program, "--count", count, "--first", first] + (["--kind", kind] if kind else [])
    agreed, peer_faults, refused, failures = 0, 0, collections.Counter(), []
    with subprocess.Popen(command + ["--stream"], stdout=subprocess.PIPE) as stream:
        for seed, kind, model, runs in records(stream.stdout):
            try:
                failed, refuted = judge(model, runs, onnx_runtime(model))
            except Exception as error:  # onnxruntime has many types of them
                text = str(error).strip().splitlines()[0]
                if is_refused(model, text):
                    refused[re.sub(r".*(Could not find.*?)\(.*", r"\1", text)[:100]] += 1
                    continue
                failed = ["ONNX Runtime refuses it: " + text]
            if failed:
                failures.append(seed)
                print(f"{kind} {seed}: {failed[0]}", flush=True)
                FAILED.mkdir(parents=True, exist_ok=True)
                (FAILED / f"{kind}_{seed}.onnx").write_bytes(model)
            elif refuted:
                peer_faults += 1
                print(f"{kind} {seed}: {refuted[0]}; f64 agrees with the first", flush=True)
            else:
                agreed += 1
    print(f"{agreed} of {count} graphs agree with ONNX Runtime, {len(failures)} differ, it refuses {sum(refused.values())}")
    print(f"in {peer_faults} graphs ONNX Runtime is wrong by f64", flush=True)
    engines = subprocess.run(command + ["--thorough"]).returncode
    return 1 if failures or engines or stream.returncode else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
