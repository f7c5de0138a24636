#!/usr/bin/env python3
"""Runs `anneal bench --ablation` as a user would: its rows, files and refusals.

Arguments: the command `anneal`, and optionally unittest's.
"""

import json
import shutil
import unittest
import xml.etree.ElementTree
from pathlib import Path

import command_case
from command_case import SCAN, field, model, node, tensor, value_info

GLYPHS = Path(__file__).resolve().parents[2] / "samples/glyphs/glyphs.onnx"
QUICK = ("--iterations", 3, "--warmup", 1, "--threads", 1)
PLAIN = ["nothing", "kernel choice", "constant folding and layout", "vertical fusion", "horizontal fusion",
         "concat and slice elimination"]


def conv(x, y):
    return node("Conv", [x, f"w_{y}"], [y], y), tensor([4, 4, 1, 1], [(i % 5 - 2) / (8 + ord(y) % 4) for i in range(16)]) + field(8, f"w_{y}")


# Two convolutions of one input, activations, and a concat of both, whose halves are added again.
LEFT, LEFT_WEIGHTS = conv("x", "l")
RIGHT, RIGHT_WEIGHTS = conv("x", "r")
LAST, LAST_WEIGHTS = conv("s", "z")
BLOCK = model(
    [LEFT, RIGHT, node("Relu", ["l"], ["lr"], "relu_l"), node("Relu", ["r"], ["rr"], "relu_r"),
     node("Concat", ["lr", "rr"], ["k"], "concat") + field(5, field(1, "axis") + field(3, 1) + field(20, 2)),
     node("Split", ["k"], ["a", "b"], "split") + field(5, field(1, "axis") + field(3, 1) + field(20, 2)),
     node("MaxPool", ["k"], ["p"], "pool") + field(5, field(1, "kernel_shape") + field(8, 2) + field(8, 2) + field(20, 7)),
     node("Add", ["a", "b"], ["s"], "add"), LAST],
    [value_info("x", ["N", 4, 8, 8])], [value_info("z", ["N", 4, 8, 8]), value_info("p", ["N", 8, 7, 7])],
    [LEFT_WEIGHTS, RIGHT_WEIGHTS, LAST_WEIGHTS])


class AblationCommand(command_case.Command):
    def rows(self, *arguments, says=""):
        self.anneal("bench", *arguments, "--ablation", *QUICK, "--json", "r.json", says=says)
        self.report = json.loads((self.at / "r.json").read_text())
        return {row["name"]: row for row in self.report["rows"]}

    def inspected(self, *arguments):
        """Steps and activations of what `anneal build` makes, as `anneal inspect` shows them."""
        self.anneal("build", *arguments, "-o", "whole.engine", says=())
        plan = json.loads(self.anneal("inspect", "whole.engine", "--json"))["plans"][0]
        return len(plan["steps"]), plan["activation_memory"]["arena_bytes"]

    def test_the_whole_is_what_build_makes(self):
        rows = self.rows(GLYPHS, "--timing-cache", "times", "--bf16", "--no-self-check")
        self.assertEqual(list(rows), PLAIN + ["kernel times", "bf16"])
        flags = self.report["flags_of_last_row"]
        self.assertEqual(flags, " --bf16 --no-self-check --timing-cache times --time-kernels")
        for name, build in (("concat and slice elimination", []), ("bf16", flags.split())):
            steps, arena = self.inspected(GLYPHS, *build)
            self.assertEqual((rows[name]["steps"], rows[name]["activation_bytes"]), (steps, arena), name)
        # A build without passes has the steps of the second row, whose kernels are chosen.
        steps, _ = self.inspected(GLYPHS, "--skip-pass", "all")
        self.assertLessEqual(steps, rows["kernel choice"]["steps"])

    def test_each_family_removes_what_it_is_for(self):
        self.write("m.onnx", BLOCK)
        rows = self.rows("m.onnx", "--shapes", "2x4x8x8", "--optimization-level", 0)
        steps = {name: row["steps"] for name, row in rows.items()}
        # Two activations go, then one of two convolutions, and then the concat and both slices.
        self.assertEqual([steps[name] for name in PLAIN], [10, 10, 10, 8, 7, 4])
        for first, second in zip(PLAIN, PLAIN[1:]):
            self.assertLessEqual(rows[second]["moved_bytes"], rows[first]["moved_bytes"])
        self.assertGreater(rows["vertical fusion"]["rewrites"], 0)
        for row in rows.values():
            self.assertIsNone(row["why_no_error"])
            if row["name"] in PLAIN:
                self.assertLess(row["relative_error"], 1e-5)
            self.assertEqual(row["runs"], 3)
            self.assertGreater(row["latency_milliseconds"]["median"], 0)
        self.assertIn("kernel times", [each["name"] for each in self.report["left_out"]])
        self.assertEqual(self.files(), ["m.onnx", "r.json"])

    def test_flags_leave_families_out(self):
        rows = self.rows(GLYPHS, "--skip-pass", "merge_siblings", "--optimization-level", 0, "--target", "cpu:avx2")
        self.assertEqual(list(rows), [name for name in PLAIN if name != "horizontal fusion"])
        why = {each["name"]: each["why"] for each in self.report["left_out"]}
        self.assertIn("skip all", why["horizontal fusion"])
        self.assertIn("cpu:avx2", why["16 bits"])
        self.assertIn("anneal calibrate", why["int8"])

    def test_int8_needs_a_table(self):
        self.anneal("calibrate", GLYPHS, "--data", GLYPHS.parent, "--samples", "hash:20", "-o", "m.ranges", "-q")
        rows = self.rows(GLYPHS, "--int8", "--calibration", "m.ranges", "--no-self-check", "--optimization-level", 0)
        self.assertEqual(list(rows), PLAIN + ["int8"])
        self.assertGreater(rows["int8"]["max_abs_error"], 0)
        steps, arena = self.inspected(GLYPHS, "--int8", "--calibration", "m.ranges", "--no-self-check")
        self.assertEqual((rows["int8"]["steps"], rows["int8"]["activation_bytes"]), (steps, arena))

    def test_on_the_emulated_device_there_are_launches_and_no_times(self):
        self.write("m.onnx", BLOCK)
        rows = self.rows("m.onnx", "--target", "emulated", "--shapes", "1x4x8x8", "--picture", "p.svg")
        self.assertEqual(list(rows), PLAIN + ["f16"])
        self.assertIsNone(self.report["machine_load"])
        for row in rows.values():
            self.assertIsNone(row["latency_milliseconds"])
            self.assertLess(row["launches"], row["steps"])  # some copy between the devices
            self.assertLess(row["relative_error"], 1e-2)
        self.assertLess(rows["f16"]["launches"], rows["nothing"]["launches"])
        self.assertIn("bytes moved", (self.at / "p.svg").read_text())

    def test_pictures(self):
        self.write("a&b.onnx", BLOCK)
        out = self.anneal("bench", "a&b.onnx", "--ablation", *QUICK, "--shapes", "1x4x8x8", "--optimization-level", 0,
                          "--picture", "p.svg", out=["vertical fusion", "left out: int8", "as fast"])
        self.assertIn("last row    anneal build a&b.onnx", out)
        texts = [each.text for each in xml.etree.ElementTree.parse(self.at / "p.svg").getroot().iter()
                 if each.tag.endswith("text")]
        self.assertIn("a&b.onnx: latency with each family of optimizations", texts)
        for name in PLAIN + ["all of it"]:
            self.assertIn(name, texts)
        if shutil.which("rsvg-convert"):
            self.anneal("bench", GLYPHS, "--ablation", *QUICK, "--optimization-level", 0, "--picture", "p.png")
            self.assertTrue((self.at / "p.png").read_bytes().startswith(b"\x89PNG"))

    def test_control_flow(self):
        self.write("m.onnx", SCAN)
        rows = self.rows("m.onnx", "--optimization-level", 0)
        self.assertEqual({row["steps"] for row in rows.values()}, {1})
        self.anneal("bench", "m.onnx", "--ablation", *QUICK, "--optimization-level", 0,
                    out=["the number of steps does not count those in bodies of control flow"])

    def test_without_a_driver_it_builds_nothing(self):
        self.write("m.onnx", BLOCK)
        self.anneal("bench", "m.onnx", "--ablation", "--target", "sm_90", status=4,
                    says=["there is no CUDA driver here", "--target emulated counts steps and bytes"], env={"ANNEAL_CUDA": "0"})

    def test_refuses(self):
        engine = self.build(BLOCK)
        self.anneal("bench", engine, "--ablation", status=2, says=["m.engine is an engine", "ONNX model"])
        for others in (["--profile"], ["--contexts", 2], ["--change-to", "1x4x4x4"]):
            self.anneal("bench", "m.onnx", "--ablation", *others, status=2, says=others[0])
        self.anneal("bench", "m.onnx", "--picture", "p.svg", status=2, says="--ablation")
        self.anneal("bench", "m.onnx", "--ablation", "--picture", "p.gif", status=2, says="must end in .svg or .png")
        self.anneal("bench", "m.onnx", "--ablation", "--json", "no/r.json", status=2, says="no folder no")
        self.anneal("bench", "m.onnx", "--ablation", "--fp16", "--layer-precision", "l=f32", status=2, says="--layer-precision")
        self.anneal("bench", "m.onnx", "--ablation", "--weight-format", "int8", status=2, says="--weight-format")
        self.anneal("bench", "m.onnx", "--ablation", "--only-passes", "nope", status=2, says='no pass "nope"')
        self.anneal("bench", "m.onnx", "--ablation", "--opt-shapes", "1x4x8x8", "--opt-shapes", "2x4x8x8", status=2,
                    says="one profile")
        self.anneal("bench", "missing.onnx", "--ablation", status=2, says="missing.onnx")
        self.write("bad.onnx", command_case.STRANGE)
        self.anneal("bench", "bad.onnx", "--ablation", "--picture", "p.svg", status=3, says="NoSuchOperator")
        self.assertFalse((self.at / "p.svg").exists())


if __name__ == "__main__":
    unittest.main()
