#!/usr/bin/python3
"""Small ONNX models with random weights of fixed seeds, for the GPU bundle: fire modules, inverted residuals, a residual
net and a transformer block, each in f32 and f16.

    make_models.py FOLDER
"""
import math
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Layers one after another; `x` names the last value."""

    def __init__(self, name, shape, half):
        self.name, self.half, self.nodes, self.weights = name, half, [], []
        self.random = numpy.random.default_rng(len(name))
        self.element = TensorProto.FLOAT16 if half else TensorProto.FLOAT
        self.input = helper.make_tensor_value_info("x", self.element, shape)
        self.x = "x"

    def weight(self, shape, scale):
        values = (self.random.standard_normal(shape) * scale).astype(numpy.float16 if self.half else numpy.float32)
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, op, *inputs, **attributes):
        self.x = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [self.x], name=self.x, **attributes))
        return self.x

    def conv(self, x, channels, filters, kernel, stride=1, groups=1):
        inside = channels // groups * kernel * kernel
        return self.add("Conv", x, self.weight((filters, channels // groups, kernel, kernel), math.sqrt(2 / inside)),
                        self.weight((filters,), 0.1), kernel_shape=[kernel] * 2, strides=[stride] * 2,
                        pads=[kernel // 2] * 4, group=groups)

    def linear(self, x, inside, outside):
        product = self.add("MatMul", x, self.weight((inside, outside), 1 / math.sqrt(inside)))
        return self.add("Add", product, self.weight((outside,), 0.1))

    def save(self, folder):
        output = helper.make_tensor_value_info(self.x, self.element, None)
        graph = helper.make_graph(self.nodes, self.name, [self.input], [output], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.save(model, f"{folder}/{self.name}.onnx")


def fire(net):
    x = net.add("Relu", net.conv(net.x, 3, 32, 3, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    channels = 32
    for squeeze, expand in ((8, 32), (16, 48)):
        x = net.add("Relu", net.conv(x, channels, squeeze, 1))
        left = net.add("Relu", net.conv(x, squeeze, expand, 1))
        right = net.add("Relu", net.conv(x, squeeze, expand, 3))
        x, channels = net.add("Concat", left, right, axis=1), 2 * expand
    x = net.add("GlobalAveragePool", net.conv(x, channels, 10, 1))
    net.add("Softmax", net.add("Flatten", x), axis=1)


def inverted(net):
    x = net.add("Relu", net.conv(net.x, 3, 16, 3, 2))
    for stride in (1, 2, 1):
        wide = net.add("Clip", net.conv(x, 16, 96, 1), "zero", "six")
        deep = net.add("Clip", net.conv(wide, 96, 96, 3, stride, 96), "zero", "six")
        thin = net.conv(deep, 96, 16, 1)
        x = thin if stride == 2 else net.add("Add", x, thin)
    net.linear(net.add("Flatten", net.add("GlobalAveragePool", x)), 16, 10)


def residual(net):
    x = net.add("Relu", net.conv(net.x, 3, 16, 3))
    for _ in range(3):
        y = net.conv(net.add("Relu", net.conv(x, 16, 16, 3)), 16, 16, 3)
        x = net.add("Relu", net.add("Add", x, y))
    x = net.add("AveragePool", x, kernel_shape=[8, 8], strides=[8, 8])
    net.linear(net.add("Flatten", x), 16 * 4 * 4, 10)


def transformer(net):
    width, heads, tokens = 64, 4, 32

    def split(x):
        shape = helper.make_tensor("shape", TensorProto.INT64, [4], [1, tokens, heads, width // heads])
        return net.add("Transpose", net.add("Reshape", x, net.add("Constant", value=shape)), perm=[0, 2, 1, 3])

    q, k, v = (split(net.linear("x", width, width)) for _ in range(3))
    scores = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 1, 3, 2]))
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=3), v)
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [1, tokens, width])
    mixed = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), net.add("Constant", value=shape))
    x = net.add("Add", "x", net.linear(mixed, width, width))
    inside = net.linear(x, width, 4 * width)
    net.add("Add", x, net.linear(net.add("Mul", inside, net.add("Sigmoid", inside)), 4 * width, width))


def main():
    for half in (False, True):
        for make, shape in ((fire, [2, 3, 64, 64]), (inverted, [1, 3, 64, 64]), (residual, [1, 3, 32, 32]),
                            (transformer, [1, 32, 64])):
            net = Net(f"{make.__name__}_{'f16' if half else 'f32'}", shape, half)
            if make is inverted:
                element = numpy.float16 if half else numpy.float32
                net.weights += [numpy_helper.from_array(numpy.array(6, element), "six"),
                                numpy_helper.from_array(numpy.array(0, element), "zero")]
            make(net)
            net.save(sys.argv[1])


if __name__ == "__main__":
    main()
