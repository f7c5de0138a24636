#!/usr/bin/env python3
"""The roofline of ResNet-50: operations that its definition gives, and bounds under ceilings that the test writes.

    roofline_network_test.py PATH_OF_ANNEAL
"""

import json
import os
import subprocess
import unittest
from pathlib import Path

from command_case import Command

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = "/usr/bin/python3"  # Debian's, which has onnx and numpy
# Operations of each product by its node: two for each weight and each pixel or row of the result.
COUNT = """import json, math, sys, onnx
model = onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1]))
sizes = {each.name: [d.dim_value or 1 for d in each.type.tensor_type.shape.dim]
         for each in [*model.graph.value_info, *model.graph.output]}
weights = {each.name: list(each.dims) for each in model.graph.initializer}
print(json.dumps({node.name: 2 * math.prod(weights[node.input[1]]) * math.prod(sizes[node.output[0]][2:])
                  for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MatMul")}))"""
# Of ResNet-50 v1.5 at 224 x 224, as its papers count it: 4.09 billion multiplications.
MULTIPLICATIONS = 4089184256
CEILINGS = {"levels": [{"name": "L2", "bytes": 2 << 20, "read_bytes_per_second": 260e9, "copy_bytes_per_second": 255e9},
                       {"name": "L3", "bytes": 32 << 20, "read_bytes_per_second": 120e9, "copy_bytes_per_second": 113e9},
                       {"name": "memory", "bytes": 0, "read_bytes_per_second": 41e9, "copy_bytes_per_second": 41e9}],
            "f32": 266e9}


def has_onnx():
    return os.path.exists(PYTHON) and subprocess.run([PYTHON, "-c", "import onnx, numpy"], capture_output=True).returncode == 0


@unittest.skipUnless(has_onnx(), f"{PYTHON} has no onnx and numpy, which write the network")
class RooflineOfResNet50(Command):
    def setUp(self):
        super().setUp()
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench"), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([PYTHON, ROOT / "bench/gpu/bundle/made_networks.py", "resnet50", self.at / "m.onnx"], check=True,
                       env=environment)
        self.anneal("build", "m.onnx", "-o", "m.engine", "--opt-shapes", "1x3x224x224", says="")
        self.env = {"ANNEAL_CACHE_DIR": str(self.at / "cache")}
        self.roofline()  # measures the ceilings, which the tests replace
        [self.kept] = (self.at / "cache/roofline").glob("*.json")

    def roofline(self, engine="m.engine"):
        [plan] = json.loads(self.anneal("inspect", engine, "--roofline", "--json", env=self.env))["plans"]
        return plan["roofline"]

    def with_ceilings(self, engine="m.engine", faster=1):
        kept = json.loads(self.kept.read_text())
        kept.update(levels=CEILINGS["levels"], was_busy=False)
        kept["operations_per_second"] = {"f32": CEILINGS["f32"] * faster}
        self.kept.write_text(json.dumps(kept))
        roofline = self.roofline(engine)
        self.assertEqual(roofline["ceilings"], kept)
        return roofline

    def test_operations_are_those_of_the_network(self):
        wanted = json.loads(subprocess.run([PYTHON, "-c", COUNT, self.at / "m.onnx"], check=True, capture_output=True).stdout)
        self.assertEqual(sum(wanted.values()), 2 * MULTIPLICATIONS)
        counted = {step["step"]: step["product_operations"] for step in self.roofline()["steps"] if step["product_operations"]}
        self.assertEqual(sorted(counted.values()), sorted(wanted.values()))
        for name, operations in counted.items():
            self.assertEqual(operations, wanted[name], name)

    def test_each_step_has_the_higher_of_its_times(self):
        for faster in (1, 20):
            bandwidths = {each["name"]: max(each["read_bytes_per_second"], each["copy_bytes_per_second"]) for each in CEILINGS["levels"]}
            for step in self.with_ceilings(faster=faster)["steps"]:
                arithmetic = 1e6 * step["operations"] / (CEILINGS["f32"] * faster)
                moved = 1e6 * (step["weight_bytes"] + step["activation_bytes"])
                least, most = moved / max(bandwidths.values()), moved / min(bandwidths.values())
                if step["bound"] == "f32 arithmetic":
                    self.assertAlmostEqual(step["roof_microseconds"] / arithmetic, 1)
                    self.assertGreater(arithmetic, least, step)
                elif step["bound"] != "overhead":
                    self.assertIn(step["bound"], bandwidths)
                    self.assertLess(arithmetic, most, step)
                    self.assertTrue(0.999 * least < step["roof_microseconds"] < 1.001 * most, step)

    def test_arithmetic_bounds_convolutions_and_memory_the_classifier(self):
        def shares(roofline):
            of = {}
            for step in roofline["steps"]:
                of[step["bound"]] = of.get(step["bound"], 0) + step["roof_microseconds"]
            return {bound: time / sum(of.values()) for bound, time in of.items()}

        roofline = self.with_ceilings()
        self.assertGreater(shares(roofline)["f32 arithmetic"], 0.97)
        bounds = {step["step"]: step["bound"] for step in roofline["steps"]}
        [classifier] = [name for name in bounds if name.startswith(("Gemm", "MatMul"))]
        self.assertEqual(bounds[classifier], "memory")
        self.assertTrue(all(bound == "f32 arithmetic" for name, bound in bounds.items() if name.startswith("Conv")))
        # With arithmetic 50 times as fast, traffic bounds the network.
        self.assertLess(shares(self.with_ceilings(faster=50)).get("f32 arithmetic", 0), 0.5)
        # A batch reads the classifier's weights once.
        self.anneal("build", "m.onnx", "-o", "batch.engine", "--opt-shapes", "64x3x224x224", says="")
        [step] = [each for each in self.with_ceilings("batch.engine")["steps"] if each["step"] == classifier]
        self.assertEqual(step["bound"], "f32 arithmetic")


if __name__ == "__main__":
    unittest.main()
