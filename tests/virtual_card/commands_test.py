#!/usr/bin/env python3
"""The command with the virtual card: what it shows of kernels, and how it starts processes.

    commands_test.py ANNEAL    run it by on_virtual_card.py
"""

import json
import os
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from command_case import Command, field, model, node, tensor, value_info  # noqa: E402

PRODUCT = model([node("MatMul", ["x", "w"], ["y"], "product")], [value_info("x", [16, 64])], [value_info("y", [16, 32])],
                [tensor([64, 32], [i % 7 / 8 for i in range(64 * 32)]) + field(8, "w")])
TILE = "warps, "  # of "32x32x64, 2x2 warps, 4 stages"
TARGET = "sm_" + os.environ.get("ANNEAL_VIRTUAL_CARD_SM", "90")


class CommandsOnTheCard(Command):
    def test_the_tactic_of_each_step_is_shown(self):
        self.write("m.onnx", PRODUCT)
        self.anneal("build", "m.onnx", "--fp16", "--target", TARGET, "-o", "m.engine", "--no-self-check", says="")
        self.anneal("inspect", "m.engine", out=["cuda.matmul.mma", "tactic", TILE])
        self.anneal("inspect", "m.engine", "--plan", out=f'{TILE}')
        steps = json.loads(self.anneal("inspect", "m.engine", "--json"))["plans"][0]["steps"]
        tactics = {step["kernel"]: step.get("tactic") for step in steps}
        self.assertIn(TILE, tactics["cuda.matmul.mma"])
        self.assertIsNone(tactics["transfer"])

    def test_no_process_that_has_compiled_forks(self):
        self.write("case/model.onnx", PRODUCT)
        self.write("case/test_data_set_0/input_0.pb", tensor([16, 64], [0.0] * 16 * 64))
        self.write("case/test_data_set_0/output_0.pb", tensor([16, 32], [0.0] * 16 * 32))
        self.write("m.onnx", PRODUCT)
        no_cache = {"ANNEAL_CACHE_DIR": ""}  # everything is compiled
        self.anneal("check", "case", "case", "--target", f"{TARGET},cuda", "--jobs", 2, out="4 passed", env=no_cache)
        self.anneal("bench", "m.onnx", "--target", "cuda", "--iterations", 1, "--warmup", 0, env=no_cache)

    def test_ablation_counts_launches_and_has_times(self):
        self.write("m.onnx", PRODUCT)
        self.anneal("bench", "m.onnx", "--ablation", "--target", "cuda", "--fp16", "--iterations", 2, "--warmup", 1,
                    "--optimization-level", 0, "--json", "r.json", out=["launches", "latency", "f16"])
        rows = json.loads((self.at / "r.json").read_text())["rows"]
        self.assertEqual(rows[-1]["name"], "f16")
        for row in rows:
            self.assertGreaterEqual(row["launches"], 1, row["name"])
            self.assertGreater(row["latency_milliseconds"]["median"], 0, row["name"])
            self.assertIsNone(row["why_no_error"], row["name"])
            self.assertLess(row["relative_error"], 1e-2, row["name"])


class TunerOnTheCard(Command):
    """The times of the virtual card mean nothing; streams, graphs, events, caches and plans are as on a card."""

    BUILD = ("build", "m.onnx", "--fp16", "--no-self-check", "-q")

    def setUp(self):
        super().setUp()
        self.write("m.onnx", PRODUCT)

    def product_of(self, engine):
        steps = json.loads(self.anneal("inspect", engine, "--json"))["plans"][0]["steps"]
        return next(step for step in steps if "matmul" in step["kernel"])

    def agrees(self, engine):
        self.anneal("compare", engine, "m.onnx", "--target-a", "cuda", "--target-b", "reference", "--rtol", 1e-2, "--atol", 1e-2)

    def times_with(self, times, fastest):
        """The cache with one tactic at 0.01 us."""
        self.assertIn(fastest + "=", times)
        return re.sub(re.escape(fastest) + r"=\S+", fastest + "=0.01", times)

    def test_kernels_and_tactics_are_timed_and_recorded(self):
        self.anneal(*self.BUILD, "--target", "cuda", "--time-kernels", "--timing-cache", "times",
                    "--optimization-level", 2, "-o", "tuned.engine")
        times = (self.at / "times").read_text()
        self.assertTrue(times.startswith("anneal timings 2\n"))
        layer, = (line for line in times.splitlines() if "MatMul" in line)
        self.assertEqual(layer.count("cuda.matmul.mma{"), 2)
        self.assertEqual(layer.count("cuda.matmul.simt{"), 2)
        self.assertRegex(layer, rf"\t[^\t]*, {TARGET}, \d+ multiprocessors, driver \S+ for CUDA [^\t]*, NVRTC [^\t]*\t1\t")
        step = self.product_of("tuned.engine")
        self.assertEqual(step["library"], "Anneal")
        self.assertGreater(step["microseconds"], 0)
        self.assertIn("cuda.matmul.", step["runner_up"])
        self.anneal("inspect", "tuned.engine", out=["library", "runner-up", " us"])
        self.agrees("tuned.engine")
        # The cache gives the same bytes.
        self.anneal(*self.BUILD, "--target", "cuda", "--timing-cache", "times", "-o", "again.engine")
        self.assertEqual((self.at / "again.engine").read_bytes(), (self.at / "tuned.engine").read_bytes())
        self.assertEqual((self.at / "times").read_text(), times)

    def test_times_of_a_card_choose_elsewhere(self):
        self.anneal(*self.BUILD, "--target", TARGET, "-o", "plain.engine")
        self.anneal("time-kernels", "plain.engine", "-o", "times", "--optimization-level", 2, out=TARGET)
        times = (self.at / "times").read_text()
        heuristic = self.product_of("plain.engine")["tactic"]
        other, = set(re.findall(r"cuda\.matmul\.mma\{([^}]*)\}", times)) - {heuristic}
        self.write("times", self.times_with(times, f"cuda.matmul.mma{{{other}}}"))
        compiler = self.at / "compiler"  # without a driver
        compiler.mkdir()
        card = Path(os.environ["ANNEAL_CUDA_LIB_PATH"].split(":")[0])
        (compiler / "libnvrtc.so.13").symlink_to(card / "libnvrtc.so.13")
        no_card = {"ANNEAL_CUDA_LIB_PATH": str(compiler)}
        self.anneal(*self.BUILD, "--target", TARGET, "--timing-cache", "times", "-o", "elsewhere.engine", env=no_card)
        self.assertEqual(self.product_of("elsewhere.engine")["tactic"], other)
        self.anneal("inspect", "elsewhere.engine", "--decisions", out=[f"{other}}} 0.01 us", "; on "])
        self.agrees("elsewhere.engine")
        # The kernel without tensor cores, by the same cache and in the engine that has been built.
        self.write("times", self.times_with(times, re.search(r"cuda\.matmul\.simt\{[^}]*\}", times).group()))
        self.anneal("retune", "plain.engine", "-o", "retuned.engine", "--timing-cache", "times", "--optimization-level", 2,
                    out="1 of ")
        self.assertEqual(self.product_of("retuned.engine")["kernel"], "cuda.matmul.simt")
        self.agrees("retuned.engine")
        # Refit keeps kernel, tactic and decision, and level 0 ignores the cache.
        self.anneal("refit", "retuned.engine", "m.onnx", "-o", "refitted.engine")
        self.assertEqual(self.product_of("refitted.engine"), self.product_of("retuned.engine"))
        self.agrees("refitted.engine")
        self.anneal(*self.BUILD, "--target", TARGET, "--timing-cache", "times", "--optimization-level", 0, "-o", "zero.engine")
        self.assertEqual((self.at / "zero.engine").read_bytes(), (self.at / "plain.engine").read_bytes())


if __name__ == "__main__":
    unittest.main()
