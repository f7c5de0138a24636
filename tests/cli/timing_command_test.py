#!/usr/bin/env python3
"""Runs the commands that choose kernels by their times as a user would.

Arguments: the command `anneal`, and optionally unittest's.
"""

import re
import unittest

import command_case
from command_case import field, model, node, tensor, value_info

CHANNELS = 16
# A convolution of each channel by itself, which more than one kernel can run.
DEPTHWISE = model([node("Conv", ["x", "w"], ["y"], "conv") + field(5, field(1, "group") + field(3, CHANNELS) + field(20, 2))],
                  [value_info("x", ["N", CHANNELS, 9, 7])], [value_info("y", ["N", CHANNELS, 7, 5])],
                  [tensor([CHANNELS, 1, 3, 3], [i % 7 - 3 for i in range(9 * CHANNELS)]) + field(8, "w")])


class TimingCommand(command_case.Command):

    def setUp(self):
        super().setUp()
        self.write("m.onnx", DEPTHWISE)

    def bytes_of(self, *flags):
        self.anneal("build", "m.onnx", "-o", "m.engine", "--time-threads", 1, *flags)
        return (self.at / "m.engine").read_bytes()

    def test_a_full_cache_gives_the_same_bytes(self):
        first = self.bytes_of("--time-kernels", "--timing-cache", "times")
        times = (self.at / "times").read_bytes()
        self.assertTrue(times.startswith(b"anneal timings 1\n"))
        self.assertEqual(self.bytes_of("--time-kernels", "--timing-cache", "times"), first)
        self.assertEqual(self.bytes_of("--timing-cache", "times"), first)
        self.assertEqual((self.at / "times").read_bytes(), times)
        self.assertEqual(self.files(), ["m.engine", "m.onnx", "times"])

    def test_the_cache_decides(self):
        self.bytes_of("--time-kernels", "--timing-cache", "times")
        times = (self.at / "times").read_text()
        for fastest in re.findall(r"(cpu\.conv\.\w+)=", times.splitlines()[-1]):
            self.write("times", re.sub(rf"{fastest}=\S+", f"{fastest}=0.01", times))
            self.bytes_of("--time-kernels", "--timing-cache", "times")
            self.anneal("inspect", "m.engine", "--decisions", out=[f"{fastest} 0.01 us", "with 1 thread, at the sizes"])
            self.anneal("inspect", "m.engine", "--plan", out=f" {fastest}")
            self.anneal("compare", "m.engine", "m.onnx", "--target-b", "reference")

    def test_without_times_nothing_is_timed(self):
        plain = self.bytes_of()
        self.bytes_of("--timing-cache", "none")
        self.anneal("inspect", "m.engine", "--decisions", out="is not timed: the timing cache has no times of it")
        self.assertEqual(self.bytes_of(), plain)
        self.assertEqual(self.files(), ["m.engine", "m.onnx"])

    def test_plans_for_gpus_alone_are_noted(self):
        for target, notes in ("sm_90", "note: --time-kernels measures kernels of the CPU"), ("sm_90,cpu", "for cpu"):
            told = self.anneal("build", "m.onnx", "--target", target, "--time-kernels", out=notes)
            self.assertEqual("note:" in told, target == "sm_90")

    def test_times_are_of_a_number_of_threads(self):
        self.bytes_of("--time-kernels", "--timing-cache", "times")
        self.anneal("bench", "m.onnx", "--timing-cache", "times", "--time-kernels", "--threads", 1, "--iterations", 1)
        self.assertEqual(len((self.at / "times").read_text().splitlines()), 3)
        self.anneal("build", "m.onnx", "--time-kernels", "--time-threads", 100000, status=2,
                    says="cannot be timed with 100000 threads")

    def test_refusals(self):
        engine = self.build(DEPTHWISE)
        self.anneal("bench", engine, "--time-kernels", status=2, says="--time-kernels")
        before = (self.at / engine).read_bytes()
        self.write("times", "anneal timings 1\nnonsense\n")
        self.anneal("build", "m.onnx", "--time-kernels", "--timing-cache", "times", status=2,
                    says=["timing cache times is damaged", "line 2", "remove the file"])
        self.anneal("build", "m.onnx", "--time-kernels", "--timing-cache", "no/folder", status=2, says="no/folder")
        self.assertEqual((self.at / engine).read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
