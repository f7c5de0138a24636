#!/usr/bin/env python3
"""What bench/gpu/compare_results.py says of two folders of results, and which bits may differ."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

GPU = Path(__file__).resolve().parent.parent / "bench/gpu"
sys.path.insert(0, str(GPU))
sys.dont_write_bytecode = True
from bundle import bits, record  # noqa: E402

SAME, OTHER = "aaaa", "bbbb"


def run_of(layer, operands, digest):
    return {"layer": layer, "operands": operands, "digest": digest}


def item(**digests):
    """Of an op case: keys have the kernel's name, with _ for a dot, and `_functions` for runs that call one."""
    named = {key.replace("_functions", ": functions").replace("_", "."): each for key, each in digests.items()}
    return {"kernels": {key.partition(":")[0]: 5 for key in named}, "digests": named}


def compared(*, differing):
    return {"tensors": 3, "differing": [{"name": name, "agrees_alone": alone} for name, alone in differing.items()]}


class Bits(unittest.TestCase):
    def test_sums_of_floats_on_tensor_cores_may_differ(self):
        self.assertEqual(bits.reason("cuda.conv.mma", "Conv", "f16,f16"), "sums of tensor cores")
        self.assertEqual(bits.reason("cuda.conv.mma", "Conv", "i8,i8"), "")

    def test_functions_may_differ(self):
        for layer in ("Softmax axis=1", "Add; (f32)->(f32) tanh($0)", "Attention causal=true"):
            self.assertEqual(bits.reason("cuda.x.y", layer, "f32"), "functions", layer)
        for layer in ("Reshape", "Add; (f32)->(f32) max($0,0f32)", "Expand"):
            self.assertEqual(bits.reason("cuda.x.y", layer, "f32"), "", layer)

    def test_a_digest_for_each_kernel_and_reason(self):
        runs = {"cuda.a, relu, padded": run_of("Add; max($0,0)", "f32", SAME), "cuda.a, gelu, padded": run_of("Add; erf($0)", "f32", SAME)}
        before = bits.digests(runs)
        self.assertEqual(set(before), {"cuda.a", "cuda.a: functions"})
        runs["cuda.a, gelu, padded"]["digest"] = OTHER
        after = bits.digests(runs)
        self.assertEqual(before["cuda.a"], after["cuda.a"])
        self.assertNotEqual(before["cuda.a: functions"], after["cuda.a: functions"])


class Comparison(unittest.TestCase):
    def compare(self, a, b, *flags, part="op_cases"):
        """The exit status and what is printed of two folders with these items."""
        with tempfile.TemporaryDirectory() as folder:
            for name, items in (("a", a), ("b", b)):
                (Path(folder) / name).mkdir()
                value = {"format": record.FORMAT, "part": part, "card": f"card {name}", "code": {"digest": "1"}, "items": items}
                (Path(folder) / name / f"{part}.json").write_text(json.dumps(value))
            done = subprocess.run([sys.executable, GPU / "compare_results.py", f"{folder}/a", f"{folder}/b", *flags], capture_output=True,
                                  text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def test_equal_results(self):
        same = {"add": item(cuda_add=SAME)}
        status, printed = self.compare(same, same)
        self.assertEqual(status, 0)
        self.assertIn("op_cases: 1 items in both, 0 in A alone, 0 in B alone\n", printed)

    def test_other_bits(self):
        status, printed = self.compare({"add": item(cuda_add=SAME)}, {"add": item(cuda_add=OTHER)})
        self.assertEqual(status, 1)
        self.assertIn("op_cases, add: cuda.add gives other bits, for no known reason", printed)

    def test_other_bits_with_a_reason(self):
        a, b = ({"softmax": item(cuda_softmax_functions=each)} for each in (SAME, OTHER))
        status, printed = self.compare(a, b, "--all")
        self.assertEqual(status, 0)
        self.assertIn("cuda.softmax: other bits in 1 cases, functions: softmax", printed)

    def test_a_failure_of_one(self):
        status, printed = self.compare({"add": item(cuda_add=SAME)}, {"add": {"error": "a fault"}})
        self.assertEqual(status, 1)
        self.assertIn("add: fails in B alone: a fault", printed)

    def test_another_kernel(self):
        status, printed = self.compare({"add": item(cuda_add=SAME)}, {"add": item(cuda_other=SAME)})
        self.assertEqual(status, 1)
        self.assertIn("kernels ['cuda.add'] and ['cuda.other']", printed)

    def test_tensors_that_differ_by_themselves(self):
        a, b = ({"net": compared(differing={"x": alone})} for alone in (True, False))
        status, printed = self.compare(a, b, part="networks")
        self.assertEqual(status, 1)
        self.assertIn("net: tensors that differ from the CPU's are [] and ['x']", printed)
        self.assertEqual(self.compare(a, a, part="networks")[0], 0)

    def test_nothing_in_common(self):
        self.assertEqual(self.compare({"add": item(cuda_add=SAME)}, {})[0], 2)


if __name__ == "__main__":
    unittest.main()
