#!/usr/bin/env python3
"""What `make bench` makes of its measurements: speeds, means, differences of outputs, the table, the picture."""

import math
import sys
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))

import draw_speeds
from comparison import results, table

try:
    import numpy
    from comparison import outputs
except ImportError:
    numpy = None


def rounds(*milliseconds):
    return [{"median_ms": each, "least_ms": each / 2} for each in milliseconds]


def measured(ours, theirs, equal=True):
    return {**results.summary(rounds(*ours), rounds(*theirs)), "equal": equal, "memory_bytes": 20e6}


def result(net, peers, kind="f32", threads=1):
    peers = {"onnxruntime": {**results.summary(rounds(4, 4, 4), None), "memory_bytes": 10e6}, **peers}
    return {"net": net, "folder": "nets", "type": kind, "threads": threads, "batch": 1, "busy": False, "peers": peers}


REFERENCE = (4, 4, 4)
RESULTS = [result("resnet50", {"anneal": measured((2, 1, 4), REFERENCE), "openvino": measured((4, 4, 4), REFERENCE)}),
           result("unet", {"anneal": measured((8, 8, 8), REFERENCE),
                           "openvino": measured((1, 1, 1), REFERENCE, equal=False),
                           "anneal_own": {"error": "no kernel"}})]


class Speeds(unittest.TestCase):
    def test_speed_is_the_median_of_the_rounds_ratios(self):
        found = results.summary(rounds(2, 1, 4), rounds(4, 4, 2))
        self.assertEqual((found["speed"], found["least_speed"], found["largest_speed"]), (2, 0.5, 4))
        self.assertEqual(found["median_ms"], 2)
        self.assertEqual(found["speed_at_best"], 2)  # 1 of 2 to 0.5 of 1

    def test_without_the_reference_there_is_no_speed(self):
        self.assertNotIn("speed", results.summary(rounds(2), None))

    def test_means_leave_out_wrong_answers_and_errors(self):
        mean, = results.geometric_means(RESULTS)
        self.assertAlmostEqual(mean["speeds"]["anneal"], 1)  # of 2 and 1/2
        self.assertEqual(mean["least"]["anneal"], 0.5)
        self.assertEqual(mean["speeds"]["openvino"], 1)  # its 4 was wrong
        self.assertEqual(mean["speeds"]["anneal_to_openvino"], 2)
        self.assertNotIn("anneal_own", mean["speeds"])
        self.assertEqual(mean["nets"], 2)


@unittest.skipUnless(numpy, "takes numpy")
class Differences(unittest.TestCase):
    def difference(self, ours, theirs, dtype="float32"):
        return outputs.largest_difference([numpy.array(ours, dtype)], [numpy.array(theirs, "float32")])

    def test_is_a_share_of_the_largest_magnitude(self):
        self.assertAlmostEqual(self.difference([1, -4], [1.5, -5]), 0.2)
        self.assertEqual(self.difference([0, 0], [0, 0]), 0)

    def test_other_types_shapes_counts_and_infinities_are_infinitely_far(self):
        for ours, theirs, dtype in (([1], [1], "int32"), ([1, 2], [[1, 2]], "float32"), ([1], [math.inf], "float32")):
            self.assertEqual(self.difference(ours, theirs, dtype), math.inf)
        self.assertEqual(outputs.largest_difference([], [numpy.zeros(1)]), math.inf)


class Text(unittest.TestCase):
    def test_notes_tell_what_went_wrong_and_where_the_time_goes(self):
        slower = result("unet", RESULTS[1]["peers"])
        slower["peers"]["openvino"]["difference"] = 0.5
        slower["peers"]["anneal"]["slowest_steps"] = [{"step": "Conv_3", "kernel": "cpu.conv.nhwc", "share": 0.4}]
        self.assertEqual(list(table.notes(slower)),
                         ["openvino: OUTPUTS DIFFER by 0.5 of ONNX Runtime's largest", "anneal_own: no kernel",
                          "slower; most of its time: Conv_3 (cpu.conv.nhwc) 40 %"])

    def test_a_line_has_a_dash_for_what_is_not_known(self):
        words = table.line(result("unet", {"anneal": measured((2, 2, 2), REFERENCE)})).split()
        self.assertEqual(words, ["2.00", "2.00-2.00", "2.00", "-", "-", "2.000", "4.000", "-", "20", "10", "-", "-", "f32",
                                 "1", "1", "unet"])

    def test_more_memory_is_told(self):
        self.assertEqual(len(list(table.memory_lines(RESULTS))), 2)


class Picture(unittest.TestCase):
    def test_bars_and_marks_stand_at_their_speeds(self):
        report = {"results": RESULTS, "versions": {"anneal": "0", "onnxruntime": "1"}, "machine": "a", "cores": 2,
                  "date": "2026-01-02T", "instructions": ["avx2"]}
        svg = xml.etree.ElementTree.fromstring(draw_speeds.picture(report))
        kind = "{http://www.w3.org/2000/svg}"
        bars = [float(bar.get("height")) for bar in svg.iter(kind + "rect") if bar.get("width") == str(draw_speeds.BAR)]
        self.assertEqual(len(bars), 3)  # two nets and their mean
        self.assertAlmostEqual(bars[0] / bars[1], 4, places=1)
        self.assertAlmostEqual(bars[0] / bars[2], 2, places=1)
        words = [each.text for each in svg.iter(kind + "text")]
        for expected in ("ResNet-50", "U-Net", draw_speeds.MEAN, "2.00", "0.50", "1.00"):
            self.assertIn(expected, words)


if __name__ == "__main__":
    unittest.main()
