#!/usr/bin/env python3
"""The memory of builds: below 1.3 times the weights, in f32, 16 bits and integers.

    build_memory_command_test.py PATH_OF_ANNEAL
"""

import os
import random
import struct
import subprocess
import unittest

from command_case import ANNEAL, F32, Command, field, model, node, tensor, value_info

WIDTH = 2048
LAYERS = 5
MATRIX_BYTES = 4 * WIDTH * WIDTH
MOST = 1.3
# Numbers of which each matrix has others: a prime, so that rows differ.
NUMBERS = 65537


def matrix(name, offset):
    """An initializer in the file "weights"."""
    entry = lambda key, value: field(13, field(1, key) + field(2, str(value)))
    return (field(1, WIDTH) + field(1, WIDTH) + field(2, F32) + field(8, name) + entry("location", "weights") +
            entry("offset", offset) + entry("length", MATRIX_BYTES) + field(14, 1))


class BuildMemory(Command):
    """Scaled inputs, products that share one input, and one behind them: what passes would fold and merge."""

    def setUp(self):
        super().setUp()
        draw = random.Random(1)
        numbers = struct.pack(f"<{NUMBERS}f", *(draw.gauss(0, WIDTH**-0.5) for _ in range(NUMBERS)))
        nodes, weights, value = [], [], "x"
        with open(self.at / "weights", "wb") as data:
            for layer in range(LAYERS):
                weights.append(tensor([WIDTH], [1 + layer / 8] * WIDTH) + field(8, f"scale{layer}"))
                nodes.append(node("Mul", [value, f"scale{layer}"], [f"scaled{layer}"], f"mul{layer}"))
                for name in "qkv":
                    nodes.append(node("MatMul", [f"scaled{layer}", f"{name}{layer}"], [f"{name}{layer}.y"], f"{name}{layer}.p"))
                nodes.append(node("Add", [f"q{layer}.y", f"k{layer}.y"], [f"qk{layer}"], f"qk{layer}.p"))
                nodes.append(node("Add", [f"qk{layer}", f"v{layer}.y"], [f"qkv{layer}"], f"qkv{layer}.p"))
                nodes.append(node("Mul", [f"qkv{layer}", f"scale{layer}"], [f"again{layer}"], f"again{layer}.p"))
                nodes.append(node("MatMul", [f"again{layer}", f"w{layer}"], [f"y{layer}"], f"w{layer}.p"))
                value = f"y{layer}"
                for name in "qkvw":
                    weights.append(matrix(f"{name}{layer}", data.tell()))
                    first = 4 * (len(weights) * 101 % NUMBERS)
                    rest = MATRIX_BYTES - (len(numbers) - first)
                    whole, part = divmod(rest, len(numbers))
                    data.write(numbers[first:])
                    for _ in range(whole):
                        data.write(numbers)
                    data.write(numbers[:part])
            self.weight_bytes = data.tell()
        self.write("m.onnx", model(nodes, [value_info("x", ["N", WIDTH])], [value_info(value, ["N", WIDTH])], weights))

    def peak(self, *flags):
        """Bytes that the build had resident at most."""
        build = subprocess.Popen([ANNEAL, "build", "m.onnx", "-q", *flags], cwd=self.at)
        _, status, usage = os.wait4(build.pid, 0)
        build.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(build.returncode, 0, flags)
        return usage.ru_maxrss * 1024

    def test_each_precision_holds_one_copy_of_the_weights(self):
        self.skip_if_freed_memory_is_kept()
        for flags in [(), ("--fp16",), ("--bf16",), ("--weight-format", "int8"), ("--weight-format", "int4")]:
            with self.subTest(flags=flags):
                self.assertLess(self.peak(*flags), MOST * self.weight_bytes)

    def test_a_pass_that_is_skipped_leaves_f32(self):
        for skipped, least, most in [((), 0, 0.8), (("keep_half_weights",), 1, 1.01), (("all",), 1, 1.01)]:
            with self.subTest(skipped=skipped):
                self.peak("--fp16", "-o", "e", *(("--skip-pass", *skipped) if skipped else ()))
                share = (self.at / "e").stat().st_size / self.weight_bytes
                self.assertTrue(least <= share <= most, share)


if __name__ == "__main__":
    unittest.main()
