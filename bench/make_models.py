#!/usr/bin/env python3
"""Writes the networks that `make bench` measures: well-known ones with random weights, in f32 and in 8 bits.

    build/bench-venv/bin/python bench/make_models.py build/bench-nets
    build/bench-venv/bin/python bench/make_models.py OUT --nets resnet50,unet

NAME.onnx is f32 with an open batch size and BatchNormalization as exporters leave it; NAME_qdq.onnx is the same in 8
bits (`bench/nets/quantized.py`). Seeds are fixed: the same versions of `bench/requirements.txt` write the same files.
Weights are He-initialised, and a network whose outputs leave the size of a trained one's logits is refused: outputs
of random numbers that vanish or explode compare nothing.
"""

import argparse
import sys
from pathlib import Path

import numpy
import onnx
import onnxruntime

from nets import convolutional, dense
from nets.quantized import quantize, random_inputs

LEAST_RMS, LARGEST_RMS = 0.5, 6.0
# How far 8 bits may be from f32, as a share of the rms.
LARGEST_LOSS = 0.15


def networks(bert_layers):
    return {"resnet50": convolutional.resnet50, "mobilenet_v2": convolutional.mobilenet_v2,
            "efficientnet_b0": convolutional.efficientnet_b0, "squeezenet1_1": convolutional.squeezenet1_1,
            "googlenet": convolutional.googlenet, f"bert_base_{bert_layers}l": lambda: dense.bert(bert_layers),
            "vit_tiny": dense.vit_tiny, "unet": convolutional.unet, "wide_mlp": dense.wide_mlp}


def outputs(path):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, random_inputs(session, 0))[0]


def rms(values):
    return float(numpy.sqrt(numpy.mean(numpy.square(values, dtype="float64"))))


def make(name, write, folder):
    plain, quantized = folder / f"{name}.onnx", folder / f"{name}_qdq.onnx"
    model = write().model()
    onnx.save(model, str(plain))
    quantize(plain, quantized)
    right, rounded = outputs(plain), outputs(quantized)
    size, loss = rms(right), rms(rounded - right) / rms(right)
    print(f"{name:16} {len(model.graph.node):4} nodes, {plain.stat().st_size / 1e6:6.1f} MB; logits of rms {size:.2f}, "
          f"8 bits lose {loss:.3f} of it", flush=True)
    if not LEAST_RMS <= size <= LARGEST_RMS:
        sys.exit(f"make_models.py: the logits of {name} should have a rms of {LEAST_RMS} to {LARGEST_RMS}: "
                 "change the gains of its layers")
    if loss > LARGEST_LOSS:
        sys.exit(f"make_models.py: 8 bits lose too much of {name} to compare outputs by")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", help="only these, with commas between")
    parser.add_argument("--bert-layers", type=int, default=2, help="2 of BERT-base's 12 keep the file at 57 MB")
    parser.add_argument("out", type=Path, help="folder for the files; made if it is not there")
    flags = parser.parse_args()
    known = networks(flags.bert_layers)
    names = flags.nets.split(",") if flags.nets else list(known)
    if unknown := set(names) - set(known):
        parser.error(f"no such network: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    flags.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        make(name, known[name], flags.out)


if __name__ == "__main__":
    main()
