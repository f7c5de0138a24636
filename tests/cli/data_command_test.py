#!/usr/bin/env python3
"""Runs the commands that read samples or inputs as a user would: eval, calibrate, run, and builds by what they find.

Arguments: the command `anneal`, and optionally unittest's.
"""

import json
import struct
import subprocess
import unittest

import command_case
from command_case import ABS, ANNEAL, field, model, node, npy, tensor, value_info


# An attribute of a node: axis = 0.
ON_AXIS_0 = field(5, field(1, "axis") + field(3, 0) + field(20, 2))


class DataCommand(command_case.Command):
    # --- run

    def test_inputs_with_default_values(self):
        scaled = model([node("Mul", ["x", "w"], ["y"], "mul")], [value_info("x", [3]), value_info("w", [3])],
                       [value_info("y", [3])], [tensor([3], [2, 3, 4]) + field(8, "w")])
        self.build(scaled)
        self.write("x.npy", npy([3], [1, 1, 1]))
        self.write("w.npy", npy([3], [5, 6, 7]))
        self.anneal("run", "m.engine", "-i", "x.npy", out="[2, 3, 4]\n")
        self.anneal("run", "m.engine", "-i", "x=x.npy", "-i", "w=w.npy", status=2, says="build --default-inputs w")
        # A model is built for what it is given.
        self.anneal("run", "m.onnx", "-i", "x.npy", out="[2, 3, 4]\n")
        self.anneal("run", "m.onnx", "-i", "x=x.npy", "-i", "w=w.npy", out="y: f32[3]  min 5  max 7  mean 6  [5, 6, 7]")
        self.anneal("inspect", "m.onnx", out="1 initializer is also listed as an input, constant unless --default-inputs names it: w\n")
        self.anneal("build", "m.onnx", "-o", "open.engine", "--default-inputs", "all")
        self.anneal("inspect", "open.engine", out="w  f32[3], has a default value")
        self.anneal("run", "open.engine", "-i", "x.npy", out="w: f32[3]  min 2  max 4  mean 3  [2, 3, 4], the default value")
        self.anneal("run", "open.engine", "-i", "random", out="[2, 3, 4], the default value")
        self.anneal("run", "open.engine", "-i", "x=x.npy", "-i", "w=w.npy", out="y: f32[3]  min 5  max 7  mean 6  [5, 6, 7]")
        self.anneal("compare", "m.engine", "open.engine")
        self.anneal("compare", "open.engine", "m.engine")
        self.anneal("compare", "open.engine", "m.engine", "-i", "x=random", "-i", "w=w.npy", status=2,
                    says="build B with --default-inputs w")
        self.anneal("bench", "m.onnx", "-i", "x=random", "-i", "w=random", "--iterations", 1, "--warmup", 0, out="w: f32[3]")

    def test_states_begin_anew_in_each_run(self):
        summed = model([node("Add", ["h", "x"], ["next"], "add"), node("Concat", ["past", "x"], ["present"], "grow") + ON_AXIS_0],
                       [value_info("h", ["N", 2]), value_info("past", ["P", 2]), value_info("x", ["N", 2])],
                       [value_info("next", ["N", 2]), value_info("present", ["R", 2])])
        self.write("m.onnx", summed)
        self.anneal("build", "m.onnx", "-o", "m.engine", "--state", "h=next", "--state", "past=present")
        self.write("x.npy", npy([2, 2], [1, 2, 3, 4]))
        for more in ([], ["--iterations", 3], ["--iterations", 2, "--profile"]):
            self.anneal("run", "m.engine", "-i", "x.npy", *more,
                        out=["h: f32[2,2]  min 0  max 0  mean 0  [0, 0, 0, 0], the first value of a state", "past: f32[0,2]  no elements, the first",
                             "next: f32[2,2]  min 1  max 4  mean 2.5  [1, 2, 3, 4]\n", "present: f32[2,2]  min 1  max 4"])
        self.anneal("run", "m.engine", "-i", "x.npy", "--shapes", "past:1x2", out=["past: f32[1,2]", "present: f32[3,2]  min 0"])
        self.anneal("run", "m.engine", "-i", "x=x.npy", "-i", "h=x.npy", out=["next: f32[2,2]  min 2  max 8", "past: f32[0,2]  no elements, the first"])
        self.anneal("run", "m.engine", "-i", "random", "--shapes", "x:3x2", out=["h: f32[3,2]  min 0  max 0", "present: f32[3,2]"])
        self.anneal("run", "m.engine", "-i", "x.npy", "--shapes", "h:3x2", status=2, says="N is")
        # Two states of one size, of which one is named, or has a shape.
        both = model([node("Concat", ["a", "x"], ["c"], "one") + ON_AXIS_0, node("Concat", ["b", "x"], ["d"], "other") + ON_AXIS_0],
                     [value_info("a", ["P", 2]), value_info("b", ["P", 2]), value_info("x", ["N", 2])],
                     [value_info("c", ["R", 2]), value_info("d", ["R", 2])])
        self.write("m.onnx", both)
        self.anneal("build", "m.onnx", "-o", "m.engine", "--state", "a=c", "--state", "b=d")
        for more in (["-i", "a=x.npy"], ["--shapes", "a:2x2"]):
            self.anneal("run", "m.engine", "-i", "x=x.npy", *more, "--save-inputs", "in", out=["b: f32[2,2]", "d: f32[4,2]"])
            self.anneal("run", "m.engine", "-i", "x=in/x.npy", "-i", "a=in/a.npy", "-i", "b=in/b.npy", out="d: f32[4,2]")

    # --- eval

    def test_eval_in_every_overlap_mode(self):
        graph = model([node("Flatten", ["image"], ["scores"], "flat")], [value_info("image", ["N", 1, 2, 5])],
                      [value_info("scores", ["N", 10])])
        engine = self.build(graph)
        count = 41  # the last batch of 4 lacks three
        pixels = bytes((17 * i * i + 5 * i) % 251 for i in range(10 * count))
        best = [max(range(10), key=lambda k: pixels[10 * i + k]) for i in range(count)]
        labels = [best[i] if i % 3 else 0 for i in range(count)]
        self.write("i.idx3-ubyte", b"\0\0\x08\3" + struct.pack(">3I", count, 2, 5) + pixels)
        self.write("l.idx1-ubyte", b"\0\0\x08\1" + struct.pack(">I", count) + bytes(labels))
        files = ["--data", "i.idx3-ubyte", "--labels", "l.idx1-ubyte", "--batch", 4]
        told = {}
        for mode in ("none", "read-ahead", "contexts"):
            self.anneal("eval", engine, *files, "--overlap", mode, "--json", "e.json",
                        out=[f"samples/s from files to classes, overlap {mode}", "The bottleneck is "])
            told[mode] = json.loads((self.at / "e.json").read_text())
            times = told[mode].pop("times")
            self.assertEqual(times["overlap"], mode)
            self.assertGreater(times["total_milliseconds"], 0)
        self.assertEqual(len(told["none"]["predictions"]), count)
        self.assertEqual(told["read-ahead"], told["none"])
        self.assertEqual(told["contexts"], told["none"])
        self.anneal("eval", engine, *files, "--json", "e.json")
        self.assertEqual(json.loads((self.at / "e.json").read_text())["times"]["overlap"], "read-ahead")
        self.anneal("eval", engine, *files, "--overlap", "both", status=2, says="none,read-ahead,contexts")
        # A label that is no class, in a batch that is under way with another.
        self.write("l.idx1-ubyte", b"\0\0\x08\1" + struct.pack(">I", count) + bytes([3] * 30 + [11] * 11))
        self.anneal("eval", engine, *files, "--overlap", "contexts", status=2, says='has the label 11')

    def test_eval(self):
        graph = model([node("Flatten", ["image"], ["scores"], "flat")], [value_info("image", ["N", 1, 2, 5])],
                      [value_info("scores", ["N", 10])])
        engine = self.build(graph)
        # Three pictures of ten pixels each; the brightest pixel is the class.
        pictures = [[200 if i == c else 10 for i in range(10)] for c in (3, 7, 0)]
        self.write("i.idx3-ubyte", b"\0\0\x08\3" + struct.pack(">3I", 3, 2, 5) + bytes(sum(pictures, [])))
        self.write("l.idx1-ubyte", b"\0\0\x08\1" + struct.pack(">I", 3) + bytes([3, 7, 1]))
        self.write("names.txt", "\n".join("zero one two three four five six seven eight nine".split()) + "\n")
        files = ["--data", "i.idx3-ubyte", "--labels", "l.idx1-ubyte"]
        self.anneal("eval", engine, *files, "--classes", "names.txt", "--show", 3, "--batch", 2, "--scale", "1/255",
                    "--json", "e.json", out=["66.67 %", "three, right", "zero, but it is one", "samples/s"])
        written = json.loads((self.at / "e.json").read_text())
        self.assertEqual(written["top1_right"], 2)
        self.assertEqual([one["classes"][0] for one in written["predictions"]], [3, 7, 0])
        self.anneal("eval", "m.onnx", *files, "--against", "e.json", out=["net loss 0 of 3", "3 of 3"])
        self.anneal("eval", "m.onnx", *files, "--scale", -1, "--against", "e.json",
                    out=["33.33 %", "net loss 1 of 3 samples (lost 2, gained 1)", "0 of 3 have the same"])
        self.anneal("eval", engine, *files, "--samples", "first:1", out=["samples  1", "100.00 %"])
        self.write("dataset.json", '{"scale": "1/255", "labels": "l.idx1-ubyte"}')
        self.anneal("eval", engine, "--data", "i.idx3-ubyte", out=["66.67 %"])
        self.write("dataset.json", '{"resise": 3}')
        self.anneal("eval", engine, *files, status=2, says="dataset.json: there is no key \"resise\"")
        self.write("dataset.json", "{}")
        self.write("short.idx1-ubyte", b"\0\0\x08\1" + struct.pack(">I", 2) + bytes([3, 7]))
        self.anneal("eval", engine, *files[:2], "--labels", "short.idx1-ubyte", status=2, says="2 labels")
        self.anneal("eval", engine, *files[:2], status=2, says="no labels")
        self.anneal("eval", engine, *files, "--label-offset", 5, status=2, says="has 10 classes")
        self.anneal("eval", engine, *files, "--batch", 0, status=2, says="--batch")
        self.anneal("eval", engine, *files, "--std", "1,0", status=2, says="--std")
        self.anneal("eval", engine, "--data", "nowhere", status=2, says="nowhere")
        self.anneal("eval", self.build(ABS, "abs"), *files, status=2, says="does not fit the input")

    def test_likely_mistakes_are_hinted_at(self):
        graph = model([node("Flatten", ["image"], ["scores"], "flat")], [value_info("image", ["N", 1, 2, 5])],
                      [value_info("scores", ["N", 10])])
        engine = self.build(graph)
        classes = [i % 8 + 1 for i in range(40)]
        pictures = [[200 if i == c else 10 for i in range(10)] for c in classes]
        self.write("i.idx3-ubyte", b"\0\0\x08\3" + struct.pack(">3I", 40, 2, 5) + bytes(sum(pictures, [])))
        self.write("right.idx1-ubyte", b"\0\0\x08\1" + struct.pack(">I", 40) + bytes(classes))
        self.write("early.idx1-ubyte", b"\0\0\x08\1" + struct.pack(">I", 40) + bytes(c - 1 for c in classes))
        self.write("wrong.idx1-ubyte", b"\0\0\x08\1" + struct.pack(">I", 40) + bytes((c + 4) % 9 for c in classes))
        data = ["--data", "i.idx3-ubyte", "--labels"]
        quiet = subprocess.run([ANNEAL, "eval", engine, *data, "right.idx1-ubyte"], cwd=self.at, capture_output=True, text=True)
        self.assertNotIn("hint", quiet.stderr)
        self.anneal("eval", engine, *data, "early.idx1-ubyte", says=["would be 100.00 % with --label-offset 1",
                    'input "image" gets whole numbers up to 200', "--scale 1/255"])
        self.anneal("eval", engine, *data, "early.idx1-ubyte", "--label-offset", 2, says="with --label-offset 1")
        self.anneal("eval", engine, *data, "wrong.idx1-ubyte", "--scale", "1/255",
                    says="no better than chance among 10 classes. Likely causes: the network has 10 classes and labels end at 8")
        weights = field(8, "w") + tensor([1, 1, 1, 1], [2])
        self.write("c.onnx", model([node("Conv", ["image", "w"], ["y"], "conv")], [value_info("image", ["N", 1, 2, 5])],
                                   [value_info("y", ["N", 1, 2, 5])], [weights]))
        self.anneal("calibrate", "c.onnx", *data[:2], says="pixels as they are stored")

    # --- calibrate

    def test_weight_format(self):
        rows, columns = 64, 32
        weights = [((7 * i) % 31 - 15) / 64 for i in range(rows * columns)]
        self.build(model([node("MatMul", ["x", "w"], ["y"], "product")], [value_info("x", ["N", rows])],
                         [value_info("y", ["N", columns])], [field(8, "w") + tensor([rows, columns], weights)]))
        for form, said in ("int8", "in 8 bits:"), ("int8:16", "in 8 bits, with blocks of 16:"), ("int4", "in 4 bits, with blocks of 32:"):
            self.anneal("build", "m.onnx", "--weight-format", form, "-o", "w.engine",
                        out=[f"self-check: {form} weights compared with f32", '"y" is off by'])
            self.anneal("inspect", "w.engine", "--decisions", out=f"stores weights {said} rounding changes them by")
        self.write("x.npy", npy([3, rows], [((5 * i) % 17 - 8) / 8 for i in range(3 * rows)]))
        self.anneal("build", "m.onnx", "--weight-format", "int8", "--calibrate", "x.npy", "-o", "w.engine", out="compared with f32 on 3 inputs")
        self.anneal("compare", "m.onnx", "--weight-format", "int8", "--rtol", 0.02, "--atol", 0.02, out="all agree")
        self.anneal("build", "m.onnx", "--weight-format", "int4", "--layer-precision", "product=f32", "-o", "w.engine",
                    says="has no weights in integers: layer \"product\": its weights stay floats: f32 was asked for")
        self.anneal("build", "m.onnx", "--weight-format", "int4", "--target", "sm_90", "-o", "w.engine", out="self-check: int4 weights")
        self.anneal("build", "m.onnx", "--weight-format", "int4", "--target", "cpu:baseline", "-o", "w.engine",
                    says="the plan for cpu:baseline has no weights in integers")
        self.anneal("build", "m.onnx", "--weight-format", "int4:24x", status=2, says='weight format "int4:24x": a block has an even number')
        self.anneal("build", "m.onnx", "--weight-format", "fp8", status=2, says='weight format "fp8": give int8, int4')
        self.anneal("build", "m.onnx", "--weight-format", "int8", "--exact", status=2, says="request only one")
        self.anneal("build", "m.onnx", "--weight-format", "int8", "--max-drop", 1, "--calibrate", "x.npy", status=2,
                    says="--max-drop chooses the precisions")
        self.anneal("build", "m.onnx", "--weight-format", "int8", "--int8", "--calibrate", "x.npy", status=2, says="request only one")

    def test_calibrate(self):
        weights = field(8, "w") + tensor([4, 2], [1, -2, 3, 4, -5, 6, 7, 8])
        self.write("m.onnx", model([node("MatMul", ["x", "w"], ["y"], "product"), node("Relu", ["y"], ["z"], "relu")],
                                   [value_info("x", ["N", 4])], [value_info("z", ["N", 2])], [weights]))
        self.write("x.npy", npy([3, 4], [-1, 2, 3, 4, 0.5, -1.5, 2, 1, 4, 0, 1, 3]))
        self.anneal("calibrate", "m.onnx", "--data", "x.npy", "--method", "minmax", out="m.ranges: ranges of 2 tensors over 3 samples")
        table = (self.at / "m.ranges").read_text()
        self.assertIn('-1.5 4 -1.5 4 minmax "x"', table)
        self.assertRegex(table, r'\nlayer "product" (mse|largest) \S+ \S+\n')
        self.anneal("build", "m.onnx", "--int8", "--calibration", "m.ranges", "-o", "q.engine")
        self.anneal("inspect", "q.engine", "--decisions", out=["i8", "is int8", "of its results' mean square"])
        self.anneal("build", "m.onnx", "--int8", "--calibration", "m.ranges", "--max-layer-error", "0", "-o", "q.engine",
                    says='the plan for cpu has no layers in int8: layer "product": stays float: its error in 8 bits would be')
        self.anneal("calibrate", "m.onnx", "--data", "x.npy", "--method", "minmax", "--fit-weights", "off", "--correct-bias", "on", "-o", "b.ranges")
        self.assertIn('layer "product" largest', (self.at / "b.ranges").read_text())
        self.assertIn('bias "product"', (self.at / "b.ranges").read_text())
        self.anneal("build", "m.onnx", "--int8", "--calibration", "b.ranges", "-o", "q.engine")
        self.anneal("inspect", "q.engine", "--decisions", out="is int8, its bias corrected")
        self.anneal("calibrate", "m.onnx", "--data", "x.npy", "--fit-weights", "off", "--correct-bias", "off", "-o", "b.ranges")
        self.assertIn('layer "product" largest', (self.at / "b.ranges").read_text())  # errors are measured all the same
        self.anneal("calibrate", "m.onnx", "--data", "x.npy", "--equalize", "2", status=2, says="--equalize 2: there are on, off and auto")
        self.anneal("calibrate", "m.onnx", "--data", "x.npy", "--fit-weights", "often", status=2, says="--fit-weights often: there are on, off and auto")
        self.anneal("compare", "m.onnx", "--int8", "--calibration", "m.ranges", "--rtol", 0.05, "--atol", 0.05, out="all agree")
        self.anneal("bench", "m.onnx", "--int8", "--calibration", "m.ranges", "--iterations", 3, out="steps")
        self.anneal("build", "m.onnx", "--layer-precision", "prod.*=int8", "--calibration", "m.ranges", "-o", "q.engine")
        self.anneal("inspect", "q.engine", "--decisions", out=["is int8, as requested"])
        self.anneal("build", "m.onnx", "--int8", "--layer-precision", "product=f32", "--calibration", "m.ranges", "-o", "q.engine")
        self.anneal("inspect", "q.engine", "--decisions", out=["is f32, as requested"])
        self.anneal("build", "m.onnx", "--int8", "--calibrate", "x.npy", "--samples", "first:2", "-o", "q.engine")
        self.anneal("inspect", "q.engine", "--decisions", out="is int8")
        self.anneal("build", "m.onnx", "--int8", "--calibrate", "x.npy", "--calibration", "m.ranges", status=2, says="contradict")
        self.anneal("build", "m.onnx", "--int8", "--calibrate", "nowhere", status=2, says="nowhere")
        self.anneal("build", "m.onnx", "--calibrate", "x.npy", status=2, says="give --int8, --fp16, --bf16 or --best")
        self.anneal("build", "m.onnx", "--best", "--calibrate", "x.npy", "--target", "sm_90", "-o", "q.engine")
        self.anneal("inspect", "q.engine", "--decisions", out=["i8", "is int8"])
        # Without VNNI and BF16, f32 is the best that is known without measuring.
        plain = self.anneal("build", "m.onnx", "-o", "f.engine", "--target", "cpu:baseline")
        self.anneal("build", "m.onnx", "--best", "--calibrate", "x.npy", "-o", "q.engine", "--target", "cpu:baseline",
                    says=["the best precision is f32 for cpu:baseline", "anneal tune"])
        self.assertEqual((self.at / "q.engine").read_bytes(), (self.at / "f.engine").read_bytes())
        self.anneal("build", "m.onnx", "--int8", "--calibrate", "x.npy", "-o", "q.engine", "--target", "cpu:baseline",
                    says=["cpu:baseline has no VNNI"])
        self.anneal("build", "m.onnx", "--best", "--calibrate", "x.npy", "--layer-precision", "product=f16", "--target", "sm_90",
                    "-o", "h.engine")
        self.anneal("inspect", "h.engine", "--decisions", out=["f16[", "computes with operands of f16"])
        self.anneal("build", "m.onnx", "--fp16", "--calibrate", "x.npy", "-o", "h.engine")
        self.anneal("inspect", "h.engine", "--decisions", out="computes with operands of f16")
        self.write("far.npy", npy([1, 4], [40000, 2, 3, 4]))
        self.anneal("build", "m.onnx", "--fp16", "--calibrate", "far.npy", "-o", "h.engine")
        self.anneal("inspect", "h.engine", "--decisions", out=["stays f32: of its inputs", "reached 40000"])
        self.anneal("build", "m.onnx", "--int8", status=2, says="anneal calibrate")
        self.anneal("build", "m.onnx", "--calibration", "m.ranges", status=2, says="none is requested")
        self.anneal("build", "m.onnx", "--fp16", "--symmetric", status=2, says="--symmetric is for int8")
        self.anneal("build", "m.onnx", "--fp16", "--exact", status=2, says="request only one")
        self.anneal("build", "m.onnx", "--layer-precision", "nothing=f16", status=2, says='"nothing" matches no layer')
        self.anneal("build", "m.onnx", "--int8", "--calibration", "x.npy", status=2, says="x.npy: line 1: no calibration table")
        self.anneal("build", "m.onnx", "--layer-precision", "a=i4", status=2, says="REGEX=f32, f16, bf16 or int8")
        self.anneal("build", "m.onnx", "--layer-precision", "(=int8", "--calibration", "m.ranges", status=2, says="no regular expression")
        for flag in "--fp16", "--bf16", "--best":
            self.anneal("compare", "m.onnx", flag, "--rtol", 0.02, "--atol", 0.02, out="all agree")
        self.anneal("build", "m.onnx", "--fp16", "--target", "sm_90", "-o", "h.engine")
        self.anneal("inspect", "h.engine", "--decisions", out=["f16[", "computes with operands of f16"])
        self.anneal("build", "m.onnx", "--layer-precision", "product=bf16", "--target", "sm_90", "-o", "h.engine")
        self.anneal("inspect", "h.engine", "--decisions", out=["bf16[", "computes with operands of bf16"])
        self.anneal("build", "m.onnx", "--best", "--calibration", "m.ranges", "--target", "sm_90", "-o", "q.engine")
        self.anneal("inspect", "q.engine", "--decisions", out=["i8", "is int8"])
        large = self.at / "large.ranges"
        large.write_text(table.replace('-1.5 4 -1.5 4 minmax "x"', '-1.5 4 -1.5 40000 minmax "x"'))
        self.anneal("build", "m.onnx", "--fp16", "--calibration", "large.ranges", "-o", "h.engine")
        self.anneal("inspect", "h.engine", "--decisions", out=["stays f32: of its inputs", "reached 40000"])
        (self.at / "e.ranges").write_text(table + 'equalize "y" 1 -1\nequalize "elsewhere" 2\n')
        self.anneal("build", "m.onnx", "--int8", "--calibration", "e.ranges", "-o", "q.engine")
        self.anneal("inspect", "q.engine", "--decisions", out=["equalize_channels", "is not equalized"])
        (self.at / "e.ranges").write_text(table + 'equalize "y" 1 x\n')
        self.anneal("build", "m.onnx", "--int8", "--calibration", "e.ranges", status=2, says=["e.ranges", "\"x\" is not a number"])
        other = field(8, "w") + tensor([4, 2], [1, -2, 3, 4, -5, 6, 7, 9])
        self.write("o.onnx", model([node("MatMul", ["x", "w"], ["y"], "product")], [value_info("x", ["N", 4])],
                                   [value_info("y", ["N", 2])], [other]))
        self.anneal("build", "o.onnx", "--int8", "--calibration", "m.ranges", status=2, says="made for another model")
        self.write("bad.npy", npy([2, 4], [0, 0, 0, 0, 1, float("nan"), 0, 0]))
        self.anneal("calibrate", "m.onnx", "--data", "bad.npy", status=2, says=['tensor "x"', "NaN"])
        self.assertEqual((self.at / "m.ranges").read_text(), table)
        self.anneal("calibrate", "m.onnx", "--data", "x.npy", "--method", "kl", status=2, says="minmax, entropy")
        self.anneal("calibrate", "m.onnx", "--data", "x.npy", "-o", "nowhere/r", status=2, says="no folder nowhere")
        self.write("abs.onnx", ABS)
        self.anneal("calibrate", "abs.onnx", "--data", "x.npy", status=2)


if __name__ == "__main__":
    unittest.main()
