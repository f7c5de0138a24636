#!/usr/bin/env python3
"""Weights of 256 MB that a model holds in other forms are computed once, while building: f16 with a Cast, 8 bits with a scale
per column or per block, 4 bits, f32 with a factor, and what transposes, cuts and joins them.

    large_weights_test.py ANNEAL [SIDE]      SIDE: rows and columns of a weight, 4096

Checks the numbers against NumPy, that the engine has no step besides the products, and that --max-memory names its limit.
Exit status 77 where onnx or numpy is not installed.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(missing)
    sys.exit(77)

BLOCK = 32


class Model:
    """Products of one input by weights; `expected` has what they give."""

    def __init__(self, side, random):
        self.side, self.random = side, random
        self.nodes, self.weights, self.outputs, self.expected = [], [], [], {}
        self.x = random.standard_normal((2, side)).astype(np.float32)

    def weight(self, name, values):
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def product(self, name, weight, values):
        self.gives(self.node("MatMul", ["x", weight], name), values)

    def gives(self, name, values):
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, values.shape[1]]))
        self.expected[name] = self.x.astype(np.float64) @ values.astype(np.float64)

    def integers(self):
        return self.random.integers(-128, 128, (self.side, self.side), dtype=np.int8)

    def scales(self, *shape):
        return (self.random.random(shape) * 0.01 + 0.001).astype(np.float32)

    def half(self):
        values = (self.random.standard_normal((self.side, self.side)) * 0.02).astype(np.float16)
        self.node("Cast", [self.weight("half", values)], "half_f32", to=TensorProto.FLOAT)
        self.product("of_half", "half_f32", values)

    def columns(self):
        integers, scales = self.integers(), self.scales(self.side)
        self.node("DequantizeLinear", [self.weight("ints", integers), self.weight("scales", scales)], "columns_f32", axis=0)
        self.node("Transpose", ["columns_f32"], "columns_t", perm=[1, 0])
        self.product("of_columns", "columns_t", (integers * scales[:, None]).T)

    def blocks(self):
        integers, scales = self.integers(), self.scales(self.side // BLOCK, self.side)
        inputs = [self.weight("block_ints", integers), self.weight("block_scales", scales)]
        self.node("DequantizeLinear", inputs, "blocks_f32", axis=0, block_size=BLOCK)
        half = self.side // 2
        bounds = [self.weight(name, np.array([value])) for name, value in [("0", 0), ("half_side", half), ("side", self.side)]]
        self.node("Slice", ["blocks_f32", bounds[1], bounds[2], bounds[0]], "lower")
        self.node("Slice", ["blocks_f32", bounds[0], bounds[1], bounds[0]], "upper")
        self.node("Concat", ["lower", "upper"], "swapped", axis=0)
        values = integers * np.repeat(scales, BLOCK, axis=0)
        self.product("of_blocks", "swapped", np.concatenate([values[half:], values[:half]]))

    def four_bits(self):
        codes = self.random.integers(0, 16, (self.side, self.side), dtype=np.uint8)
        packed = (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(self.side, self.side // BLOCK, BLOCK // 2)
        scales = self.scales(self.side, self.side // BLOCK)
        self.node("MatMulNBits", ["x", self.weight("codes", packed), self.weight("code_scales", scales.reshape(-1))], "of_codes",
                  domain="com.microsoft", K=self.side, N=self.side, bits=4, block_size=BLOCK)
        self.gives("of_codes", ((codes.astype(np.float32) - 8) * np.repeat(scales, BLOCK, axis=1)).T)

    def save(self, path):
        graph = helper.make_graph(self.nodes, "large_weights",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", self.side])],
                                  self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = 10
        path.write_bytes(model.SerializeToString())


# Products that read integers: of_columns and of_codes.
KEPT = 2


def wrong_steps(anneal, engine):
    report = subprocess.run([anneal, "inspect", engine, "--json"], check=True, capture_output=True).stdout
    steps = json.loads(report)["plans"][0]["steps"]
    wrong = [f"step {step['name']} is {step['op']}" for step in steps if not step["op"].startswith("MatMul")]
    kept = sum(step["kernel"] == "cpu.matmul.quantized_weights" for step in steps)
    return wrong + ([f"{kept} products read integers, {KEPT} can"] if kept != KEPT else [])


def wrong_numbers(anneal, engine, folder, model):
    np.save(folder / "x.npy", model.x)
    subprocess.run([anneal, "run", engine, "--input", f"x={folder}/x.npy", "--save", folder / "out"], check=True,
                   capture_output=True)
    wrong = []
    for name, want in model.expected.items():
        got = np.load(folder / "out" / f"{name}.npy")
        error = np.abs(got - want).max() / np.abs(want).max()
        print(f"{name}: largest error {error:.1e} of the largest result")
        if not error < 1e-5:
            wrong.append(f"{name} is wrong by {error:.1e}")
    return wrong


def main(anneal, side="4096"):
    model = Model(int(side), np.random.default_rng(39))
    for make in (model.half, model.columns, model.blocks, model.four_bits):
        make()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, engine = folder / "model.onnx", folder / "model.engine"
        model.save(path)
        subprocess.run([anneal, "build", path, "-o", engine], check=True, capture_output=True)
        weights = engine.stat().st_size
        print(f"model of {path.stat().st_size / 1e6:.0f} MB, engine of {weights / 1e6:.0f} MB")
        failures = wrong_steps(anneal, engine) + wrong_numbers(anneal, engine, folder, model)
        limit = weights // 2
        limited = subprocess.run([anneal, "build", path, "-o", engine, "--max-memory", str(limit)], capture_output=True, text=True)
        if limited.returncode == 0 or str(limit) not in limited.stderr:
            failures.append(f"--max-memory {limit}: status {limited.returncode}, {limited.stderr}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
