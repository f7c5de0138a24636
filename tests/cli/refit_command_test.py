#!/usr/bin/env python3
"""Runs `anneal refit`, and the commands on engines whose weights are in a file of their own, as a user would.

Arguments: the command `anneal`, and optionally unittest's.
"""

import json
import unittest

import command_case
from command_case import ABS, field, model, node, npy, tensor, value_info


def product(seed, outputs=4, name="product", rows="N"):
    """y = Relu(x * w + b)."""
    weights = [(seed * 7919 + 31 * i) % 97 / 97 - 0.5 for i in range(3 * outputs)]
    return model([node("MatMul", ["x", "w"], ["p"], name), node("Add", ["p", "b"], ["s"], "add"),
                  node("Relu", ["s"], ["y"], "relu")], [value_info("x", [rows, 3])], [value_info("y", [rows, outputs])],
                 [tensor([3, outputs], weights) + field(8, "w"), tensor([outputs], weights[:outputs]) + field(8, "b")])


class RefitCommand(command_case.Command):

    def setUp(self):
        super().setUp()
        self.write("old.onnx", product(1))
        self.write("new.onnx", product(2))
        self.write("x.npy", npy([2, 3], [1, -2, 3, 0.5, 0.25, -4]))

    def content(self, name):
        return (self.at / name).read_bytes()

    def test_the_engine_of_the_new_model(self):
        self.anneal("build", "old.onnx", "-o", "net.engine")
        self.anneal("build", "new.onnx", "-o", "built.engine")
        self.anneal("refit", "net.engine", "new.onnx", out=["new.engine: 2 of 2 weights changed, 1 step of 1 plan kept"])
        self.assertEqual(self.content("new.engine"), self.content("built.engine"))
        self.anneal("refit", "net.engine", "new.onnx", out="new.engine (replaced)")
        self.anneal("refit", "net.engine", "new.onnx", "-o", "net.engine")
        self.assertEqual(self.content("net.engine"), self.content("built.engine"))
        told = json.loads(self.anneal("refit", "net.engine", "new.onnx", "--json"))
        self.assertEqual((told["output"], told["weights"], told["changed_weights"]), ("new.engine", 2, 0))

    def test_models_that_do_not_fit(self):
        self.anneal("build", "old.onnx", "-o", "net.engine")
        before = self.content("net.engine")
        for other, why in ((product(2, outputs=5), 'output "y" is f32[N,4] in the engine and f32[N,5] with the new model'),
                           (product(2, name="other"), 'layer "product" (MatMul; ONNX nodes: product'),
                           (product(2, rows="M"), "output"), (ABS, "input 0"), (before, "is an engine")):
            self.write("other.onnx", other)
            self.anneal("refit", "net.engine", "other.onnx", "-o", "net.engine", status=2, says=["other.onnx"])
        self.anneal("refit", "net.engine", "new.onnx", "--weights", "w", status=2, says="this engine has its weights")
        self.anneal("refit", "old.onnx", "new.onnx", status=2, says="not an engine file")
        self.anneal("refit", "net.engine", "new.onnx", "-o", "none/net.engine", status=2)
        self.assertEqual(self.content("net.engine"), before)
        self.assertNotIn("new.engine", self.files())

    def test_weights_in_a_file_of_their_own(self):
        self.anneal("build", "old.onnx", "-o", "net.engine", "--weights", "old.weights")
        self.anneal("refit", "net.engine", "new.onnx", "--weights", "new.weights", out="new.weights: 2 weights written")
        self.assertEqual(self.files(), ["net.engine", "new.onnx", "new.weights", "old.onnx", "old.weights", "x.npy"])
        for name in "old", "new":
            self.anneal("build", f"{name}.onnx", "-o", f"{name}.engine")
            apart = self.anneal("run", "net.engine", "--weights", f"{name}.weights", "--input", "x.npy", "--save", "apart")
            whole = self.anneal("run", f"{name}.engine", "--input", "x.npy", "--save", "whole")
            self.assertEqual(self.content("apart/y.npy"), self.content("whole/y.npy"), (apart, whole))
        self.anneal("inspect", "net.engine", "--weights", "new.weights", out="2 tensors")
        self.anneal("bench", "net.engine", "--weights", "new.weights", "--duration", "0.01")
        self.anneal("compare", "net.engine", "new.onnx", "--weights", "new.weights")
        self.anneal("compare", "net.engine", "net.engine", "--weights", "new.weights", "--weights-b", "old.weights", status=1)
        for command in (["run", "net.engine", "--input", "random"], ["inspect", "net.engine"], ["bench", "net.engine"]):
            self.anneal(*command, status=2, says="--weights FILE")
        self.write("other.onnx", product(3, outputs=5))
        self.anneal("build", "other.onnx", "--weights", "other.weights")
        self.anneal("run", "net.engine", "--weights", "other.weights", "--input", "random", status=2,
                    says="belong to another engine")
        self.anneal("refit", "net.engine", "new.onnx", "-o", "b.engine", status=2, says="--weights FILE")
        self.anneal("refit", "net.engine", "new.onnx", "-o", "b.engine", "--weights", "b.weights", out="b.engine")
        self.anneal("run", "b.engine", "--weights", "b.weights", "--input", "random")
        self.anneal("build", "old.onnx", "--weights", "old.onnx", status=2, says="--weights old.onnx is the model")


if __name__ == "__main__":
    unittest.main()
