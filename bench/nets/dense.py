"""Networks of matrix products: transformers and a wide perceptron."""

import math

from nets.builder import RELU_GAIN, Net


def attended(net, query, key, value, scale, mask=None):
    """Query and value [N, heads, tokens, channels], key with the last two exchanged; gives [N, tokens, all channels]."""
    scores = net.op("Mul", net.op("MatMul", query, key), net.constant(scale))
    if mask:
        scores = net.op("Add", scores, mask)
    found = net.op("MatMul", net.op("Softmax", scores, axis=-1), value)
    width = net.channels[query]
    return net.reshape(net.transpose(found, 0, 2, 1, 3), 0, 0, width, channels=width)


def bert(layers, tokens=128, width=768, heads=12, make=Net):
    """The encoder of BERT-base, behind its embeddings; `mask` is added to scores (0: a word is seen)."""
    net = make(f"bert_base_{layers}l")
    x = net.input("hidden", tokens, width, channels=width)
    mask = net.input("mask", 1, 1, tokens, channels=tokens)

    def split(x, *axes):
        return net.transpose(net.reshape(x, 0, 0, heads, width // heads), *axes)

    for _ in range(layers):
        query, key, value = split(net.linear(x, width), 0, 2, 1, 3), split(net.linear(x, width), 0, 2, 3, 1), \
            split(net.linear(x, width), 0, 2, 1, 3)
        y = attended(net, query, key, value, 1 / math.sqrt(width // heads), mask)
        x = net.layer_norm(net.add(net.linear(y, width), x))
        x = net.layer_norm(net.add(net.linear(net.gelu(net.linear(x, 4 * width)), width), x))
    net.output(x, tokens, width)
    return net


def vit_tiny(layers=12, width=192, heads=3, patch=16, size=224, make=Net):
    """With a width of 768 and 12 heads it is ViT-B/16."""
    net = make("vit_tiny")
    patches = (size // patch) ** 2
    x = net.conv(net.picture(size), width, patch, patch, pad=0, gain=1)
    x = net.transpose(net.reshape(x, 0, width, patches), 0, 2, 1)
    batch = net.op("Gather", net.op("Shape", x), net.constant([0], "int64"), axis=0)
    sizes = net.op("Concat", batch, net.constant([1, width], "int64"), axis=0)
    token = net.op("Expand", net.normal((1, 1, width), 0.02), sizes)
    x = net.op("Concat", token, x, axis=1, channels=width)
    x = net.op("Add", x, net.normal((1, patches + 1, width), 0.02))
    for _ in range(layers):
        y = net.reshape(net.linear(net.layer_norm(x), 3 * width), 0, 0, 3, heads, width // heads, channels=width)
        parts = net.op("Split", net.transpose(y, 2, 0, 3, 1, 4), net.constant([1, 1, 1], "int64"), outputs=3, axis=0)
        query, key, value = (net.op("Squeeze", part, net.constant([0], "int64")) for part in parts)
        y = attended(net, query, net.transpose(key, 0, 1, 3, 2), value, 1 / math.sqrt(width // heads))
        x = net.add(net.linear(y, width), x)
        x = net.add(net.linear(net.gelu(net.linear(net.layer_norm(x), 4 * width)), width), x)
    x = net.op("Gather", net.layer_norm(x), net.constant(0, "int64"), axis=1)
    net.output(net.fully_connected(x, 1000), 1000)
    return net


def wide_mlp():
    net = Net("wide_mlp")
    x = net.input("input", 1024, channels=1024)
    for _ in range(2):
        x = net.relu(net.fully_connected(x, 4096, gain=RELU_GAIN))
    net.output(net.fully_connected(x, 1000), 1000)
    return net
