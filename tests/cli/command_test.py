#!/usr/bin/env python3
"""Runs the built command as a user would: help, exit statuses, error sentences, files left behind.

Arguments: the command `anneal`, and optionally unittest's.
"""

import json
import re
import os
import struct
import subprocess
import threading
import unittest
from pathlib import Path

import command_case
from command_case import ABS, ADD, ANNEAL, CHAIN, I64, SCAN, STRANGE, field, graph, model, node, npy, tensor, value_info


class Command(command_case.Command):
    # --- help

    def test_help_and_version(self):
        self.anneal("--version", out="anneal ")
        for arguments in [[], ["--help"]]:
            self.anneal(*arguments, out=["bench", "bisect", "build", "calibrate", "run", "check", "compare", "eval", "inspect",
                                          "monitor", "Exit status: 0"])
        for command in ["bench", "bisect", "build", "calibrate", "run", "check", "compare", "eval", "inspect",
                        "monitor"]:
            self.anneal(command, "--help", out=["Examples:", f"anneal {command} ", "Exit status"])
        passes = self.anneal("passes")
        self.assertEqual(passes, self.anneal("build", "--list-passes"))
        self.assertGreater(len(passes.splitlines()), 1)

    def test_wrong_usage(self):
        self.anneal("bild", status=2, says="anneal --help")
        self.anneal("build", "--no-such-flag", status=2, says="anneal build --help")
        self.anneal("run", status=2, says="engine")
        self.anneal("run", "x.engine", "--threads", "-1", status=2, says="at least 0")
        self.anneal("run", "x.engine", "--iterations", "many", status=2, says="at least 1")
        self.anneal("build", status=2, says="anneal build model.onnx")

    def test_misspelt_words_get_the_nearest(self):
        self.anneal("buld", "m.onnx", status=2, says='there is no command "buld"; did you mean build? (see anneal --help)')
        self.anneal("isnpect", status=2, says="did you mean inspect?")
        self.anneal("frobnicate", status=2, says='there is no command "frobnicate" (see')
        self.anneal("build", "m.onnx", "--fp61", status=2,
                    says="anneal build has no flag --fp61; did you mean --fp16? (see anneal build --help)")
        self.anneal("build", "m.onnx", "--no-such-flag", status=2, says="anneal build has no flag --no-such-flag (see")
        self.anneal("bench", "m.onnx", "--itrations=5", status=2, says="did you mean --iterations?")

    def test_spellings_of_trtexec_are_recognised(self):
        self.anneal("--onnx=m.onnx", "--fp16", status=2, says="--onnx is a flag of trtexec; here it is anneal build MODEL.onnx")
        self.anneal("build", "m.onnx", "--minShapes=x:1x3", status=2, says="here it is --min-shapes")
        self.anneal("bench", "m.engine", "--useCudaGraph", status=2, says="runs on a GPU are recorded")
        page = (Path(__file__).parents[2] / "docs/from_tensorrt.md").read_text()
        table = re.findall(r'\{"(--\w+)", ', (Path(__file__).parents[2] / "cli/flags/suggest.cc").read_text())
        self.assertGreater(len(table), 30)
        # The page on TensorRT has every flag that is recognised, but for those that ended with TensorRT 8.
        old = {"--avgRuns", "--streams", "--workspace", "--buildOnly", "--explicitBatch", "--stronglyTyped", "--skipInference",
               "--profilingVerbosity"}
        self.assertEqual([flag for flag in table if flag not in page and flag not in old], [])

    def test_shapes_with_commas_are_explained(self):
        self.write("abs.onnx", ABS)
        self.anneal("build", "abs.onnx", "--shapes", "x:1,3,224,224", status=2, says="write sizes with x between them")
        self.anneal("build", "abs.onnx", "--shapes", "1,3,224,224", status=2, says="write sizes with x between them")

    # --- build

    def test_a_model_from_a_pipe(self):
        self.write("m.onnx", ABS)
        self.anneal("build", "m.onnx", "-o", "file.engine")
        os.mkfifo(self.at / "pipe")
        self.anneal("build", "pipe", status=2, says="name it with -o")
        for shapes in ((), ("--shapes", "2x3")):
            writer = threading.Thread(target=lambda: (self.at / "pipe").write_bytes((self.at / "m.onnx").read_bytes()))
            writer.start()
            self.anneal("build", "pipe", "-o", "pipe.engine", *shapes)
            writer.join()
            self.assertEqual((self.at / "pipe.engine").read_bytes(), (self.at / "file.engine").read_bytes())

    def test_a_limit_of_file_sizes_is_an_error(self):
        self.write("m.onnx", ABS)
        done = subprocess.run(["bash", "-c", f"ulimit -f 0; '{ANNEAL}' build m.onnx"], cwd=self.at, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(self.files(), ["m.onnx"])

    def test_bad_models_leave_no_file(self):
        for name, content, status in [("empty", b"", 2), ("picture", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(100), 2),
                                      ("cut", ABS[:-7], 2), ("text", b"hello, this is no model\n", 2),
                                      ("strange", STRANGE, 3)]:
            with self.subTest(name):
                self.write("m.onnx", content)
                self.anneal("build", "m.onnx", "-o", "m.engine", status=status,
                            says="NoSuchOperator" if status == 3 else "m.onnx")
                self.assertEqual(self.files(), ["m.onnx"])

    def test_places_that_cannot_be_written_or_read(self):
        self.write("m.onnx", ABS)
        (self.at / "folder").mkdir()
        self.anneal("build", "missing.onnx", status=2, says="missing.onnx")
        self.anneal("build", "folder", status=2, says="folder")
        self.anneal("build", "m.onnx", "-o", "nowhere/m.engine", status=2, says="no folder nowhere")
        self.anneal("build", "m.onnx", "-o", "folder", status=2, says="it is a folder")
        self.anneal("build", "m.onnx", "-o", "m.onnx", status=2, says="the model itself")
        for flag in ["--report", "--dump-graph"]:
            self.anneal("build", "m.onnx", flag, "nowhere/x", status=2, says="nowhere/x")
            self.anneal("build", "missing.onnx", flag, "nowhere/x", status=2, says="no folder nowhere")
            self.anneal("build", "missing.onnx", flag, "folder", status=2, says="it is a folder")
        self.assertEqual(self.files(), ["m.onnx"])
        self.assertEqual((self.at / "m.onnx").read_bytes(), ABS)
        os.symlink("folder/later.engine", self.at / "link.engine")  # to a file that is not there yet
        self.anneal("build", "m.onnx", "-o", "link.engine")
        self.assertTrue((self.at / "link.engine").is_symlink())
        self.assertIn("folder/later.engine", self.files())
        os.symlink("nowhere/m.engine", self.at / "lost.engine")
        self.anneal("build", "m.onnx", "-o", "lost.engine", status=2, says="no folder nowhere")
        self.anneal("build", "m.onnx", "-o", "/dev/null")
        self.assertTrue(Path("/dev/null").is_char_device())

    def test_sizes_beyond_any_memory(self):
        self.write("m.onnx", model([node("Expand", ["x", "s"], ["e"], "n"), node("ReduceSum", ["e"], ["y"], "r")],
                                   [value_info("x", [1])], [value_info("y", ["N"])],
                                   [field(8, "s") + tensor([1], [2 ** 45], I64)]))
        self.anneal("build", "m.onnx", status=2, says=['tensor "e" of step', "is larger than any memory"])

    def test_a_failed_build_keeps_the_old_engine(self):
        engine = self.at / self.build(ABS)
        before = engine.read_bytes()
        self.write("m.onnx", STRANGE)
        self.anneal("build", "m.onnx", status=3)
        self.assertEqual(engine.read_bytes(), before)

    def test_build_options(self):
        self.write("m.onnx", ADD)
        self.anneal("build", "m.onnx", "--shapes", "a:4x3,b:4x3", "--report", "r.json", "--dump-graph", "g.txt")
        self.assertEqual(json.loads((self.at / "r.json").read_text())["model"], "m.onnx")
        self.assertIn("graph tiny", (self.at / "g.txt").read_text())
        self.anneal("inspect", "m.engine", out="f32[4,3]")
        self.anneal("build", "m.onnx", "--shapes", "c:4x3", status=2, says="c")
        self.anneal("build", "m.onnx", "--shapes", "4x3", status=2, says="2 inputs")
        self.anneal("build", "m.onnx", "--shapes", "a:4xQ", status=2, says="not a shape")
        self.anneal("build", "m.onnx", "--shapes", "a:4x5", status=2, says="a")
        self.anneal("build", "m.onnx", "--min-shapes", "a:4x3", "--max-shapes", "a:2x3", status=2, says="shrink")
        for flag in ["--min-shapes", "--opt-shapes", "--max-shapes"]:
            self.anneal("build", "m.onnx", "--shapes", "a:4x3", flag, "b:8x3", status=2, says=["--shapes and", flag])
        self.anneal("build", "m.onnx", "--skip-pass", "no_such_pass", status=2, says="no_such_pass")
        self.anneal("build", "m.onnx", "--skip-kernel", "cpu.no_such", status=2, says='no kernel "cpu.no_such"')
        self.anneal("build", "m.onnx", "--skip-kernel", "cpu.pointwise.reference,cpu.conv.winograd")
        self.anneal("build", "m.onnx", "--target", "toaster", status=2, says="toaster")

    def test_memory_limits(self):
        engine = self.build(ADD)
        huge = ["--shapes", "a:1000000x3,b:1000000x3"]
        for command in (["build", "m.onnx", "-o", "huge.engine"], ["bench", "m.onnx"]):
            self.anneal(*command, *huge, "--max-memory", "1MB", status=2,
                        says=["m.onnx: tensor", "f32[1000000,3]", "takes 12000000 bytes", "limit is 1048576 bytes"])
        self.assertNotIn("huge.engine", self.files())
        for command in ("run", "bench"):
            self.anneal(command, engine, *huge, "-i", "random", "--max-memory", "1MB", status=2,
                        says=["bytes are needed", "limit is 1048576 bytes", "--max-memory"])
            self.anneal(command, engine, "--shapes", "a:4x3,b:4x3", "-i", "random", "--max-memory", "1MB")
        self.anneal("build", "m.onnx", "-o", "huge.engine", "--shapes", "a:1000000000000x3,b:1000000000000x3",
                    out="note: a run of the plan for cpu needs")
        self.anneal("run", engine, "--max-memory", "some", status=2, says="--max-memory")

    def test_one_of_a_thing_is_no_plural(self):
        self.write("m.onnx", ABS)
        self.assertIn("m.engine: 1 step for cpu", self.anneal("build", "m.onnx"))
        self.anneal("inspect", "m.engine", out=[": 1 step, arena", "1 plan"])
        self.anneal("inspect", "m.onnx", out="\n1 layer\n")

    def test_two_builds_give_the_same_bytes(self):
        self.write("m.onnx", ABS)
        self.anneal("build", "m.onnx", "-o", "1.engine", "-q")
        self.anneal("build", "m.onnx", "-o", "2.engine", "-q")
        self.assertEqual((self.at / "1.engine").read_bytes(), (self.at / "2.engine").read_bytes())

    # --- run

    def test_run(self):
        engine = self.build(ABS)
        self.write("x.npy", npy([2, 3], [-1, 2, -3, 4, float("nan"), float("-inf")]))
        self.write("x.pb", tensor([2, 3], [-1, 2, -3, 4, 5, 6]))
        self.write("x.raw", struct.pack("<6f", 1, 2, 3, 4, 5, 6))
        self.anneal("run", engine, "--input", "x=x.npy", "--save", "out", out=["y: f32[2,3]", "1 NaN", "1 Inf"])
        saved = (self.at / "out" / "y.npy").read_bytes()
        self.assertTrue(saved.endswith(struct.pack("<6f", 1, 2, 3, 4, float("nan"), float("inf"))))
        self.anneal("run", engine, "--input", "x.pb", "--no-mmap", out="min 1  max 6")
        self.anneal("run", engine, "--input", "x=x.raw", out="min 1  max 6")
        first = self.anneal("run", engine, "--input", "random:1")
        second = self.anneal("run", engine, "--input", "random:2")
        self.assertNotEqual(first.splitlines()[0], second.splitlines()[0])
        self.anneal("run", engine, "-i", "random", "--iterations", 3, "--profile", out=["median", "kernel"])

    def test_run_observe(self):
        engine = self.build(CHAIN)
        self.write("x.npy", npy([2, 3], [-1, 2, -3, 4, 5, 6]))
        plain = self.anneal("run", engine, "-i", "x.npy").splitlines()[1]
        out = self.anneal("run", engine, "-i", "x.npy", "--observe", "^(a|p.b|y)$", "--save", "out", out=plain)
        table = [line.split() for line in out.splitlines()[-4:]]
        self.assertEqual([row[0] for row in table], ["p/b", "p:b", "y", "a"])
        self.assertEqual(table[0][1:3], ["f32[2,3]", "neg"])
        self.assertEqual(table[3][1:5], ["-", "neg", "fused", "into"])
        self.assertEqual(self.files(), ["m.engine", "m.onnx", "out/p_b.npy", "out/p_b_2.npy", "out/y.npy", "x.npy"])
        values = struct.unpack("<6f", (self.at / "out" / "p_b.npy").read_bytes()[-24:])
        self.assertEqual(values, (-1, -2, -3, -4, -5, -6))
        self.anneal("run", engine, "-i", "random", "--observe", "nothing", status=2, says="matches no tensor")
        self.anneal("run", engine, "-i", "random", "--observe", "(", status=2, says='--observe "("')

    def test_run_observe_iterations(self):
        engine = self.build(SCAN)
        out = self.anneal("run", engine, "-i", "random", "--observe", "s$", "--save", "out", "--profile",
                          out=["in iteration 0 of rows", "in iteration 1 of rows", "times"])
        told = [line.split()[0] for line in out.splitlines() if " in iteration " in line]
        self.assertEqual(len(told), 2)
        self.assertEqual(told[0], told[1])
        files = [f for f in self.files() if ".iteration-" in f]
        self.assertEqual([f.split(".iteration-")[1] for f in files], ["0.npy", "1.npy"])
        step = next(line for line in out.splitlines() if line.rstrip().endswith(" 2") and "softmax" in line)
        self.assertIn("cpu.softmax", step)

    def test_run_with_open_sizes(self):
        engine = self.build(ADD)
        self.write("a.npy", npy([5, 3], range(15)))
        self.anneal("run", engine, "-i", "a=a.npy", "-i", "b=random", out=["b: f32[5,3]", "y: f32[5,3]"])
        self.anneal("run", engine, "-i", "random", "--shapes", "a:2x3,b:2x3", out="y: f32[2,3]")
        self.anneal("run", engine, "-i", "a=a.npy", "-i", "b=random", "--shapes", "b:2x3", status=2)
        wild = "a:1000000000x3,b:1000000000x3"
        self.anneal("build", "m.onnx", "--min-shapes", "a:1x3,b:1x3", "--opt-shapes", wild, "--max-shapes", wild)
        self.anneal("run", engine, "-i", "random", status=2, says=["11.2 GiB", "--shapes"])
        self.anneal("run", engine, "-i", "random", "--shapes", "a:2x3,b:2x3", out="y: f32[2,3]")

    def test_rows_at_once(self):
        engine = self.build(ADD)
        self.write("a.npy", npy([5, 3], range(15)))
        saved = []
        for rows in (0, 1, 2, 5, 9):
            self.anneal("run", engine, "-i", "a=a.npy", "-i", "b=a.npy", "--micro-batch", rows, "--save", "out")
            saved.append((self.at / "out" / "y.npy").read_bytes())
        self.assertTrue(saved[0].endswith(struct.pack("<15f", *range(0, 30, 2))))
        self.assertEqual(len(set(saved)), 1)
        self.anneal("bench", engine, "--shapes", "a:5x3,b:5x3", "--micro-batch", 2, "--iterations", 3, "--profile")
        self.anneal("run", engine, "-i", "a=a.npy", "-i", "b=a.npy", "--micro-batch", -1, status=2, says="at least 0")

    def test_guessed_sizes(self):
        pool = node("MaxPool", ["x"], ["y"], "pool") + field(5, field(1, "kernel_shape") + field(8, 5) + field(20, 7))
        self.build(model([pool], [value_info("x", ["N", 2, "W"])], [value_info("y", ["N", 2, "V"])]))
        self.anneal("run", "m.engine", "-i", "random", "--save-inputs", "in", out="x: f32[1,2,8]")
        self.assertIn(b"(1,2,8)", (self.at / "in" / "x.npy").read_bytes())
        self.anneal("bench", "m.onnx", "--iterations", 1, "--warmup", 0, out="x: f32[1,2,8]")
        # The layer is asked which sizes it accepts.
        self.build(model([node("Reshape", ["x", "s"], ["y"], "reshape")], [value_info("x", ["N"])],
                         [value_info("y", ["M", 7])], [tensor([2], [-1, 7], I64) + field(8, "s")]))
        self.anneal("run", "m.engine", "-i", "random", out="x: f32[7]")
        self.anneal("bench", "m.onnx", "--iterations", 1, "--warmup", 0, out="x: f32[7]")
        self.anneal("run", "m.engine", "-i", "random", "--shapes", "14", out="y: f32[2,7]")
        self.anneal("inspect", "m.engine", out='build with other --opt-shapes (with these inputs, step "reshape"')

    def test_no_random_inputs(self):
        nodes = [node("Floor", ["x"], ["f"], "floor"), node("NonZero", ["f"], ["n"], "none"),
                 node("Reshape", ["n", "s"], ["y"], "reshape")]
        self.build(model(nodes, [value_info("x", ["N"])], [value_info("y", [2, 3], I64)], [tensor([2], [2, 3], I64) + field(8, "s")]))
        self.anneal("run", "m.engine", "-i", "random", status=2,
                    says=["m.engine", "other runs", '"x" of', "--shapes", "--input NAME=FILE", 'step "reshape" (Reshape)'])

    def test_wrong_inputs(self):
        engine = self.build(ABS)
        self.write("rank.npy", npy([6], range(6)))
        self.write("size.npy", npy([3, 2], range(6)))
        self.write("dtype.npy", npy([2, 3], range(6), "<i8", "q"))
        self.write("short.raw", b"abc")
        self.write("empty.npy", b"")
        self.write("picture.pb", b"\xff\xd8\xff\xe0")
        for flag, says in [("z=rank.npy", '"z"'), ("x=rank.npy", "x"), ("x=size.npy", "x"), ("x=dtype.npy", "i64"),
                           ("x=short.raw", "3 bytes"), ("x=empty.npy", "empty.npy"), ("x=missing.npy", "missing.npy"),
                           ("x=picture.pb", "picture.pb"), ("x=.", "folder"), ("x=random:two", "whole number")]:
            with self.subTest(flag):
                self.anneal("run", engine, "--input", flag, status=2, says=says)
        self.anneal("run", engine, status=2, says="--input x=random")
        self.anneal("run", engine, "-i", "x=random", "-i", "x=random", status=2, says="twice")
        self.anneal("run", engine, "-i", "random", "--save", "rank.npy", status=2, says="rank.npy")
        self.anneal("run", engine, "-i", "random", "--device", "toaster", status=2, says="toaster")

    def test_bad_engines(self):
        whole = (self.at / self.build(ABS)).read_bytes()
        self.write("cut.engine", whole[:-100])
        self.write("empty.engine", b"")
        self.write("picture.engine", b"\xff\xd8\xff\xe0" + bytes(100))
        self.write("flipped.engine", whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
        for name in ["cut", "empty", "picture", "flipped", "missing"]:
            for command in [["run", f"{name}.engine", "-i", "random"], ["inspect", f"{name}.engine"]]:
                with self.subTest(command):
                    self.anneal(*command, status=2, says=f"{name}.engine")
        self.anneal("run", "m.onnx", status=2, says="--input x=random")

    def test_names_cannot_forge_lines(self):
        name = "x\nanneal: error: forged\x1b[2J"
        self.build(model([node("Softmax", [name], ["y"], name)], [value_info(name, [2])], [value_info("y", [2])]))
        shown = "x\\x0aanneal: error: forged\\x1b[2J"
        for command in (["run", "m.engine", "-i", "random", "--observe", "."], ["inspect", "m.engine", "--decisions"],
                        ["inspect", "m.onnx"], ["bench", "m.onnx", "--iterations", 1, "--warmup", 0, "--profile"]):
            self.assertNotIn("\x1b", self.anneal(*command, out=shown))
        for command in (["inspect", "m.onnx", "--graph"], ["inspect", "m.engine", "--plan"]):
            self.assertNotIn("\nanneal", self.anneal(*command, out="forged\\x1b"))
        self.write("s.onnx", model([node("Strange", [name], ["y"], name)], [value_info(name, [2])], [value_info("y", [2])]))
        self.anneal("build", "s.onnx", status=3, says=f'"{shown}": not implemented\n  --library FILE')

    def test_branches_in_branches(self):
        inner = graph([node("Neg", ["x"], ["z"], "neg")], [], [field(1, "z")])
        other = graph([node("Abs", ["x"], ["w"], "abs")], [], [field(1, "w")])
        for _ in range(128):
            branch = node("If", ["c"], ["z"], "if")
            for name, body in (("then_branch", inner), ("else_branch", other)):
                branch += field(5, field(1, name) + field(6, body) + field(20, 5))
            inner = graph([branch], [], [field(1, "z")])
        self.build(model([branch], [value_info("c", [], 9), value_info("x", [2])], [field(1, "z")]))
        self.anneal("run", "m.engine", "-i", "random", out="z: f32[2]")
        for flags in ([], ["--plan"], ["--json"]):
            self.anneal("inspect", "m.engine", *flags, out="If")
        self.anneal("inspect", "m.onnx", "--graph", out="If")
        self.anneal("inspect", "m.onnx", out="in bodies of If and Loop")

    # --- inspect

    def test_a_replaced_engine_is_told(self):
        engine = self.build(ADD)
        self.anneal("build", "m.onnx", out=f"{engine} (replaced): ")
        self.assertNotIn("replaced", self.anneal("build", "m.onnx", "-o", engine))
        self.anneal("calibrate", engine, "--data", ".", status=2, says="an engine that Anneal has built already")

    def test_inspect(self):
        engine = self.build(ADD)
        self.anneal("inspect", "m.onnx", out=["opset 13", "a", "f32[N,3]"])
        self.anneal("inspect", "m.onnx", "--graph", out="graph tiny")
        self.assertEqual(json.loads(self.anneal("inspect", "m.onnx", "--json"))["opset"], 13)
        self.anneal("inspect", engine, out=["plan for cpu", "cpu."])
        self.anneal("inspect", engine, "--plan", "--no-mmap", out="N")
        self.anneal("inspect", engine, "--decisions", out="stage")
        self.anneal("inspect", engine, out="activations: 0 B at the opt shapes, 1.00 times the lower bound of 0 B")
        plans = json.loads(self.anneal("inspect", engine, "--json"))["plans"]
        self.assertEqual(plans[0]["activation_memory"]["ratio"], 1)
        self.assertEqual(plans[0]["target"], "cpu")
        self.anneal("build", "m.onnx", "--state", "a=y", "-o", "state.engine")
        self.anneal("inspect", "state.engine", out="f32[N,3], a state: output y of the run before")
        self.anneal("build", "m.onnx", "--state", "a=d", status=2, says='"a=d": the model has no such output')
        self.anneal("build", "m.onnx", "--state", "a", status=2, says="give INPUT=OUTPUT")
        self.anneal("inspect", engine, "--graph", status=2, says="--plan")
        self.anneal("inspect", "m.onnx", "--plan", status=2, says="anneal build")
        self.write("s.onnx", STRANGE)
        self.anneal("inspect", "s.onnx", status=3, says="NoSuchOperator")

    # --- check

    def case(self, name, content=ABS, inputs=((-1, 2, -3, 4, 5, -6),), outputs=((1, 2, 3, 4, 5, 6),)):
        self.write(f"{name}/model.onnx", content)
        for k, values in enumerate(inputs):
            self.write(f"{name}/test_data_set_0/input_{k}.pb", tensor([2, 3], values))
        for k, values in enumerate(outputs):
            self.write(f"{name}/test_data_set_0/output_{k}.pb", tensor([2, 3], values))

    def last_line(self, *arguments, **expected):
        return self.anneal("check", *arguments, **expected).splitlines()[-1]

    def test_check(self):
        self.case("all/good")
        self.case("all/deep/wrong", outputs=((1, 2, 3, 4, 5, 7),))
        self.case("all/deep/strange", STRANGE)
        self.write("all/light/net.onnx", ABS)
        self.write("all/light/net_output_0.pb", tensor([2, 3], [i / 6 for i in range(6)]))
        self.assertEqual(self.last_line("all/good"), "1 passed, 0 failed, 0 skipped")
        self.assertEqual(self.last_line("all/light"), "1 passed, 0 failed, 0 skipped")
        out = self.anneal("check", "all", "--jobs", 2, "--json", "r.json", status=1,
                          out=["NoSuchOperator", "7", "ok    good"])
        self.assertEqual(out.splitlines()[-1], "2 passed, 2 failed, 0 skipped")
        self.assertEqual([line.split()[1] for line in out.splitlines()[:-1]],
                         ["deep/strange", "deep/wrong", "good", "light/net"])
        cases = {c["name"]: c for c in json.loads((self.at / "r.json").read_text())["cases"]}
        self.assertEqual(cases["deep/wrong"]["status"], "failed")
        self.assertEqual(cases["deep/wrong"]["max_abs_error"], 1)
        self.assertEqual(cases["deep/strange"]["error"], "unsupported")
        self.assertEqual(self.last_line("all", "--filter", "good|light"), "2 passed, 0 failed, 2 skipped")

        self.write("loose.tsv", "good\t1\nnobody\t1\n")
        done = subprocess.run([ANNEAL, "check", "all/good", "--tolerances", "loose.tsv"], capture_output=True, text=True,
                              cwd=self.at)
        self.assertEqual((done.returncode, done.stderr), (0, "anneal: the tolerance of nobody names no case\n"))

        self.write("known.txt", "deep/wrong\tthe 7 is wrong\nall/deep/strange   no such operator\n")
        self.assertEqual(self.last_line("all", "--known-failures", "known.txt"), "2 passed, 2 failed, 0 skipped")
        self.write("loose.tsv", "good\t1\nnobody\t1\n")
        done = subprocess.run([ANNEAL, "check", "all/good", "--tolerances", "loose.tsv"], capture_output=True, text=True,
                              cwd=self.at)
        self.assertEqual((done.returncode, done.stderr), (0, "anneal: the tolerance of nobody names no case\n"))

        self.write("known.txt", "deep/wrong\tx\ndeep/strange\tx\ngood\tit is good\n")
        self.assertEqual(self.last_line("all", "--known-failures", "known.txt", status=1, out="delete its line"),
                         "1 passed, 3 failed, 0 skipped")

        self.write("t.tsv", "case\tatol\trtol\tmax_differ\ndeep/wrong\t1\t-\t-\n")
        self.assertEqual(self.last_line("all/deep/wrong", "--tolerances", "t.tsv"), "1 passed, 0 failed, 0 skipped")
        self.write("all/models.tsv", "model\tref_noise_maxabs\ndeep/wrong\t0.26\n")
        self.assertEqual(self.last_line("all", "--filter", "wrong"), "1 passed, 0 failed, 3 skipped")

    def test_check_counts_files(self):
        self.case("few", ADD, inputs=((0,) * 6,))
        self.case("many", outputs=((1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6)))
        self.anneal("check", "few", status=1, out=["FAIL", "2 inputs", "0 passed, 1 failed, 0 skipped"])
        self.anneal("check", "many", status=1, out=["FAIL", "1 outputs", "0 passed, 1 failed, 0 skipped"])

    def test_check_refuses(self):
        (self.at / "empty").mkdir()
        self.case("good")
        self.write("picture.tar.zst", b"\xff\xd8\xff\xe0" + bytes(100))
        self.anneal("check", "empty", status=2, says="no test case")
        self.anneal("check", "good", "--json", "nowhere/r.json", status=2, says="no folder nowhere")
        self.anneal("check", "missing", status=2, says="missing")
        self.anneal("check", "picture.tar.zst", status=2, says="picture.tar.zst")
        self.anneal("check", "good", "--filter", "(", status=2, says="regular expression")
        self.anneal("check", "good", "--filter", "nothing", status=2, says="matches none")
        self.anneal("check", "good", "--skip-pass", "no_such_pass", status=1, out="no_such_pass")
        self.anneal("check", "good", "--only-passes", "nope", status=1, out='no pass "nope" to run')
        self.anneal("check", "good", "--exact", out="1 passed")
        self.write("known.txt", "good\n")
        self.anneal("check", "good", "--known-failures", "known.txt", status=2, says="line 1")

    def test_check_reads_archives(self):
        self.case("top/a")
        self.case("top/b")
        subprocess.run(["tar", "-czf", "cases.tar.gz", "top"], cwd=self.at, check=True)
        temporary = self.at / "temporary"
        temporary.mkdir()
        self.assertEqual(self.last_line("cases.tar.gz", env={"TMPDIR": str(temporary)}), "2 passed, 0 failed, 0 skipped")
        self.assertEqual(list(temporary.iterdir()), [])

    # --- bench

    def test_bench(self):
        self.write("m.onnx", CHAIN)
        engine = self.build(ADD, "add")
        quick = ["--warmup", 2, "--iterations", 5]
        out = self.anneal("bench", "m.onnx", *quick, "--json", "r.json", "--profile",
                          out=["m.onnx, 3 steps for cpu", "build  ", "first inference", "5 runs in", "after 2 to warm up",
                               "inferences/s", "peak ", "planned for activations", "other processes used", "kernel"])
        self.assertNotIn("nan", out)
        report = json.loads((self.at / "r.json").read_text())
        ranks = [report["latency_milliseconds"][k] for k in ("min", "median", "p90", "p95", "p99", "max")]
        self.assertEqual(ranks, sorted(ranks))
        self.assertEqual((report["runs"], report["warmup_runs"], report["contexts"]), (5, 2, 1))
        self.assertEqual(len(report["profile"]), 3)
        memory = report["memory_bytes"]
        self.assertGreater(memory["peak_resident"], memory["resident_before_load"])
        self.assertGreaterEqual(memory["per_context"], memory["planned_arena"])
        self.anneal("bench", engine, "--contexts", 3, "--threads", 1, *quick, "--shapes", "a:5x3,b:5x3",
                    out=["a: f32[5,3]", "15 runs in", "3 contexts, at most 1 thread each"])
        self.assertNotIn("build  ", self.anneal("bench", engine, "--duration", "0.05", "--warmup", "10ms", "--no-mmap"))
        self.assertEqual(self.files(), ["add.engine", "add.onnx", "m.onnx", "r.json"])

    def test_bench_of_shape_changes(self):
        engine = self.build(ADD, "add")
        self.anneal("bench", engine, "--warmup", 1, "--iterations", 3, "--json", "r.json", "--shapes", "a:2x3,b:2x3",
                    "--change-to", "a:5x3,b:5x3", "--change-to", "a:7x3,b:7x3",
                    out=["returning", "prepared", "a: [2,3], b: [2,3]", "a: [5,3], b: [5,3]", "a: [7,3], b: [7,3]", "x"])
        changes = json.loads((self.at / "r.json").read_text())["shape_changes"]
        self.assertEqual([change["inputs"][0] for change in changes], ["a: f32[2,3]", "a: f32[5,3]", "a: f32[7,3]"])
        for time in ("steady", "returning", "new", "prepare", "prepared"):
            self.assertTrue(all(change[time + "_milliseconds"] > 0 for change in changes), time)
        self.anneal("bench", engine, "--shapes", "a:2x3,b:2x3", "--change-to", "a:2x3,b:2x3", status=2,
                    says="--change-to a:2x3,b:2x3")
        self.anneal("bench", engine, "--change-to", "c:2x3", status=2, says='no input "c"')
        self.write("a.npy", npy([2, 3], range(6)))
        self.anneal("bench", engine, "-i", "a=a.npy", "-i", "b=random", "--change-to", "a:5x3,b:5x3", status=2,
                    says='--change-to says [5,3] for input "a", but a.npy holds [2,3]')

    def test_bench_with_passes_chosen(self):
        self.write("chain.onnx", CHAIN)
        self.anneal("bench", "chain.onnx", "--iterations", 3, "--only-passes", "fold_constants", out="4 steps")
        self.anneal("bench", "chain.onnx", "--iterations", 3, "--exact", out="3 steps")

    def test_bench_refuses(self):
        engine = self.build(ABS)
        self.write("s.onnx", STRANGE)
        self.anneal("bench", "s.onnx", status=3, says="NoSuchOperator")
        self.anneal("bench", "missing.onnx", status=2, says="missing.onnx")
        self.anneal("bench", "missing.engine", status=2, says="missing.engine")
        self.anneal("bench", engine, "--warmup", "soon", status=2, says='--warmup "soon"')
        self.anneal("bench", engine, "--duration", 1, "--iterations", 1, status=2, says="--duration")
        self.anneal("bench", engine, "--contexts", 0, status=2, says="--contexts")
        self.anneal("bench", engine, "--json", "nowhere/r.json", status=2, says="no folder nowhere")
        self.anneal("bench", engine, "-i", "x=missing.npy", status=2, says="missing.npy")
        self.anneal("bench", "m.onnx", "--shapes", "y:2x3", status=2, says='no such input')
        self.anneal("bench", "m.onnx", "--only-passes", "nope", status=2, says='no pass "nope" to run')

    def test_flags_of_models_are_refused_with_engines(self):
        engine = self.build(ABS)
        for command in ("bench", "compare", "eval"):
            others = {"bench": [], "compare": [engine], "eval": ["--data", "."]}[command]
            for flags in (["--fp16"], ["--bf16"], ["--layer-precision", "x=f16"]):
                self.anneal(command, engine, *others, *flags, status=2, says=[engine, "is an engine", flags[0]])
        self.anneal("bench", engine, "--skip-pass", "fuse_epilogue", "--exact", status=2, says="--skip-pass, --exact")
        self.anneal("compare", engine, "m.onnx", "--fp16")

    # --- functions on the emulated device

    def test_names_the_sizes_that_kernels_are_chosen_for(self):
        self.write("m.onnx", ADD)
        self.anneal("build", "m.onnx", "--target", "emulated", out="kernels are chosen for N = 1; --opt-shapes")
        self.assertNotIn("chosen", self.anneal("build", "m.onnx", "--target", "emulated", "--opt-shapes", "a:4x3,b:4x3"))

    def test_profile_of_accesses(self):
        self.write("m.onnx", ADD)
        self.anneal("build", "m.onnx", "--target", "emulated", "-o", "m.engine")
        out = self.anneal("run", "m.engine", "-i", "random", "--shapes", "a:64x3,b:64x3", "--device", "emulated",
                          "--profile", out=["Accesses to memory", "global load", "global store", "warps; each:"])
        self.assertIn("12.0", out)  # sectors of a request
        self.assertNotIn("Accesses", self.anneal("run", "m.engine", "-i", "random", "--shapes", "a:64x3,b:64x3",
                                                 "--device", "emulated"))
        self.anneal("bench", "m.engine", "--target", "emulated:counting", "--shapes", "a:64x3,b:64x3", "--iterations", 1,
                    "--profile", "--json", "r.json")
        step = next(s for s in json.loads((self.at / "r.json").read_text())["profile"] if "functions" in s)
        sites = step["functions"][0]["sites"]
        self.assertEqual({s["kind"] for s in sites}, {"global load", "global store"})
        self.assertTrue(all(s["sectors"] == s["ideal_sectors"] > 0 for s in sites), sites)

    def test_a_capture_that_fails_is_told_once(self):
        self.write("m.onnx", ADD)
        self.anneal("build", "m.onnx", "--target", "emulated", "-o", "m.engine")
        shapes = ["--shapes", "a:2x3,b:2x3", "--iterations", "4"]
        for arguments in (["run", "m.engine", "-i", "random", "--device", "emulated"],
                          ["bench", "m.engine", "--target", "emulated", "--json", "r.json"]):
            done = subprocess.run([ANNEAL, *arguments, *shapes], capture_output=True, text=True, cwd=self.at,
                                  env={**os.environ, "ANNEAL_EMULATED_CAPTURE_FAILS": "begin"}, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"\Aanneal: steps .* are launched one by one in every run, .*\n\Z")
        self.assertEqual(json.loads((self.at / "r.json").read_text())["remarks"], [done.stderr.strip()[len("anneal: "):]])

    # --- bisect

    def test_bisect(self):
        self.write("m.onnx", CHAIN)
        self.anneal("bisect", "m.onnx", "--json", "b.json", out="no rewrite does harm")
        self.assertIsNone(json.loads((self.at / "b.json").read_text())["harm"])
        self.anneal("bisect", "m.onnx", "--target", "emulated", "--exact", "-i", "random:3", out="no rewrite does harm")
        self.anneal("bisect", "m.onnx", "--skip-pass", "nope", status=2, says='no pass "nope"')
        self.anneal("bisect", "missing.onnx", status=2, says="missing.onnx")
        self.anneal("bisect", "m.onnx", "--target", "gpu", status=2, says='"gpu" is no target')

    def test_passes_of_a_build(self):
        self.write("m.onnx", CHAIN)
        self.anneal("build", "m.onnx", "--dump-passes", "dump", "--report", "r.json")
        dumped = sorted(str(p.relative_to(self.at / "dump")) for p in (self.at / "dump").rglob("*.txt"))
        changed = [p["name"] for p in json.loads((self.at / "r.json").read_text())["passes"] if p["changed"]]
        self.assertIn("fuse_pointwise", changed)
        self.assertEqual([d.split("-")[-1][:-4] for d in dumped], ["imported"] + changed)
        self.anneal("build", "m.onnx", "--only-passes", "fold_constants", "--report", "r.json")
        self.assertEqual([p["name"] for p in json.loads((self.at / "r.json").read_text())["passes"]], ["fold_constants"])
        self.anneal("build", "m.onnx", "--exact", "--report", "r.json")
        self.assertTrue(all(p["exact"] for p in json.loads((self.at / "r.json").read_text())["passes"]))
        self.anneal("inspect", "m.engine", "--decisions", out="skipped: it may change numerics")
        self.anneal("build", "m.onnx", "--skip-pass", "all", "--report", "r.json")
        self.assertEqual(json.loads((self.at / "r.json").read_text())["passes"], [])
        self.anneal("build", "m.onnx", "--only-passes", "nope", status=2, says='no pass "nope" to run')

    # --- compare

    def test_compare(self):
        self.write("m.onnx", CHAIN)
        self.write("n.onnx", CHAIN.replace(b"Neg", b"Abs"))
        self.write("abs.onnx", ABS)
        self.write("add.onnx", ADD)
        self.anneal("compare", "m.onnx", out=["(cpu), 3 steps", "(reference), 4 steps", "3 tensors in both, 0 only in A, 1 only in B",
                                              "all agree"])
        self.anneal("compare", "m.onnx", "n.onnx", "--json", "d.json", "--top", 2, status=1,
                    out=["DIFFERS", "3 of 3 differ", "p/b, neg on ", "elements differ by more than"])
        report = json.loads((self.at / "d.json").read_text())
        self.assertEqual((report["first_diverging"], len(report["tensors"]), report["only_in_b"]), ("p/b", 3, 0))
        self.assertFalse(report["tensors"][0]["agrees"])
        self.anneal("build", "m.onnx", "-q")
        self.anneal("compare", "m.engine", "m.engine", "--rtol", 0, "--atol", 0, out=["exact", "all agree"])
        self.anneal("compare", "m.onnx", "--fp16", out="all agree")
        self.anneal("compare", "m.engine", "m.onnx", "--reference", "-i", "x=random:3", "--no-mmap", out="only in B")
        self.anneal("compare", "m.onnx", "--skip-pass", "fuse_pointwise", out="4 tensors in both")
        self.anneal("compare", "m.onnx", "--only-passes", "fold_constants", out="4 tensors in both")
        self.anneal("compare", "m.onnx", "--exact", out="all agree")
        self.anneal("compare", "add.onnx", "--shapes", "a:2x3,b:2x3", out="f32[2,3]")
        self.anneal("compare", "m.onnx", "--target-a", "cpu:baseline", "--target-b", "cpu", out="(cpu:baseline)")
        self.anneal("compare", "m.engine", status=2, says="say what to compare it with")
        self.anneal("compare", "m.onnx", "m.engine", "--reference", status=2, says="give the ONNX model")
        self.anneal("compare", "m.onnx", "--reference", "--target-b", "cpu", status=2, says="contradict")
        self.anneal("compare", "m.onnx", "add.onnx", status=2, says="different inputs")
        self.anneal("compare", "m.onnx", "--json", "nowhere/d.json", status=2, says="no folder nowhere")
        self.anneal("compare", "m.onnx", "missing.onnx", status=2, says="missing.onnx")
        self.anneal("compare", "m.onnx", "--skip-pass", "no_such_pass", status=2, says="no_such_pass")


if __name__ == "__main__":
    unittest.main()
