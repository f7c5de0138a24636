#!/usr/bin/env python3
"""Builds of a large transformer in f32: time against a copy of its weights on the same disk, and memory against the weights.

    large_build.py ANNEAL [--layers 14] [--width 2048] [--rounds 3] [--folder DIR] [FLAGS ...]

Weights are random and lie in a file beside the model; 14 layers have 705 million (2.8 GB). Each FLAGS is one text, as
"--fp16"; without any, builds in f32, f16 and integers of 4 bits are measured. In each round a copy (cp, then sync) and every
build write to a file that is not there. Prints the median of each, its ratio to the copy, and the peak of resident memory as
a share of the weights, mapped files included. Needs numpy and onnx.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

HEADS = 16


class Writer:
    """A model whose large initializers go to a file at once."""

    def __init__(self, folder):
        self.data = open(folder / "weights", "wb")
        self.random = np.random.default_rng(0)
        self.initializers, self.nodes = [], []

    def weights(self, name, *shape):
        numbers = self.random.standard_normal(shape, dtype=np.float32) * np.float32(shape[0] ** -0.5)
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in [("location", "weights"), ("offset", self.data.tell()), ("length", numbers.nbytes)]:
            tensor.external_data.add(key=key, value=str(value))
        numbers.tofile(self.data)
        self.initializers.append(tensor)
        return name

    def constant(self, name, values):
        self.initializers.append(onnx.numpy_helper.from_array(np.asarray(values), name))

    def node(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def product(self, x, name, *shape):
        y = self.node("MatMul", [x, self.weights(f"{name}.w", *shape)], f"{name}.product")
        return self.node("Add", [y, self.weights(f"{name}.b", shape[1])], name)

    def norm(self, x, name, width):
        return self.node("LayerNormalization", [x, self.weights(f"{name}.g", width), self.weights(f"{name}.s", width)], name)


def write_model(folder, layers, width):
    w = Writer(folder)
    w.constant("split", np.array([0, 0, HEADS, width // HEADS]))
    w.constant("joined", np.array([0, 0, width]))
    w.constant("factor", np.float32((width / HEADS) ** -0.5))
    x = "x"
    for layer in range(layers):
        at = f"layer{layer}"
        normed = w.norm(x, f"{at}.norm", width)
        heads = {}
        for name, order in [("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])]:
            rows = w.node("Reshape", [w.product(normed, f"{at}.{name}", width, width), "split"], f"{at}.{name}.split")
            heads[name] = w.node("Transpose", [rows], f"{at}.{name}.heads", perm=order)
        scores = w.node("Mul", [w.node("MatMul", [heads["q"], heads["k"]], f"{at}.scores"), "factor"], f"{at}.scaled")
        shares = w.node("Softmax", [scores], f"{at}.shares", axis=-1)
        seen = w.node("Transpose", [w.node("MatMul", [shares, heads["v"]], f"{at}.seen")], f"{at}.rows", perm=[0, 2, 1, 3])
        x = w.node("Add", [x, w.product(w.node("Reshape", [seen, "joined"], f"{at}.joined"), f"{at}.out", width, width)],
                   f"{at}.attended")
        inner = w.product(w.norm(x, f"{at}.norm2", width), f"{at}.inner", width, 4 * width)
        inner = w.node("Mul", [inner, w.node("Sigmoid", [inner], f"{at}.gate")], f"{at}.silu")
        x = w.node("Add", [x, w.product(inner, f"{at}.outer", 4 * width, width)], f"{at}.result")
    graph = helper.make_graph(w.nodes, "transformer",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens", width])],
                              [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)], w.initializers)
    w.data.close()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
    return (folder / "weights").stat().st_size


def timed(command, folder):
    """Seconds, and bytes that were resident at most."""
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"failed: {shlex.join(command)}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anneal", type=Path)
    parser.add_argument("--layers", type=int, default=14)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files go (default: the system's folder for such files)")
    options, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="anneal-large-build-", dir=options.folder) as scratch:
        folder = Path(scratch)
        weight_bytes = write_model(folder, options.layers, options.width)
        print(f"weights: {weight_bytes / 1e9:.2f} GB")
        commands = {"cp and sync": ["sh", "-c", "cp weights made && sync made"]}
        for each in flags or ["", "--fp16", "--weight-format int4"]:
            commands[f"build {each}".strip()] = [options.anneal.resolve(), "build", "model.onnx", "-q", "-o", "made", *each.split()]
        results = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                results[name].append(timed(command, folder))
                (folder / "made").unlink()
                os.sync()
        copy = statistics.median(seconds for seconds, _ in results["cp and sync"])
        print(f"{'':30} {'seconds':>8} {'min':>6} {'max':>6} {'/ copy':>7} {'peak / weights':>15}")
        for name, runs in results.items():
            seconds = [run[0] for run in runs]
            peak = max(run[1] for run in runs) / weight_bytes
            print(f"{name:30} {statistics.median(seconds):8.2f} {min(seconds):6.2f} {max(seconds):6.2f} "
                  f"{statistics.median(seconds) / copy:7.2f} {peak:15.2f}")


if __name__ == "__main__":
    main()
