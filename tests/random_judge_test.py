#!/usr/bin/env python3
"""What random_graphs_test.py makes of a peer that differs: f64 decides which of the two is wrong."""

import sys
import unittest

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import random_graphs_test

FLOAT = onnx.TensorProto.FLOAT


def model_of(nodes, dims):
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "one", [info("x", FLOAT, dims)], [info("y", FLOAT, dims)])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]).SerializeToString()


class Judge(unittest.TestCase):
    def setUp(self):
        # A variance as the difference of two squares loses its digits in f32, also in ONNX's definition of the operator.
        self.x = (1000 + numpy.arange(24, dtype=numpy.float32) / 64).reshape(2, 3, 4)
        nodes = [
            onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(numpy.full(3, value, numpy.float32)))
            for name, value in (("scale", 1), ("bias", 0))
        ]
        nodes.append(onnx.helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=1, epsilon=0.01))
        self.model = model_of(nodes, [2, 3, 4])
        wide = self.x.astype(numpy.float64)
        mean, variance = wide.mean((1, 2), keepdims=True), wide.var((1, 2), keepdims=True)
        self.right = ((wide - mean) / numpy.sqrt(variance + 0.01)).astype(numpy.float32)

    def judge(self, ours, peer):
        inputs = [onnx.numpy_helper.from_array(self.x, "x")]
        runs = [(inputs, [(onnx.numpy_helper.from_array(ours, "y"), 1e-5)])]
        return random_graphs_test.judge(self.model, runs, lambda given: [peer])

    def test_equal_results_agree(self):
        self.assertEqual(self.judge(self.right, self.right), ([], []))

    def test_a_peer_that_f64_refutes_is_no_failure(self):
        failed, refuted = self.judge(self.right, self.right * numpy.float32(1.001))
        self.assertEqual((len(failed), len(refuted)), (0, 1))

    def test_a_wrong_result_of_ours_fails(self):
        failed, refuted = self.judge(self.right * numpy.float32(1.001), self.right)
        self.assertEqual((len(failed), len(refuted)), (1, 0))

    def test_two_wrong_results_fail(self):
        failed, refuted = self.judge(self.right * numpy.float32(1.001), self.right * numpy.float32(1.002))
        self.assertEqual((len(failed), len(refuted)), (1, 0))

    def test_what_f64_cannot_run_fails(self):
        self.model = model_of([onnx.helper.make_node("NoSuchOperator", ["x"], ["y"])], [2, 3, 4])
        failed, refuted = self.judge(self.right, self.right * numpy.float32(1.001))
        self.assertEqual((len(failed), len(refuted)), (1, 0))


if __name__ == "__main__":
    sys.exit(unittest.main())
