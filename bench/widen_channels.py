#!/usr/bin/env python3
"""Widens channels between the convolutions of a model exactly as cross-layer scaling allows: its answers stay the
same to the bit, and a scale of 8 bits for a whole tensor serves it badly.

    bench/widen_channels.py model.onnx widened.onnx

Between a Conv and the only Conv that reads it, by way of Relu or Clip at 0 and 6, a share of the channels is multiplied
by 2^1 to 2^5: in weights and bias before, by the inverse in the weights behind. A Clip becomes Relu and Min with a
bound for each channel. Takes onnx and numpy.
"""

import argparse

import numpy
import onnx
from onnx import helper, numpy_helper


class Widening:
    def __init__(self, model, share, seed):
        self.graph, self.share = model.graph, share
        self.random = numpy.random.default_rng(seed)
        self.weights = {one.name: one for one in self.graph.initializer}
        self.readers = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.behind = {}  # nodes to put behind others
        self.places = 0

    def scale(self, name, factors):
        values = numpy_helper.to_array(self.weights[name]) * factors
        self.weights[name].CopyFrom(numpy_helper.from_array(values.astype(numpy.float32), name))

    def sole_reader(self, node, ops):
        readers = self.readers.get(node.output[0], [])
        return readers[0] if len(readers) == 1 and readers[0].op_type in ops else None

    def widen(self, conv):
        activation = self.sole_reader(conv, ("Relu", "Clip"))
        reader = activation and self.sole_reader(activation, ("Conv",))
        if not reader or reader.input[0] != activation.output[0]:
            return
        channels = self.weights[conv.input[1]].dims[0]
        exponents = numpy.where(self.random.random(channels) < self.share, self.random.integers(1, 6, channels), 0)
        factors = 2.0 ** exponents
        self.scale(conv.input[1], factors[:, None, None, None])
        if len(conv.input) > 2:
            self.scale(conv.input[2], factors)
        is_depthwise = self.weights[reader.input[1]].dims[1] == 1
        inverse = 1 / factors
        self.scale(reader.input[1], inverse[:, None, None, None] if is_depthwise else inverse[None, :, None, None])
        if activation.op_type == "Clip":
            self.bound(activation, 6 * factors)
        self.places += 1

    def bound(self, clip, bounds):
        result, positive = clip.output[0], clip.output[0] + "_positive"
        self.graph.initializer.append(
            numpy_helper.from_array(bounds.astype(numpy.float32)[:, None, None], result + "_bound"))
        clip.op_type = "Relu"
        del clip.input[1:]
        clip.output[0] = positive
        self.behind[positive] = helper.make_node("Min", [positive, result + "_bound"], [result], name=result + "_min")

    def run(self):
        for node in self.graph.node:
            if node.op_type == "Conv":
                self.widen(node)
        nodes = []
        for node in self.graph.node:
            nodes.append(node)
            if node.output[0] in self.behind:
                nodes.append(self.behind[node.output[0]])
        del self.graph.node[:]
        self.graph.node.extend(nodes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("widened")
    parser.add_argument("--share", default=0.15, type=float, help="of the channels")
    parser.add_argument("--seed", default=7, type=int)
    arguments = parser.parse_args()
    model = onnx.load(arguments.model)
    widening = Widening(model, arguments.share, arguments.seed)
    widening.run()
    onnx.save(model, arguments.widened)
    print(f"{arguments.widened}: widened in {widening.places} places")


if __name__ == "__main__":
    main()
