#!/usr/bin/env python3
"""samples/pipeline: every picture passes every stage once, shares are those of the intervals, and the picture shows them.

Arguments: the folder of `pipeline` and `svg_to_png`.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.argv.pop(1)).resolve()
SPEC = importlib.util.spec_from_file_location("draw", ROOT / "samples/pipeline/draw.py")
DRAW = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(DRAW)
MODES = ["one after the other", "read ahead", "two contexts"]
LANES = [["all stages"], ["decoder 1", "decoder 2", "decoder 3", "context"],
         ["decoder 1", "decoder 2", "decoder 3", "context 1", "context 2"]]
BATCHES, BATCH, THREADS = 5, 4, 3


def call(*command):
    return subprocess.run(list(map(str, command)), cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=300)


def intervals_of(mode, stage):
    return [each for lane in mode["lanes"] for each in lane["intervals"] if each[0] == stage]


def covered(intervals):
    seconds = until = 0
    for _, start, end, _ in sorted(intervals, key=lambda each: each[1]):
        seconds += max(0, end - max(start, until))
        until = max(until, end)
    return seconds


class Pipeline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="anneal-pipeline-test-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.at = Path(cls.scratch.name)
        done = call(PROGRAMS / "pipeline", "--pictures", BATCHES * BATCH + 1, "--batch", BATCH, "--threads", THREADS, "--out", cls.at / "p.json")
        assert done.returncode == 0, done.stdout
        cls.printed = done.stdout
        cls.results = json.loads((cls.at / "p.json").read_text())

    def test_every_picture_passes_every_stage(self):
        self.assertEqual([mode["name"] for mode in self.results["modes"]], MODES)
        for mode, lanes in zip(self.results["modes"], LANES):
            self.assertEqual([lane["name"] for lane in mode["lanes"]], lanes)
            for stage, times in (("decode", BATCH), ("copy", 2), ("compute", 1)):
                batches = sorted(each[3] for each in intervals_of(mode, stage))
                self.assertEqual(batches, sorted(times * list(range(BATCHES))), f'{mode["name"]}: {stage}')

    def test_a_thread_does_one_thing_at_a_time(self):
        for mode in self.results["modes"]:
            for lane in mode["lanes"]:
                until = 0
                for stage, start, end, _ in lane["intervals"]:
                    self.assertLessEqual(until, start)
                    self.assertLessEqual(start, end)
                    until = end
                self.assertLessEqual(until, mode["seconds"] + 1e-5)

    def test_a_batch_is_decoded_before_it_runs(self):
        for mode in self.results["modes"]:
            for batch in range(BATCHES):
                decoded = max(each[2] for each in intervals_of(mode, "decode") if each[3] == batch)
                ran = min(each[1] for each in intervals_of(mode, "compute") if each[3] == batch)
                self.assertLessEqual(decoded, ran + 1e-5)

    def test_shares_are_those_of_the_intervals(self):
        for mode, decoders, contexts in zip(self.results["modes"], (1, THREADS, THREADS), (1, 1, 2)):
            summed = {stage: sum(end - start for _, start, end, _ in intervals_of(mode, stage)) for stage in ("decode", "copy")}
            expected = {"decode": summed["decode"] / decoders, "copy": summed["copy"] / contexts,
                        "compute": covered(intervals_of(mode, "compute"))}
            for stage, seconds in expected.items():
                self.assertAlmostEqual(mode["busy"][stage], seconds / mode["seconds"], delta=0.01)
            largest = max(mode["busy"], key=mode["busy"].get)
            word = {"decode": "decoding", "copy": "copying", "compute": "computing"}[largest]
            self.assertTrue(mode["bottleneck"].startswith(f"The bottleneck is {word}: "), mode["bottleneck"])
            self.assertIn(f'{mode["name"]}: {mode["bottleneck"]}\n', self.printed)
            self.assertTrue(all(0 <= share <= 1 for _, share in mode["cores_busy"]))
        self.assertIn("all outputs are equal", self.printed)

    def test_the_picture_shows_every_interval(self):
        svg = DRAW.picture(self.results)
        ElementTree.fromstring(svg)
        for mode in self.results["modes"]:
            self.assertIn(mode["bottleneck"], svg)
        for stage, colour in DRAW.COLOURS.items():
            drawn = sum(len(intervals_of(mode, stage)) for mode in self.results["modes"])
            self.assertEqual(len(re.findall(rf'<rect [^>]*fill="{colour}" fill-opacity', svg)), drawn)
        (self.at / "p.svg").write_text(svg)
        if (PROGRAMS / "svg_to_png").exists():
            done = call(PROGRAMS / "svg_to_png", self.at / "p.svg", self.at / "p.png")
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual((self.at / "p.png").read_bytes()[:4], b"\x89PNG")

    def test_the_picture_shows_what_a_monitor_wrote(self):
        middle = self.results["modes"][0]["began"] + self.results["modes"][0]["seconds"] / 2
        at = DRAW.time.strftime("%Y/%m/%d %H:%M:%S", DRAW.time.localtime(middle)) + f".{int(middle * 1000) % 1000:03}"
        header = "timestamp, index, utilization.gpu [%], utilization.cpu [%]\n"
        (self.at / "use.csv").write_text(f"{header}{at}, 0, 30 %, 62.5 %\n{at}, 1, 80 %, 62.5 %\n")
        samples = DRAW.monitored(self.at / "use.csv")
        self.assertEqual([each[1:] for each in samples], [(0.625, 0.8)])
        self.assertAlmostEqual(samples[0][0], middle, delta=0.002)
        svg = DRAW.picture(self.results, samples)
        self.assertIn("GPU busy", svg)
        self.assertEqual(len(re.findall(rf'<polyline [^>]*stroke="{DRAW.GPU}"', svg)), 1)
        (self.at / "use.csv").write_text(f"{header}{at}, [N/A], [N/A], 62.5 %\n")
        self.assertNotIn("GPU busy", DRAW.picture(self.results, DRAW.monitored(self.at / "use.csv")))

    def test_wrong_arguments(self):
        model, folder = ROOT / "samples/regression/peaks.onnx", self.at / "empty"
        folder.mkdir()
        (self.at / "broken").mkdir()
        (self.at / "broken/0.jpg").write_bytes(b"\xff\xd8\xff no picture")
        for arguments, message in ((["--frob", 1], "\"--frob\" is unknown"), (["--batch"], "its value is missing"),
                                   (["--batch", 0], "--batch 0: a number from 1"), (["--threads", "two"], "--threads two"),
                                   (["--data", self.at / "none"], "none"), (["--data", folder], "empty"),
                                   (["--data", self.at / "broken"], "0.jpg"), (["--model", self.at / "no.onnx"], "no.onnx"),
                                   (["--model", model], "a model of one input of pictures"), (["--device", "gpu"], "gpu")):
            done = call(PROGRAMS / "pipeline", *arguments, "--out", self.at / "wrong.json")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stdout, r"(?m)^pipeline: ")
            self.assertIn(message, done.stdout)
        self.assertFalse((self.at / "wrong.json").exists())
        done = call(PROGRAMS / "pipeline", "--out", self.at / "none/p.json")
        self.assertEqual((done.returncode, done.stdout), (1, f"pipeline: --out {self.at}/none/p.json: there is no folder {self.at}/none\n"))

    def test_draw_says_what_is_wrong_with_files(self):
        draw, results = ROOT / "samples/pipeline/draw.py", self.at / "p.json"
        (self.at / "bad.csv").write_text("a, b\n1, 2\n")
        (self.at / "old.csv").write_text("timestamp, utilization.cpu [%]\n2020/01/01 00:00:00.000, 5 %\n")
        for arguments, status, message in (
                ([self.at / "none.json", self.at / "d.svg"], 1, "none.json"),
                ([results, self.at / "none/d.svg"], 1, "none/d.svg"),
                ([results, self.at / "d.svg", "--monitor", self.at / "none.csv"], 1, "none.csv"),
                ([results, self.at / "d.svg", "--monitor", self.at / "bad.csv"], 1, "bad.csv"),
                ([results, self.at / "d.svg", "--monitor", self.at / "old.csv"], 0, "has no samples of the time")):
            done = call(sys.executable, draw, *arguments)
            self.assertEqual(done.returncode, status, done.stdout)
            self.assertRegex(done.stdout, r"\Adraw\.py: .*\n\Z")
            self.assertIn(message, done.stdout)


if __name__ == "__main__":
    unittest.main()
