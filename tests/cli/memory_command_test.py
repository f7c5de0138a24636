#!/usr/bin/env python3
"""`anneal bench --memory-by-batch`, and the formulas of `anneal inspect`, on small models.

    memory_command_test.py PATH_OF_ANNEAL
"""

import array
import json
import re
import subprocess
import sys
import unittest

from command_case import ANNEAL, Command, F32, I64, field, graph, model, node, npy, tensor, value_info

# Axis 1 is summed up, so the steps stay apart and the values between them lie in the arena.
SUMS = model([node("Abs", ["x"], ["a"], "abs"), node("CumSum", ["a", "axis"], ["b"], "sum"),
              node("CumSum", ["b", "axis"], ["c"], "sum_again"), node("Exp", ["c"], ["y"], "exp")],
             [value_info("x", ["N", 1000])], [value_info("y", ["N", 1000])],
             [tensor([], [1], I64) + field(8, "axis")])
# A batch of these can run in slices.
ROWS = model([node("Softmax", ["x"], ["a"], "first"), node("Softmax", ["a"], ["b"], "second"),
              node("Softmax", ["b"], ["y"], "third")], [value_info("x", ["N", 1000])], [value_info("y", ["N", 1000])])
# Rows of different lengths: the arena grows with both sizes.
WIDE = model([node("CumSum", ["x", "axis"], ["b"], "sum"), node("CumSum", ["b", "axis"], ["c"], "sum_again"),
              node("CumSum", ["c", "axis"], ["y"], "sum_more")],
             [value_info("x", ["N", "L"])], [value_info("y", ["N", "L"])], [tensor([], [1], I64) + field(8, "axis")])
MIXED = model([node("Abs", ["x"], ["a"], "abs"), node("CumSum", ["a", "axis"], ["y"], "sum_of_rows")],
              [value_info("x", [1, 3])], [value_info("y", [1, 3])], [tensor([], [0], I64) + field(8, "axis")])
FIXED = model([node("Abs", ["x"], ["y"], "abs")], [value_info("x", [2, 3])], [value_info("y", [2, 3])])
# The zeros are contents that a run knows, while they are few.
ZEROS = model([node("Shape", ["x"], ["shape"], "shape"), node("ConstantOfShape", ["shape"], ["zeros"], "zeros"),
               node("Abs", ["x"], ["y"], "abs")],
              [value_info("x", ["N", 300])], [value_info("y", ["N", 300]), value_info("zeros", ["N", 300])])


class MemoryByBatch(Command):
    def report(self, *arguments):
        out = self.anneal("bench", *arguments, "--memory-by-batch", "--json", "r.json")
        return out, json.loads((self.at / "r.json").read_text())

    def test_predicts_what_contexts_hold(self):
        self.write("m.onnx", SUMS)
        for target in ("cpu", "emulated"):
            for threads in (1, 2):
                out, report = self.report("m.onnx", "--target", target, "--threads", threads)
                self.assertIn("N is the batch", out)
                self.assertEqual([each["batch"] for each in report["batches"]], [1, 4, 16])
                for each in report["batches"]:
                    predicted, measured = each["predicted_bytes"], each["measured_bytes"]
                    self.assertEqual(predicted["arenas"], measured["arenas"], each)
                    self.assertAlmostEqual(predicted["all"] / measured["all"], 1, delta=0.02)
                    self.assertEqual(each["input_bytes"], each["batch"] * 4000)
                    parts = [value for name, value in measured.items() if name not in ("all", "gpu", "host")]
                    self.assertEqual(sum(parts), measured["all"])

    def test_predicts_the_contents_that_a_run_knows(self):
        self.write("m.onnx", ZEROS)
        _, report = self.report("m.onnx", "--micro-batch", 16)
        for each in report["batches"]:
            self.assertEqual(each["predicted_bytes"], each["measured_bytes"])
        known = [each["measured_bytes"]["shapes"] for each in report["batches"]]
        self.assertGreater(known[0], known[1] + 2400)

    def test_a_batch_in_slices_takes_what_slices_take(self):
        self.write("m.onnx", ROWS)
        self.anneal("build", "m.onnx", "-o", "m.engine")
        _, whole = self.report("m.engine", "--batches", 64, "--micro-batch", 64)
        _, slices = self.report("m.engine", "--batches", 64, "--micro-batch", 4, "--threads", 1)
        for report in (whole, slices):
            (each,) = report["batches"]
            self.assertEqual(each["predicted_bytes"]["arenas"], each["measured_bytes"]["arenas"])
            self.assertAlmostEqual(each["predicted_bytes"]["all"] / each["measured_bytes"]["all"], 1, delta=0.02)
        self.assertEqual((whole["batches"][0]["slice"], slices["batches"][0]["slice"]), (64, 4))
        self.assertLess(8 * slices["batches"][0]["measured_bytes"]["arenas"],
                        whole["batches"][0]["measured_bytes"]["arenas"])

    def test_formulas_have_the_sizes_of_the_inputs(self):
        self.write("m.onnx", WIDE)
        self.anneal("build", "m.onnx", "-o", "m.engine", "--min-shapes", "x:1x1", "--opt-shapes", "x:4x512",
                    "--max-shapes", "x:100x1024")
        out = self.anneal("inspect", "m.engine", out=["inputs: 4*N*L bytes, outputs: 4*N*L bytes, staging: 4*N*L bytes\n"])
        self.assertIn("  8*N*L bytes, at step \"sum_again\" (Cumulative)\n", out)
        plan = json.loads(self.anneal("inspect", "m.engine", "--json"))["plans"][0]
        formula = plan["memory_formula"]
        self.assertEqual(formula["activations"],
                         [{"device": "cpu", "bytes": "8*N*L", "step": 'step "sum_again" (Cumulative)'}])
        out, report = self.report("m.engine", "--shapes", "x:3x512", "--batches", "3,100")
        self.assertEqual(report["formula"], {"inputs": formula["inputs"], "outputs": formula["outputs"],
                                             "staging": formula["staging"], "activations": formula["activations"]})
        for each in report["batches"]:
            self.assertEqual(each["measured_bytes"]["arenas"], 8 * 100 * 1024)
            self.assertEqual(each["predicted_bytes"], each["measured_bytes"])
        self.assertIn("room for the largest one", out)
        self.anneal("build", "m.onnx", "-o", "open.engine")
        out, report = self.report("open.engine", "--shapes", "x:3x512", "--batches", "3,100")
        for each in report["batches"]:
            self.assertEqual(each["measured_bytes"]["arenas"], 8 * each["batch"] * 512)
        self.assertNotIn("room for the largest one", out)
        # Nothing is open: numbers alone say all.
        self.write("fixed.onnx", FIXED)
        self.anneal("build", "fixed.onnx", "-o", "fixed.engine")
        plan = json.loads(self.anneal("inspect", "fixed.engine", "--json"))["plans"][0]
        self.assertIsNone(plan["memory_formula"])

    def test_shapes_of_a_model_are_the_other_sizes(self):
        self.write("m.onnx", WIDE)
        out, report = self.report("m.onnx", "--shapes", "x:3x512", "--batches", 4, "--target", "emulated")
        self.assertIn("N is the batch", out)
        self.assertIn("at       L = 512\n", out)
        self.assertEqual(report["other_sizes"], {"L": 512})
        self.assertAlmostEqual(report["batches"][0]["measured_bytes"]["arenas"] / (8 * 4 * 512), 1, delta=0.01)
        self.assertFalse(out.endswith("\n\n"), "no memory is known to fit into")

    def test_a_formula_of_slices_is_of_their_rows(self):
        self.write("m.onnx", ROWS)
        out, _ = self.report("m.onnx", "--batches", 64, "--micro-batch", 4, "--threads", 1)
        self.assertIn("N, where N is the rows of a slice, at step", out)
        out, _ = self.report("m.onnx", "--batches", 4, "--threads", 1)
        self.assertNotIn("rows of a slice", out)

    def test_finds_the_largest_batch(self):
        self.write("m.onnx", SUMS)
        self.anneal("build", "m.onnx", "-o", "m.engine")
        limit = 8 * 1024 * 1024
        for contexts in (1, 3):
            out, report = self.report("m.engine", "--fit-memory", "8MB", "--contexts", contexts)
            largest = report["largest_batch"]
            self.assertIn(f": {largest}\n", out)
            _, around = self.report("m.engine", "--batches", f"{largest},{largest + 1}")
            need = [contexts * (each["predicted_bytes"]["all"] + each["input_bytes"]) + around["weight_bytes"]
                    for each in around["batches"]]
            self.assertLessEqual(need[0], limit)
            self.assertGreater(need[1], limit)
        out, report = self.report("m.engine", "--fit-memory", 100)
        self.assertIsNone(report["largest_batch"])
        self.assertIn("no N fits into 100 B", out)
        self.anneal("build", "m.onnx", "-o", "few.engine", "--min-shapes", "x:1x1000", "--opt-shapes", "x:2x1000",
                    "--max-shapes", "x:8x1000")
        out, report = self.report("few.engine", "--fit-memory", "1GB")
        self.assertEqual(report["largest_batch"], 8)
        self.assertEqual([each["batch"] for each in report["batches"]], [1, 4, 8])
        self.assertIn(": 8, the most of the engine\n", out)
        self.anneal("build", "m.onnx", "-o", "two.engine", "--min-shapes", "1x1000", "--max-shapes", "8x1000",
                    "--min-shapes", "9x1000", "--max-shapes", "20x1000")
        out, report = self.report("two.engine", "--fit-memory", "1GB", "--use-profile", 1)
        self.assertEqual(report["largest_batch"], 20)
        self.assertIn(": 20, the most of profile 1 of the engine\n", out)
        self.anneal("bench", "two.engine", "--memory-by-batch", "--use-profile", 0, "--batches", 9, status=2,
                    says="N of profile 0 of the engine is 1 to 8")

    def test_the_largest_batch_may_be_above_one_that_does_not_fit(self):
        self.write("m.onnx", ROWS)
        self.anneal("build", "m.onnx", "-o", "m.engine")
        batches = range(1, 41)
        flags = ["m.engine", "--threads", 2, "--micro-batch", 3]
        _, report = self.report(*flags, "--batches", ",".join(map(str, batches)))
        need = {each["batch"]: each["predicted_bytes"]["all"] + each["input_bytes"] + report["weight_bytes"] for each in report["batches"]}
        self.assertTrue(any(need[n] > need[n + 1] for n in batches if n < 40), "the memory of batches only grows")
        for n in range(3, 13):
            _, found = self.report(*flags, "--batches", 1, "--fit-memory", need[n])
            self.assertEqual(found["largest_batch"], max(each for each in need if need[each] <= need[n]), need)

    def test_opens_a_fixed_batch(self):
        rows = model([node("Abs", ["x"], ["a"], "abs"), node("Softmax", ["a"], ["b"], "softmax"),
                      node("Reshape", ["b", "shape"], ["c"], "flat"), node("Softmax", ["c"], ["y"], "softmax_again")],
                     [value_info("x", [2, 40, 25])], [value_info("y", [2, 1000])],
                     [tensor([2], [2, 1000], I64) + field(8, "shape")])
        self.write("m.onnx", rows)
        for target in ("cpu", "emulated"):
            out, report = self.report("m.onnx", "--target", target)
            self.assertIn("N is the batch", out)
            self.assertEqual([each["batch"] for each in report["batches"]], [1, 4, 16])
            for each in report["batches"]:
                self.assertAlmostEqual(each["difference"], 0, delta=0.02)
                self.assertEqual(each["input_bytes"], 4000 * each["batch"])
        self.anneal("build", "m.onnx", "-o", "open.engine", "--open-batch")
        _, report = self.report("open.engine", "--batches", "3")
        self.assertAlmostEqual(report["batches"][0]["difference"], 0, delta=0.02)
        self.anneal("run", "open.engine", "--input", "random", "--shapes", "5x40x25")

    def test_has_formulas_of_staging_and_workspaces(self):
        self.write("m.onnx", SUMS)
        for target in ("cpu", "emulated"):
            out, report = self.report("m.onnx", "--target", target, "--threads", 1, "--batches", "1,7,50")
            per_row = {"cpu": 4000, "emulated": 8000}[target]  # a GPU's inputs are staged, too
            self.assertEqual(report["formula"]["staging"], f"{per_row}*N")
            self.assertIn(f"staging: {per_row}*N bytes\n", out)
            for each in report["batches"]:
                for held in (each["predicted_bytes"], each["measured_bytes"]):
                    self.assertEqual(held["staging"], per_row * each["batch"])
                    self.assertEqual(held["gpu"] + held["host"], held["all"])
                    self.assertEqual(held["gpu"] > 0, target == "emulated")
                for part in ("arenas", "workspaces"):
                    formula = report["by_batch"][part]
                    self.assertEqual((formula["first"], formula["last"]), (1, 64))
                    of_batch = eval(formula["bytes"].replace("^", "**"), {"N": each["batch"]})
                    if formula["is_exact"]:
                        self.assertEqual(each["measured_bytes"][part], of_batch)
                    else:
                        self.assertLessEqual(each["measured_bytes"][part], of_batch)
                        self.assertLess(of_batch, 1.5 * each["measured_bytes"][part] + 65536)
                    self.assertIn(f"{part}: {'' if formula['is_exact'] else 'at most '}{formula['bytes']} bytes", out)
            self.assertEqual("on GPU" in out, target == "emulated")
        self.assertTrue(report["by_batch"]["workspaces"]["is_exact"], out)

    def test_sizes_that_grow_with_the_batch_are_named(self):
        joined = [graph([node("Concat", ["x", "z"], ["both"], "join") + field(5, field(1, "axis") + field(3, 1) + field(20, 2)),
                         node(op, ["both"], [name], op)], [], [value_info(name, ["N", 12])])
                  for op, name in (("Softmax", "p"), ("Exp", "q"))]
        branches = b"".join(field(5, field(1, name) + field(6, body) + field(20, 5))
                            for name, body in zip(("then_branch", "else_branch"), joined))
        self.write("m.onnx", model([node("If", ["c"], ["y"], "choice") + branches],
                                   [value_info("x", ["N", 8]), value_info("z", ["M", 4]), value_info("c", [], 9)],
                                   [value_info("y", ["R", 12])]))
        out, report = self.report("m.onnx", "--batches", "1,4,7,16,33")
        self.assertIn("M grows with N\n", out)
        self.assertEqual(report["growing_sizes"], ["M"])
        self.assertEqual([each["input_bytes"] for each in report["batches"]], [48 * n + 1 for n in (1, 4, 7, 16, 33)])
        # The branches have arenas of their own.
        self.assertGreaterEqual(report["batches"][3]["measured_bytes"]["arenas"], 16 * 48)
        for each in report["batches"]:
            self.assertLessEqual(each["measured_bytes"]["arenas"], eval(report["by_batch"]["arenas"]["bytes"], {"N": each["batch"]}))

    def test_a_limit_is_of_the_gpu(self):
        self.write("m.onnx", SUMS)
        out, report = self.report("m.onnx", "--target", "emulated", "--fit-memory", "1MB", "--contexts", 2)
        self.assertIn("2 contexts on the GPU: ", out)
        largest = report["largest_batch"]
        _, around = self.report("m.onnx", "--target", "emulated", "--batches", f"{largest},{largest + 1}")
        need = [2 * each["predicted_bytes"]["gpu"] + around["weight_bytes"] for each in around["batches"]]
        self.assertLessEqual(need[0], 1 << 20)
        self.assertGreater(need[1], 1 << 20)

    def test_names_the_model_if_its_engine_does_not_load(self):
        self.write("m.onnx", SUMS)
        self.anneal("bench", "m.onnx", "--weights", "none.bin", status=2, says="while loading engine m.onnx: cannot open none.bin")

    def test_draws_a_bar_for_each_batch(self):
        self.write("m.onnx", SUMS)
        self.anneal("bench", "m.onnx", "--memory-by-batch", "--batches", "2,8,32", "--picture", "p.svg")
        svg = (self.at / "p.svg").read_text()
        self.assertIn("<title>m.onnx: memory of a context by N</title>", svg)
        for batch in ("2", "8", "32"):
            self.assertIn(f">{batch}</text>", svg)
        # The bars of arenas are as long as their bytes.
        lengths = [float(width) for width in re.findall(r'x="92.0" y="[^"]+" width="([^"]+)"', svg)]
        self.assertEqual(len(lengths), 3)
        self.assertAlmostEqual(lengths[2] / lengths[0], 16, delta=0.5)
        self.anneal("bench", "m.onnx", "--memory-by-batch", "--picture", "p.jpg", status=2, says=".svg or .png")

    def test_refuses(self):
        self.write("fixed.onnx", FIXED)
        self.anneal("build", "fixed.onnx", "-o", "fixed.engine")
        self.anneal("bench", "fixed.engine", "--memory-by-batch", status=2,
                    says="the inputs have fixed sizes (x [2,3]), so there is no batch to change")
        self.write("mixed.onnx", MIXED)
        for command in (["bench", "mixed.onnx", "--memory-by-batch"], ["build", "mixed.onnx", "--open-batch"],
                        ["build", "mixed.onnx", "--shapes", "3x3"]):
            self.anneal(*command, status=3, says=['mixed.onnx: while opening the batch of "x", which is 1 in the model',
                                                  "sum_of_rows"])
        self.anneal("build", "fixed.onnx", "--open-batch", "--shapes", "3x3", status=2, says="--open-batch leaves the batch open")
        for flags in (["--memory-by-batch"], ["--roofline"]):
            self.anneal("bench", "fixed.onnx", *flags, "--json", "r.svg", "--picture", "./r.svg", status=2,
                        says="--json and --picture are one file, r.svg")
        self.write("m.onnx", SUMS)
        for flags in (["--profile"], ["--duration", 1], ["--iterations", 2], ["--warmup", 1], ["--change-to", "x:2x1000"]):
            self.anneal("bench", "m.onnx", "--memory-by-batch", *flags, status=2, says=["excludes", flags[0]])
        self.anneal("build", "m.onnx", "-o", "few.engine", "--min-shapes", "x:1x1000", "--opt-shapes", "x:2x1000",
                    "--max-shapes", "x:8x1000")
        self.anneal("bench", "few.engine", "--memory-by-batch", "--batches", "2,9", status=2,
                    says="--batches 9: N of the engine is 1 to 8")
        self.anneal("bench", "few.engine", "--fit-memory", "1GB", status=2, says="--memory-by-batch")
        self.write("x.npy", npy([2, 1000], [0.5] * 2000))
        self.anneal("bench", "few.engine", "--memory-by-batch", "-i", "x.npy", status=2, says="x.npy")


def large_products(count, side):
    """As many products of [N, side], each by weights of its own, and the bytes of all weights."""
    values = array.array("f", (0.001 * (i % 97 - 48) for i in range(side * side)))
    weights = []
    for i in range(count):
        values[0] = i
        weights.append(b"".join(field(1, side) for _ in range(2)) + field(2, F32) + field(8, f"w{i}") + field(9, values.tobytes()))
    nodes = [node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"product{i}") for i in range(count)]
    ports = [[value_info(name, ["N", side])] for name in ("x0", f"x{count}")]
    return model(nodes, *ports, weights), count * side * side * 4


def large_four_bit_products(count, side, block=32):
    """The same by MatMulNBits, whose rows may be rounded: 4 bits and 1/8 bit of a scale for each weight; the bytes of them."""
    weights, nodes = [], []
    attributes = {"N": side, "K": side, "bits": 4, "block_size": block, "accuracy_level": 4}
    for i in range(count):
        dims = (side, side // block, block // 2)
        codes = bytes([i + 1, 0x5A, 0xC3, 0x96]) * (side * side // 8)
        scales = array.array("f", [0.01]) * (side * side // block)
        weights += [b"".join(field(1, each) for each in dims) + field(2, 2) + field(8, f"w{i}") + field(9, codes),
                    field(1, len(scales)) + field(2, F32) + field(8, f"s{i}") + field(9, scales.tobytes())]
        nodes.append(node("MatMulNBits", [f"x{i}", f"w{i}", f"s{i}"], [f"x{i + 1}"], f"product{i}") +
                     b"".join(field(5, field(1, name) + field(3, value) + field(20, 2)) for name, value in attributes.items()) +
                     field(7, "com.microsoft"))
    ports = [[value_info(name, ["N", side])] for name in ("x0", f"x{count}")]
    content = model(nodes, *ports, weights) + field(8, field(1, "com.microsoft") + field(2, 1))
    return content, count * (side * side // 2 + side * side // block * 4)


# Prints the most memory that the command of its arguments had.
PEAK = """import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"""


class MemoryOfABuild(Command):
    def peak(self, name, content):
        self.write(name, content)
        return int(subprocess.run([sys.executable, "-c", PEAK, ANNEAL, "build", name], check=True, capture_output=True, text=True,
                                  cwd=self.at).stdout)

    def test_has_the_weights_once(self):
        self.skip_if_freed_memory_is_kept()
        content, weights = large_products(6, 2048)
        # Beside the model's weights there are those of one kernel, packed, and what the parser holds: half of the weights here.
        self.assertLess(self.peak("large.onnx", content) - self.peak("small.onnx", FIXED), 1.75 * weights)

    def test_has_weights_of_4_bits_once(self):
        self.skip_if_freed_memory_is_kept()
        content, weights = large_four_bit_products(12, 4096)
        # In 8 bits alone they would be twice as many.
        self.assertLess(self.peak("large.onnx", content) - self.peak("small.onnx", FIXED), 1.75 * weights)
        self.assertLess((self.at / "large.engine").stat().st_size, 1.05 * weights)

    def test_refuses_a_large_model_that_is_cut_off(self):
        content, _ = large_products(2, 2048)
        self.write("cut.onnx", content[:-100])
        self.anneal("build", "cut.onnx", status=2, says="a damaged or truncated ONNX model")
        self.write("text.onnx", b"no model\n" * (1 << 21))
        self.anneal("build", "text.onnx", status=2, says="it is text")


if __name__ == "__main__":
    unittest.main()
