#!/usr/bin/env python3
"""Weights of 256 MB that a model holds in other forms are computed once, while building: f16 with a Cast, 8 bits with a scale
per column or per block, codes of 8, 4 and 2 bits, and what transposes, cuts and joins them.

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


# QLoRA, appendix E.
NF4 = np.array([-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1], np.float32)


def minifloats(exponent_bits, fraction_bits, bias):
    """The number of each code, infinities and NaN left out."""
    codes = np.arange(1 << (1 + exponent_bits + fraction_bits))
    sign = np.where(codes >> (exponent_bits + fraction_bits), -1.0, 1.0)
    exponent = codes >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = codes & ((1 << fraction_bits) - 1)
    digits = np.where(exponent > 0, fraction + (1 << fraction_bits), fraction)
    return (sign * digits * 2.0 ** (np.maximum(exponent, 1) - bias - fraction_bits)).astype(np.float32)


E4M3, E2M1 = minifloats(4, 3, 7), minifloats(2, 1, 1)


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

    def codes(self, count, rows):
        return self.random.integers(0, count, (rows, self.side), dtype=np.uint8)

    def raw(self, name, element_type, codes):
        """An initializer of float8 or float4, from a code in each byte."""
        packed = codes if element_type == TensorProto.FLOAT8E4M3FN else codes[:, 0::2] | codes[:, 1::2] << 4
        self.weights.append(helper.make_tensor(name, element_type, codes.shape, packed.tobytes(), raw=True))
        return name

    def two_bits(self, rows):
        codes, zeros = self.codes(4, rows), self.random.integers(0, 4, (rows, self.side // BLOCK), dtype=np.uint8)

        def packed(numbers):
            return numbers[:, 0::4] | numbers[:, 1::4] << 2 | numbers[:, 2::4] << 4 | numbers[:, 3::4] << 6

        scales = self.scales(rows, self.side // BLOCK)
        inputs = [self.weight("pairs", packed(codes).reshape(rows, self.side // BLOCK, BLOCK // 4)),
                  self.weight("pair_scales", scales.reshape(-1)), self.weight("pair_zeros", packed(zeros).reshape(-1))]
        self.node("MatMulNBits", ["x", *inputs], "of_pairs", domain="com.microsoft", K=self.side, N=rows, bits=2, block_size=BLOCK)
        values = codes.astype(np.float32) - np.repeat(zeros, BLOCK, axis=1)
        self.gives("of_pairs", (values * np.repeat(scales, BLOCK, axis=1)).T)

    def normal_floats(self, rows):
        codes, scales = self.codes(16, rows), self.scales(rows, self.side // 64)
        inputs = [self.weight("nf4", (codes[:, 0::2] << 4 | codes[:, 1::2]).reshape(-1)), self.weight("nf4_scales", scales.reshape(-1))]
        self.node("MatMulBnb4", ["x", *inputs], "of_nf4", domain="com.microsoft", K=self.side, N=rows, block_size=64, quant_type=1)
        self.gives("of_nf4", (NF4[codes] * np.repeat(scales, 64, axis=1)).T)

    def float8(self, rows):
        codes, scales = self.codes(127, rows) | self.codes(2, rows) << 7, self.scales(rows)
        inputs = [self.raw("e4m3", TensorProto.FLOAT8E4M3FN, codes), self.weight("e4m3_scales", scales)]
        self.node("DequantizeLinear", inputs, "e4m3_f32", axis=0)
        self.node("Transpose", ["e4m3_f32"], "e4m3_t", perm=[1, 0])
        self.product("of_e4m3", "e4m3_t", (E4M3[codes] * scales[:, None]).T)

    def float4(self, rows):
        """NVFP4: scales of blocks of 16 are float8, with a scale of their own."""
        codes, scales, whole = self.codes(16, rows), self.codes(127, rows)[:, :self.side // 16], np.float32(0.001)
        factors = [self.raw("block_e4m3", TensorProto.FLOAT8E4M3FN, scales), self.weight("whole", np.array(whole))]
        self.node("DequantizeLinear", factors, "e2m1_scales")
        self.node("DequantizeLinear", [self.raw("e2m1", TensorProto.FLOAT4E2M1, codes), "e2m1_scales"], "e2m1_f32", axis=1,
                  block_size=16)
        self.node("Transpose", ["e2m1_f32"], "e2m1_t", perm=[1, 0])
        self.product("of_e2m1", "e2m1_t", (E2M1[codes] * np.repeat(E4M3[scales] * whole, 16, axis=1)).T)

    def save(self, path):
        graph = helper.make_graph(self.nodes, "large_weights",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", self.side])],
                                  self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = 11
        path.write_bytes(model.SerializeToString())


# Products that read integers or codes: all but of_half and of_blocks.
KEPT = 6
KERNELS = ("cpu.matmul.quantized_weights", "cpu.matmul.split_rows")


def wrong_steps(anneal, engine):
    report = subprocess.run([anneal, "inspect", engine, "--json"], check=True, capture_output=True).stdout
    steps = json.loads(report)["plans"][0]["steps"]
    wrong = [f"step {step['name']} is {step['op']}" for step in steps if not step["op"].startswith("MatMul")]
    kept = sum(step["kernel"] in KERNELS for step in steps)
    return wrong + ([f"{kept} products read integers or codes, {KEPT} can"] if kept != KEPT else [])


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
    for make in (model.two_bits, model.normal_floats, model.float8, model.float4):
        make(int(side) // 4)
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
