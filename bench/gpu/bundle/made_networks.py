"""The networks that are run as a whole, written as ONNX on the spot with random weights (bench/nets).

    made_networks.py NAME FILE.onnx [--int8] [--few] [--shallow]

Batches are open. --int8 puts quantization around convolutions, products, sums and concatenations with scales that are
made up: random activations are of unit size, so no calibration is needed to time them. --shallow: two of twelve equal
blocks, for whoever needs each layer once.
"""

import argparse

import numpy
import onnx

from nets import convolutional, dense
from nets.builder import Net

ACTIVATION_SCALE = 0.05  # of activations of unit size


class QuantizedNet(Net):
    """A network in 8 bits: symmetric, weights with a scale for each channel."""

    def __init__(self, name):
        super().__init__(name)
        self.rounded = {}

    def quantized(self, x):
        if x not in self.rounded:
            scale, zero = self.constant(ACTIVATION_SCALE), self.constant(0, "int8")
            self.rounded[x] = self.op("DequantizeLinear", self.op("QuantizeLinear", x, scale, zero), scale, zero)
        return self.rounded[x]

    def rounded_weights(self, shape, deviation, axis):
        values = self.constant(numpy.clip(numpy.rint(40 * self.random.standard_normal(shape)), -127, 127), "int8")
        scale = self.constant(numpy.full(shape[axis], deviation / 40, "float32"))
        zero = self.constant(numpy.zeros(shape[axis]), "int8")
        return self.op("DequantizeLinear", values, scale, zero, axis=axis, channels=1)

    def conv(self, x, channels, kernel, stride=1, pad=None, groups=1, bias=True, gain=2.0):
        inputs, pad = self.channels[x] // groups, kernel // 2 if pad is None else pad
        w = self.rounded_weights((channels, inputs, kernel, kernel), (gain / (inputs * kernel * kernel)) ** 0.5, 0)
        b = self.normal((channels,), 0.05)  # normalization is folded into it
        return self.op("Conv", self.quantized(x), w, b, channels=channels, group=groups, kernel_shape=[kernel] * 2,
                       strides=[stride] * 2, pads=[pad] * 4, dilations=[1, 1])

    def batch_norm(self, x, scale=1.0):
        return x

    def linear(self, x, channels):
        inputs = self.channels[x]
        w = self.rounded_weights((inputs, channels), (1 / inputs) ** 0.5, 1)
        y = self.op("MatMul", self.quantized(x), w, channels=channels)
        return self.op("Add", y, self.normal((channels,), 0.02))

    def add(self, a, b):
        return super().add(a, self.quantized(b))

    def concat(self, *parts):
        return super().concat(*map(self.quantized, parts))

    def max_pool(self, x, *numbers, **more):
        return super().max_pool(self.quantized(x), *numbers, **more)


NETWORKS = {
    "resnet50": lambda few, blocks, make: convolutional.resnet50(make),
    "bert_base": lambda few, blocks, make: dense.bert(1, 8, 32, 2, make) if few else dense.bert(blocks, make=make),
    "vit_b16": lambda few, blocks, make: dense.vit_tiny(blocks, 768, 12, make=make),
    "yolo": lambda few, blocks, make: convolutional.yolo(make=make),
    "unet": lambda few, blocks, make: convolutional.unet(16, 4, make) if few else convolutional.unet(256, 64, make),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(NETWORKS))
    parser.add_argument("file")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--shallow", action="store_true")
    flags = parser.parse_args()
    make = NETWORKS[flags.name]
    onnx.save(make(flags.few, 2 if flags.shallow else 12, QuantizedNet if flags.int8 else Net).model(), flags.file)


if __name__ == "__main__":
    main()
