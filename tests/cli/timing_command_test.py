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
        self.assertTrue(times.startswith(b"anneal timings 2\n"))
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

    def test_plans_for_gpus_without_a_card_are_noted(self):
        self.anneal("build", "m.onnx", "--target", "sm_90,cpu", "--time-kernels",
                    out=["for cpu", "note: kernels for sm_90 are not timed: ", "anneal time-kernels"])

    def test_the_level_and_the_limit(self):
        plain = self.bytes_of()
        self.bytes_of("--time-kernels", "--timing-cache", "times")
        self.assertEqual(self.bytes_of("--time-kernels", "--timing-cache", "times", "--optimization-level", 0), plain)
        self.anneal("build", "m.onnx", "--optimization-level", 6, status=2, says="from 0 to 5")
        self.bytes_of("--time-kernels", "--tune-seconds", 0.000001)
        self.anneal("inspect", "m.engine", "--decisions", out="is not timed: the limit of 1e-06 seconds is reached")

    def test_weights_in_a_file_of_their_own(self):
        self.bytes_of("--weights", "w")
        old = (self.at / "w").read_bytes()
        self.anneal("time-kernels", "m.engine", "-o", "times", status=2, says="--weights FILE")
        self.anneal("time-kernels", "m.engine", "-o", "times", "--weights", "w", "--time-threads", 1, out="cpu")
        self.assertEqual((self.at / "w").read_bytes(), old)
        times = (self.at / "times").read_text()
        plan = self.anneal("inspect", "m.engine", "--weights", "w", "--plan")
        other = next(kernel for kernel in re.findall(r"(cpu\.conv\.\w+)=", times.splitlines()[-1]) if f" {kernel}" not in plan)
        self.write("times", re.sub(rf"{other}=\S+", f"{other}=0.01", times))
        self.anneal("retune", "m.engine", "--timing-cache", "times", "--time-threads", 1, status=2, says="--weights FILE")
        self.anneal("retune", "m.engine", "-o", "n.engine", "--weights", "w", status=2, says="in place")
        self.anneal("retune", "m.engine", "--weights", "w", "--timing-cache", "times", "--time-threads", 1,
                    out="1 of 1 step")
        self.anneal("inspect", "m.engine", "--weights", "w", "--plan", out=f" {other}")
        self.assertNotEqual((self.at / "w").read_bytes(), old)
        self.anneal("compare", "m.engine", "m.onnx", "--weights", "w", "--target-b", "reference")
        self.assertEqual(self.files(), ["m.engine", "m.onnx", "times", "w"])

    def test_times_of_an_engine_are_measured_and_taken_elsewhere(self):
        self.bytes_of()
        self.anneal("time-kernels", "m.engine", "-o", "times", "--time-threads", 1, out="cpu")
        times = (self.at / "times").read_text()
        fastest = re.findall(r"(cpu\.conv\.\w+)=", times.splitlines()[-1])[-1]
        self.write("times", re.sub(rf"{fastest}=\S+", f"{fastest}=0.01", times))
        self.bytes_of("--timing-cache", "times")
        self.anneal("inspect", "m.engine", "--plan", out=f" {fastest}")
        self.anneal("inspect", "m.engine", out=["runner-up", "0.01 us"])
        # All that is known is not measured again.
        before = (self.at / "times").read_text()
        self.anneal("time-kernels", "m.engine", "-o", "times", "--time-threads", 1)
        self.assertEqual((self.at / "times").read_text(), before)
        self.anneal("time-kernels", "--merge", "times", "-o", "all", out="1 layer")
        self.assertEqual((self.at / "all").read_text(), before)

    def test_an_engine_is_retuned(self):
        self.bytes_of("--pack")
        self.anneal("time-kernels", "m.engine", "-o", "times", "--time-threads", 1)
        times = (self.at / "times").read_text()
        for fastest in re.findall(r"(cpu\.conv\.\w+)=", times.splitlines()[-1]):
            self.write("times", re.sub(rf"{fastest}=\S+", f"{fastest}=0.01", times))
            self.anneal("retune", "m.engine", "--timing-cache", "times", "--time-threads", 1, out="m.engine (replaced)")
            self.anneal("inspect", "m.engine", "--plan", out=f" {fastest}")
            self.anneal("compare", "m.engine", "m.onnx", "--target-b", "reference")
        # Another model's weights keep the choice.
        self.anneal("refit", "m.engine", "m.onnx", "-o", "refitted.engine")
        self.anneal("inspect", "refitted.engine", "--plan", out=f" {fastest}")

    def test_refusals_of_retune_and_time_kernels(self):
        self.anneal("build", "m.onnx", "--target", "sm_90", "-o", "gpu.engine", "--no-self-check")
        before = (self.at / "gpu.engine").read_bytes()
        self.anneal("retune", "gpu.engine", status=4, says=["no plan is for a device of this machine", "plan for sm_90"])
        self.anneal("time-kernels", "gpu.engine", "-o", "times", status=4, says="no plan is for a device")
        self.assertEqual((self.at / "gpu.engine").read_bytes(), before)
        self.anneal("time-kernels", "-o", "times", status=2, says="give an engine to time, or caches to --merge")
        self.anneal("time-kernels", "--merge", "none", "-o", "times", status=2, says="none has no times")
        self.anneal("build", "m.onnx", "-o", "apart.engine", "--weights", "w")
        self.anneal("retune", "apart.engine", status=2, says="weights of this engine are in a file of their own")

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
