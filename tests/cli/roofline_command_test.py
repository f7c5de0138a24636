#!/usr/bin/env python3
"""`anneal bench --roofline` and `anneal inspect --roofline`: fields, files and refusals.

Arguments: the command `anneal`, the folder of the sample glyphs, and optionally unittest's.
"""

import json
import os
import sys
import unittest

import command_case

GLYPHS = sys.argv.pop(1)
QUICK = ["--warmup", 1, "--iterations", 3, "--threads", 1]


class Roofline(command_case.Command):
    def setUp(self):
        super().setUp()
        self.cache = self.at / "cache"
        self.env = {"ANNEAL_CACHE_DIR": str(self.cache)}

    def measured(self, file, *arguments, **options):
        out = self.anneal("bench", file, *QUICK, "--roofline", "--json", "r.json", *arguments, env=self.env, **options)
        return out, json.loads((self.at / "r.json").read_text())["roofline"]

    def kept(self):
        return list((self.cache / "roofline").glob("*.json"))

    def test_bench(self):
        model = f"{GLYPHS}/glyphs.onnx"
        out, roofline = self.measured(model, "--picture", "r.svg")
        for text in ("ceilings", "GB/s", "Gop/s", "bound", "roof us", "reached %", "all", "bound, of the time:"):
            self.assertIn(text, out)
        self.assertNotIn("nan", out)
        steps = roofline["steps"]
        stem = next(step for step in steps if "stem.0" in step["step"])
        # 24 channels of 32x32 or 16x16 results, and 9 terms each
        self.assertEqual(stem["product_operations"] % (2 * 9 * 24), 0)
        self.assertGreater(stem["operations"], stem["product_operations"])
        self.assertAlmostEqual(sum(step["share_of_time"] for step in steps), 1)
        self.assertAlmostEqual(roofline["total"]["operations"], sum(step["operations"] for step in steps))
        for step in steps:
            self.assertAlmostEqual(step["share_of_roof"], step["roof_microseconds"] / step["microseconds"])
        self.assertTrue((self.at / "r.svg").read_text().startswith("<svg"))
        self.assertEqual(roofline["ceilings"]["threads"], 1)

    def test_ceilings_are_read_again(self):
        engine = self.build(command_case.ABS)
        _, first = self.measured(engine)
        [file] = self.kept()
        kept = json.loads(file.read_text())
        self.assertEqual(first["ceilings"], kept)
        kept.update(was_busy=False)
        kept["operations_per_second"]["f32"] = 123e9
        file.write_text(json.dumps(kept))
        out, second = self.measured(engine)
        self.assertIn("f32 123,", out)
        self.assertEqual(second["ceilings"], kept)
        file.write_text(json.dumps({**kept, "was_busy": True}))  # measured again
        self.assertNotIn("f32 123,", self.measured(engine)[0])
        file.write_text("{")  # damaged: measured and written again
        out, third = self.measured(engine)
        self.assertEqual(json.loads(file.read_text()), third["ceilings"])
        file.write_text(json.dumps(kept))
        out, fourth = self.measured(engine, "--probe")
        self.assertNotIn("f32 123,", out)
        self.assertEqual(json.loads(file.read_text()), fourth["ceilings"])

    def test_without_a_cache_folder(self):
        engine = self.build(command_case.ABS)
        self.env = {"ANNEAL_CACHE_DIR": ""}
        self.assertIn("GB/s", self.measured(engine)[0])
        self.assertEqual(self.files(), ["m.engine", "m.onnx", "r.json"])

    def test_open_sizes(self):
        engine = self.build(command_case.ADD)
        for rows in (5, 500):
            _, roofline = self.measured(engine, "--shapes", f"a:{rows}x3,b:{rows}x3")
            [step] = roofline["steps"]
            self.assertEqual((step["operations"], step["activation_bytes"]), (rows * 3, 3 * 4 * rows * 3))
            self.assertEqual(roofline["inputs"], [f"a: f32[{rows},3]", f"b: f32[{rows},3]"])

    def test_int8(self):
        self.anneal("build", f"{GLYPHS}/glyphs.onnx", "--int8", "--calibrate", GLYPHS, "--samples", "hash:20", "-o",
                    "i.engine", says="")
        _, roofline = self.measured("i.engine")
        products = [step for step in roofline["steps"] if step["type"] == "int8"]
        self.assertTrue(products)
        for step in products:
            self.assertGreater(step["product_operations"], 0)
            self.assertNotEqual(step["bound"], "f32 arithmetic")

    def test_isa(self):
        engine = self.build(command_case.ABS)
        self.env["ANNEAL_MAX_ISA"] = "baseline"
        out, roofline = self.measured(engine)
        self.assertIn("baseline instructions", out)
        self.assertEqual(roofline["ceilings"]["isa"], "baseline")
        self.assertNotIn("bf16", roofline["ceilings"]["operations_per_second"])

    def test_bodies(self):
        self.write("scan.onnx", command_case.SCAN)
        _, roofline = self.measured("scan.onnx")
        self.assertTrue(any(step["times"] == 2 for step in roofline["steps"]), roofline["steps"])

    def test_an_emulated_card_has_no_times(self):
        self.write("m.onnx", command_case.ADD)
        self.anneal("build", "m.onnx", "--target", "emulated", "-o", "m.engine")
        shapes = ["--target", "emulated", "--shapes", "a:64x3,b:64x3"]
        out, roofline = self.measured("m.engine", *shapes)
        self.assertIn("H100 SXM, published figures", out)
        self.assertEqual(roofline["ceilings"]["source"], "published")
        self.assertTrue(all("microseconds" not in step for step in roofline["steps"]))
        self.assertIn("bound", next(step for step in roofline["steps"] if step.get("operations")))
        self.anneal("bench", "m.engine", *QUICK, *shapes, "--roofline", "--picture", "r.svg", status=2,
                    says="no times", env=self.env)
        self.assertFalse((self.at / "r.svg").exists())

    def test_inspect(self):
        self.anneal("build", f"{GLYPHS}/glyphs.onnx", "-o", "g.engine")
        out = self.anneal("inspect", "g.engine", "--roofline", env=self.env)
        for text in ("plan        cpu", "image: f32[1,1,32,32]", "roof us", "bound, of the roof's time:"):
            self.assertIn(text, out)
        self.assertNotIn("reached", out)
        [plan] = json.loads(self.anneal("inspect", "g.engine", "--roofline", "--json", env=self.env))["plans"]
        self.assertEqual(len(plan["roofline"]["steps"]), len(plan["steps"]))
        self.assertNotIn("microseconds", plan["roofline"]["total"])
        [plain] = json.loads(self.anneal("inspect", "g.engine", "--json"))["plans"]
        self.assertEqual(plain, {key: value for key, value in plan.items() if key != "roofline"})
        self.assertLessEqual(len(self.kept()), 1)

    def test_refusals(self):
        engine = self.build(command_case.ABS)
        self.anneal("inspect", "m.onnx", "--roofline", status=2, says=["m.onnx is a model", "anneal build"])
        self.anneal("bench", engine, "--picture", "r.svg", status=2, says="--memory-by-batch and --roofline")
        self.anneal("bench", engine, "--probe", status=2, says="add --roofline")
        self.anneal("bench", engine, "--roofline", "--memory-by-batch", status=2, says="give one")
        self.anneal("bench", engine, "--roofline", "--picture", "r.gif", status=2, says="--picture")
        self.anneal("bench", engine, "--roofline", "--picture", "no/r.svg", status=2, says="no folder no")
        self.assertFalse(os.path.exists(self.cache))


if __name__ == "__main__":
    unittest.main()
