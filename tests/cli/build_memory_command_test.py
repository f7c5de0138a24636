#!/usr/bin/env python3
"""The memory of builds: below 1.3 times the weights, in f32, 16 bits and integers.

    build_memory_command_test.py PATH_OF_ANNEAL
"""

import math
import os
import random
import struct
import subprocess
import unittest

from command_case import ANNEAL, F32, Command, field, model, node, tensor, value_info

WIDTH = 2048
LAYERS = 5
CHANNELS = 512
CONVOLUTIONS = 48
MOST = 1.3
# Numbers of which each tensor has others: a prime, so that rows differ.
NUMBERS = 65537


class Weights:
    """Initializers in the file "weights"."""

    def __init__(self, path, deviation):
        draw = random.Random(1)
        self.numbers = struct.pack(f"<{NUMBERS}f", *(draw.gauss(0, deviation) for _ in range(NUMBERS)))
        self.initializers = []
        self.file = open(path, "wb")

    def add(self, name, dims):
        entry = lambda key, value: field(13, field(1, key) + field(2, str(value)))
        size = 4 * math.prod(dims)
        self.initializers.append(b"".join(field(1, dim) for dim in dims) + field(2, F32) + field(8, name) + entry("location", "weights") +
                                 entry("offset", self.file.tell()) + entry("length", size) + field(14, 1))
        first = 4 * (len(self.initializers) * 101 % NUMBERS)
        whole, part = divmod(size - (len(self.numbers) - first), len(self.numbers))
        self.file.write(self.numbers[first:])
        for _ in range(whole):
            self.file.write(self.numbers)
        self.file.write(self.numbers[:part])
        return name

    def close(self):
        self.bytes = self.file.tell()
        self.file.close()


class BuildMemory(Command):

    def write_products(self):
        """Scaled inputs, products that share one input, and one by a transposed matrix: what passes would fold and merge."""
        weights, scales, nodes, value = Weights(self.at / "weights", WIDTH**-0.5), [], [], "x"
        for layer in range(LAYERS):
            scales.append(tensor([WIDTH], [1 + layer / 8] * WIDTH) + field(8, f"scale{layer}"))
            nodes.append(node("Mul", [value, f"scale{layer}"], [f"scaled{layer}"], f"mul{layer}"))
            for name in "qkv":
                matrix = weights.add(f"{name}{layer}", [WIDTH, WIDTH])
                nodes.append(node("MatMul", [f"scaled{layer}", matrix], [f"{name}{layer}.y"], f"{name}{layer}.p"))
            nodes.append(node("Add", [f"q{layer}.y", f"k{layer}.y"], [f"qk{layer}"], f"qk{layer}.p"))
            nodes.append(node("Add", [f"qk{layer}", f"v{layer}.y"], [f"qkv{layer}"], f"qkv{layer}.p"))
            nodes.append(node("Mul", [f"qkv{layer}", f"scale{layer}"], [f"again{layer}"], f"again{layer}.p"))
            nodes.append(node("Transpose", [weights.add(f"w{layer}", [WIDTH, WIDTH])], [f"w{layer}.t"], f"w{layer}.turned"))
            value = f"y{layer}"
            nodes.append(node("MatMul", [f"again{layer}", f"w{layer}.t"], [value], f"w{layer}.p"))
        weights.close()
        self.weight_bytes = weights.bytes
        self.write("m.onnx", model(nodes, [value_info("x", ["N", WIDTH])], [value_info(value, ["N", WIDTH])],
                                   [*scales, *weights.initializers]))

    def write_convolutions(self):
        """Convolutions of 3 x 3, whose weights kernels pack into up to four times their size."""
        weights, nodes, value = Weights(self.at / "weights", (9 * CHANNELS)**-0.5), [], "x"
        padded = field(5, field(1, "auto_pad") + field(4, "SAME_UPPER") + field(20, 3))
        for layer in range(CONVOLUTIONS):
            filters = weights.add(f"w{layer}", [CHANNELS, CHANNELS, 3, 3])
            nodes.append(node("Conv", [value, filters], [f"y{layer}"], f"conv{layer}") + padded)
            value = f"y{layer}"
        weights.close()
        self.weight_bytes = weights.bytes
        image = [1, CHANNELS, 8, 8]
        self.write("m.onnx", model(nodes, [value_info("x", image)], [value_info(value, image)], weights.initializers))

    def peak(self, *flags):
        """Bytes that the build had resident at most."""
        build = subprocess.Popen([ANNEAL, "build", "m.onnx", "-q", *flags], cwd=self.at, stderr=subprocess.PIPE, text=True)
        with build.stderr as stderr:
            said = stderr.read()
        _, status, usage = os.wait4(build.pid, 0)
        build.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual((build.returncode, said), (0, ""), flags)
        return usage.ru_maxrss * 1024

    def test_each_precision_holds_one_copy_of_the_weights(self):
        self.skip_if_freed_memory_is_kept()
        self.write_products()
        for flags in [(), ("--fp16",), ("--bf16",), ("--weight-format", "int8"), ("--weight-format", "int4")]:
            with self.subTest(flags=flags):
                self.assertLess(self.peak(*flags), MOST * self.weight_bytes)

    def test_convolutions_in_16_bits_hold_one_copy_of_the_weights(self):
        self.skip_if_freed_memory_is_kept()
        self.write_convolutions()
        self.assertLess(self.peak("--fp16"), MOST * self.weight_bytes)

    def test_a_pass_that_is_skipped_leaves_f32(self):
        self.write_products()
        for skipped, least, most in [((), 0, 0.8), (("keep_half_weights",), 1, 1.01), (("all",), 1, 1.01)]:
            with self.subTest(skipped=skipped):
                self.peak("--fp16", "-o", "e", *(("--skip-pass", *skipped) if skipped else ()))
                share = (self.at / "e").stat().st_size / self.weight_bytes
                self.assertTrue(least <= share <= most, share)


if __name__ == "__main__":
    unittest.main()
