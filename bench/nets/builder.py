"""Writes ONNX networks layer by layer, with random weights that keep activations at their size.

Every method appends nodes and returns the name of the value they give, so that a network reads as its own definition:
`net.relu(net.conv(x, 64, 7, stride=2))`. Values know their channels (axis 1 of pictures, the last of tokens).
"""

import math

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8
RELU_GAIN = 2.0  # He: 1 / E[relu(x)^2] of a normal x
SILU_GAIN = 2.8  # the same of x * sigmoid(x)


class Net:
    """One network being written. Batches are of the open size `N`; weights depend on the name alone."""

    def __init__(self, name):
        self.name = name
        self.random = numpy.random.default_rng(list(name.encode()))
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.channels = {}

    # what networks are made of

    def input(self, name, *sizes, channels):
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *sizes]))
        self.channels[name] = channels
        return name

    def picture(self, size):
        return self.input("input", 3, size, size, channels=3)

    def output(self, value, *sizes):
        """Ends the network: `value`, of shape [N, sizes...], becomes its output."""
        self.nodes.append(helper.make_node("Identity", [value], ["output"], name="output_of_" + self.name))
        self.outputs.append(helper.make_tensor_value_info("output", TensorProto.FLOAT, ["N", *sizes]))

    def op(self, kind, *inputs, channels=None, outputs=1, **attributes):
        """A node; its results have the channels of the first input unless told otherwise."""
        names = [f"{kind.lower()}_{len(self.nodes)}" + (f"_{i}" if outputs > 1 else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"{kind}_{len(self.nodes)}", **attributes))
        for name in names:
            self.channels[name] = channels or self.channels.get(inputs[0])
        return names[0] if outputs == 1 else names

    def constant(self, values, dtype="float32"):
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.array(values, dtype, order="C"), name))
        return name

    def normal(self, shape, deviation):
        return self.constant(self.random.standard_normal(shape, "float32") * numpy.float32(deviation))

    def uniform(self, shape, low, high):
        return self.constant(self.random.uniform(low, high, shape))

    # convolutions and what surrounds them

    def conv(self, x, channels, kernel, stride=1, pad=None, groups=1, bias=True, gain=RELU_GAIN):
        """Padded to keep the size unless `pad` says otherwise; `gain` makes up for what the next layer loses."""
        inputs = self.channels[x] // groups
        pad = kernel // 2 if pad is None else pad
        weights = [self.normal((channels, inputs, kernel, kernel), math.sqrt(gain / (inputs * kernel * kernel)))]
        if bias:
            weights.append(self.normal((channels,), 0.05))
        return self.op("Conv", x, *weights, channels=channels, group=groups, kernel_shape=[kernel] * 2,
                       strides=[stride] * 2, pads=[pad] * 4, dilations=[1, 1])

    def doubled(self, x, channels):
        """Twice the height and width: the 2 x 2 ConvTranspose of U-Nets."""
        inputs = self.channels[x]
        return self.op("ConvTranspose", x, self.normal((inputs, channels, 2, 2), math.sqrt(1 / inputs)),
                       self.normal((channels,), 0.02), channels=channels, kernel_shape=[2, 2], strides=[2, 2])

    def batch_norm(self, x, scale=1.0):
        """Statistics near those of a trained network; `scale` below 1 keeps sums of residuals from growing."""
        n = self.channels[x]
        gamma, beta = self.uniform(n, 0.8 * scale, 1.2 * scale), self.normal((n,), 0.1)
        mean, variance = self.normal((n,), 0.1), self.uniform(n, 0.8, 1.2)
        return self.op("BatchNormalization", x, gamma, beta, mean, variance, epsilon=1e-5)

    def relu(self, x):
        return self.op("Relu", x)

    def relu6(self, x):
        return self.op("Clip", x, self.constant(0), self.constant(6))

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def max_pool(self, x, kernel, stride, pad=0, ceil=0):
        return self.op("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, ceil_mode=ceil)

    def pooled(self, x):
        """[N, C, H, W] to [N, C, 1, 1]."""
        return self.op("GlobalAveragePool", x)

    def concat(self, *parts):
        return self.op("Concat", *parts, axis=1, channels=sum(self.channels[part] for part in parts))

    def add(self, a, b):
        return self.op("Add", a, b)

    def fully_connected(self, x, channels, gain=1.0):
        """[N, in] to [N, channels]."""
        inputs = self.channels[x]
        return self.op("Gemm", x, self.normal((channels, inputs), math.sqrt(gain / inputs)),
                       self.normal((channels,), 0.02), channels=channels, transB=1)

    def classified(self, x, classes=1000):
        """Ends a classifier of pictures."""
        self.output(self.fully_connected(self.op("Flatten", self.pooled(x), axis=1), classes), classes)

    # transformers: [N, tokens, channels]

    def linear(self, x, channels):
        """MatMul and Add, as exporters write a layer on tokens."""
        inputs = self.channels[x]
        weights = self.normal((inputs, channels), math.sqrt(1 / inputs))
        return self.op("Add", self.op("MatMul", x, weights, channels=channels), self.normal((channels,), 0.02))

    def layer_norm(self, x):
        n = self.channels[x]
        return self.op("LayerNormalization", x, self.uniform(n, 0.8, 1.2), self.normal((n,), 0.05), axis=-1,
                       epsilon=1e-5)

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.constant(math.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.constant(1))), self.constant(0.5))

    def reshape(self, x, *sizes, channels=None):
        """A 0 keeps the size it stands for."""
        return self.op("Reshape", x, self.constant(sizes, "int64"), channels=channels)

    def transpose(self, x, *axes, channels=None):
        return self.op("Transpose", x, perm=axes, channels=channels)

    # the end

    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION,
                                  producer_name="anneal/bench")
        onnx.checker.check_model(model)
        return model
