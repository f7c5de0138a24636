#!/usr/bin/env python3
"""Runs `anneal tune` as a user would, on the shipped classifier.

Arguments: the command `anneal`, the folder samples/glyphs, and optionally unittest's.
"""

import csv
import json
import random
import struct
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree
import zlib
from pathlib import Path

import command_case
from command_case import field, model, node, tensor, value_info

GLYPHS = Path(sys.argv.pop(1)).resolve()
MODEL = GLYPHS / "glyphs.onnx"
# The same on every machine, and quick.
TUNE = ["tune", MODEL, "--data", GLYPHS, "--samples", "first:300", "--modelled-times", "--precisions", "int8",
        "--threads", 1]


def grey_png(rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", len(rows[0]), len(rows), 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))) + chunk(b"IEND", b""))


# The class of a pixel is 0 up to 100, 1 up to 200, else 2: the best of 100, x and 2 x - 200.
SEGMENTER = model([node("Conv", ["x", "w", "b"], ["y"], "scores")], [value_info("x", [1, 1, 8, 8])],
                  [value_info("y", [1, 3, 8, 8])],
                  [field(8, "w") + tensor([3, 1, 1, 1], [0, 1, 2]), field(8, "b") + tensor([3], [100, 0, -200])])
# Of each picture: how many pixels have which value, and which class in the mask.
PIXELS = [(16, 30, 0), (4, 30, 1), (20, 150, 1), (2, 150, 255), (22, 250, 2)]
# Class 0 is right in 16 of 20 pixels, class 1 in 20 of 24, class 2 in all.
MEAN_IOU = 100 * (16 / 20 + 20 / 24 + 1) / 3


class TuneCommand(command_case.Command):

    def frontier(self, name="m.tuned.json"):
        return json.loads((self.at / name).read_text())

    def test_use_of_the_machine_is_sampled(self):
        without_gpu = {"ANNEAL_CUDA": "0"}
        self.anneal(*TUNE, "--max-drop", 1, "-o", "m.engine", "--monitor", "tune.csv", "--monitor-interval", 0.05,
                    env=without_gpu, says="no GPU is monitored")
        self.anneal("eval", "m.engine", "--data", GLYPHS, "--samples", "first:50", "--monitor", "eval.csv",
                    "--monitor-interval", 0.01, env=without_gpu, says="no GPU is monitored")
        for name in ("tune.csv", "eval.csv"):
            rows = list(csv.DictReader((self.at / name).read_text().splitlines(), skipinitialspace=True))
            self.assertGreaterEqual(len(rows), 1, name)
            self.assertTrue(all(row["timestamp"] and row["utilization.cpu [%]"] for row in rows), rows[0])

    def test_every_point_can_be_built_and_the_frontier_read(self):
        table = self.anneal(*TUNE, "--max-drop", 1, "-o", "m.engine", "--frontier", "f.csv", "--frontier", "f.svg",
                            "--frontier", "f.txt", out=["-> ", "top-1", "any other point"])
        self.assertEqual(self.files(), ["f.csv", "f.svg", "f.txt", "m.engine", "m.tuned.json"])
        found = self.frontier()
        self.assertGreaterEqual(len(found["points"]), 3)
        self.assertIn((self.at / "f.txt").read_text(), table)
        rows = list(csv.DictReader((self.at / "f.csv").open()))
        self.assertEqual(len(rows), len(found["points"]))
        self.assertTrue(xml.etree.ElementTree.parse(self.at / "f.svg").getroot().tag.endswith("svg"))
        chosen = found["points"][found["chosen"]]["name"]
        for point in found["points"]:
            # The command that is printed, with this build's command and another name for the engine.
            words = point["command"].split()
            self.assertEqual(words[0], "anneal")
            self.anneal(*words[1:])
            self.assertEqual((self.at / f"{point['name']}.engine").stat().st_size, point["engine_bytes"])
        self.assertEqual((self.at / f"{chosen}.engine").read_bytes(), (self.at / "m.engine").read_bytes())
        self.anneal("build", MODEL, "--mix", "m.tuned.json", "-o", "again.engine")
        self.assertEqual((self.at / "again.engine").read_bytes(), (self.at / "m.engine").read_bytes())
        self.anneal("eval", MODEL, "--mix", f"m.tuned.json:{chosen}", "--data", GLYPHS, "--samples", "first:50",
                    out="top-1")

    def test_points_are_built_for_the_same_shapes_and_passes(self):
        flags = ["--shapes", "2x1x32x32", "--skip-pass", "merge_siblings", "--skip-kernel", "cpu.conv.winograd"]
        told = self.anneal(*TUNE, *flags, "-o", "m.engine")
        found = self.frontier()
        point = found["points"][found["chosen"]]
        self.anneal(*point["command"].split()[1:])
        self.assertEqual((self.at / f"{point['name']}.engine").read_bytes(), (self.at / "m.engine").read_bytes())
        self.assertIn("--skip-kernel cpu.conv.winograd", told)

    def test_what_is_no_journal_is_left(self):
        self.write("m.engine.tuning", "notes")
        self.anneal(*TUNE, "-o", "m.engine", status=2, says="m.engine.tuning")
        self.assertEqual(self.files(), ["m.engine.tuning"])

    def test_killed_at_any_moment_it_ends_the_same(self):
        whole = time.monotonic()
        self.anneal(*TUNE, "--max-drop", 0.5, "-o", "whole.engine", "-q")
        whole = time.monotonic() - whole
        random.seed(1)
        kills = 0
        for k in range(10):
            tuning = subprocess.Popen([command_case.ANNEAL, *map(str, TUNE), "--max-drop", "0.5", "-o", "m.engine", "-q"],
                                      cwd=self.at)
            time.sleep(random.uniform(0.05, 0.3) * whole)
            tuning.kill()
            kills += 1 if tuning.wait() == -9 else 0
        self.assertGreater(kills, 1)
        self.anneal(*TUNE, "--max-drop", 0.5, "-o", "m.engine", "-q")
        self.assertEqual(self.files(), ["m.engine", "m.tuned.json", "whole.engine", "whole.tuned.json"])
        self.assertEqual((self.at / "m.engine").read_bytes(), (self.at / "whole.engine").read_bytes())
        self.assertEqual((self.at / "m.tuned.json").read_text(),
                         (self.at / "whole.tuned.json").read_text().replace("whole.tuned.json", "m.tuned.json"))

    def test_build_with_a_budget_is_the_same(self):
        self.anneal("build", MODEL, "--calibrate", GLYPHS, "--samples", "first:120", "--max-drop", 2, "-o", "m.engine",
                    out="-> ")
        self.assertEqual(self.files(), ["m.engine", "m.tuned.json"])
        self.anneal("build", MODEL, "--max-drop", 2, status=2, says="--calibrate SAMPLES")
        for flags in ["--int8"], ["--max-layer-error", 1]:
            self.anneal("build", MODEL, "--calibrate", GLYPHS, "--max-drop", 2, *flags, status=2,
                        says="chooses the precisions")

    def test_a_command_judges(self):
        judge = self.write("judge.sh", "#!/bin/sh\ntest -f $1/scores.npy && test -f $1/label.txt && "
                                       "cat $1/label.txt\n")
        judge.chmod(0o755)
        few = [*TUNE[:4], "--samples", "first:30", *TUNE[6:]]
        self.anneal(*few, "--metric-command", "./judge.sh", "--max-drop", 0, "-o", "m.engine", out="command of 9 samples")
        judge.write_text("#!/bin/sh\necho rubbish\nexit 3\n")
        self.anneal(*few, "--metric-command", "./judge.sh", "-o", "n.engine", status=2, says=["judge.sh", "3"])
        self.assertNotIn("n.engine", self.files())

    def test_without_labels_the_outputs_are_compared(self):
        few = ["tune", MODEL, "--data", GLYPHS / "test-images.idx3-ubyte", "--labels", "none", "--scale", "1/255",
               "--samples", "first:60", "--modelled-times", "--precisions", "int8"]
        # A sample's cosine is no matter of right or wrong, so that few of them resolve a small budget.
        self.assertNotIn("more than the budget", self.anneal(*few, "-o", "m.engine", out="cosine of 18 samples"))
        self.anneal(*few, "--metric", "sqnr", "--min-score", 20, "-o", "m.engine", out="SQNR of 18 samples")
        found = self.frontier()
        self.assertGreaterEqual(found["points"][found["chosen"]]["search"]["score"], 20)
        self.anneal(*few, "--metric", "sqnr", "--min-score", 1000, status=2, says="not even f32")
        self.anneal(*few, "--metric", "sqnr", status=2, says="--min-score")
        self.anneal(*few, "--metric", "top1", status=2, says="label")

    def test_masks_are_the_truth_of_segmentation(self):
        self.write("seg.onnx", SEGMENTER)
        random.seed(2)
        for i in range(20):
            pixels = [(value, of) for count, value, of in PIXELS for _ in range(count)]
            random.shuffle(pixels)
            rows = [pixels[8 * y:8 * y + 8] for y in range(8)]
            self.write(f"data/images/{i}.png", grey_png([[value for value, _ in row] for row in rows]))
            self.write(f"data/masks/{i}.png", grey_png([[of for _, of in row] for row in rows]))
        tune = ["tune", "seg.onnx", "--modelled-times", "--precisions", "int8", "--threads", 1, "-o", "m.engine"]

        def f32_score(*flags, out):
            told = self.anneal(*tune, *flags, out=out)
            found = self.frontier()
            return next(point for point in found["points"] if point["name"] == "f32")["search"]["score"], told

        # A folder of its own, or what dataset.json says; without labels, masks are what is judged with.
        for flags in ["--data", "data/images", "--masks", "data/masks", "--metric", "miou"], ["--data", "data"]:
            score, told = f32_score(*flags, out="mIoU of 6 samples")
            self.assertAlmostEqual(score, MEAN_IOU)
            self.assertNotIn("has no masks", told)
            self.write("data/dataset.json", '{"file": "images", "masks": "masks"}')
        score, told = f32_score("--data", "data", "--masks", "none", "--metric", "miou",
                                out=["mIoU with f32's masks of 6 samples", "the data has no masks (--masks)"])
        self.assertEqual(score, 100)
        self.assertNotIn("has no masks", self.anneal(*tune, "--data", "data", "--metric", "miou-f32",
                                                     out="mIoU with f32's masks"))
        self.anneal(*tune, "--data", "data", "--ignore-label", "none", status=2,
                    says=["has the class 255", "\"y\" has 3 classes", "--ignore-label"])
        (self.at / "data/masks/7.png").unlink()
        self.anneal(*tune, "--data", "data", status=2, says=["\"7.png\" has no mask", "masks/7.png"])

    def test_what_cannot_be_done_is_said(self):
        self.anneal(*TUNE, "--metric", "f7", status=2, says="f7")
        self.anneal(*TUNE, "--max-drop", -1, status=2)
        self.anneal(*TUNE, "--max-drop", "inf", status=2, says="finite")
        self.anneal(*TUNE, "-o", "m.engine", "--frontier", "m.tuned.json", status=2, says="always written")
        self.assertEqual(self.files(), [])
        self.anneal(*TUNE, "--frontier", "f.bmp", status=2, says=".svg")
        self.anneal(*TUNE, "--precisions", "int4", status=2, says="int4")
        self.anneal(*TUNE, "-o", "none/m.engine", status=2, says="none")
        self.anneal("tune", MODEL, "--data", GLYPHS, "--samples", "first:3", status=2, says="cannot be split")
        self.write("bad.json", "{}")
        self.anneal("build", MODEL, "--mix", "bad.json", status=2, says="bad.json")
        self.anneal("build", MODEL, "--mix", "missing.json:x", status=2, says="missing.json")
        self.anneal(*TUNE, "-o", "m.engine", "-q")
        self.anneal("build", MODEL, "--mix", "m.tuned.json:mix-99", status=2, says=["mix-99", "f32"])
        self.anneal("build", MODEL, "--mix", "m.tuned.json", "--int8", status=2, says="--mix sets all")

    def test_time_runs_out(self):
        self.anneal(*TUNE, "--tune-seconds", 0.001, "-o", "m.engine", out="time ran out")


if __name__ == "__main__":
    unittest.main()
