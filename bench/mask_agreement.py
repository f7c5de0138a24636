#!/usr/bin/env python3
"""How far a segmentation network's masks agree: Anneal's with ONNX Runtime's, and ONNX Runtime's with and without its
optimizations, which says what rounding alone leaves open.

    build/bench-venv/bin/python bench/mask_agreement.py ../shared/data/models/deeplabv3_mnv2_dm05_qdq_u8

FOLDER holds model.onnx and test_data_set_0/input_0.pb. Printed: the share of equal pixels, and the mean over the classes
of either mask of intersection over union. Takes onnxruntime, onnx and numpy (`make bench` makes the environment).
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parent.parent


def anneal_mask(anneal, folder):
    with tempfile.TemporaryDirectory(prefix="anneal-mask-") as scratch:
        engine = f"{scratch}/x.engine"
        subprocess.run([anneal, "build", folder / "model.onnx", "-o", engine, "-q"], check=True)
        subprocess.run([anneal, "run", engine, "--input", folder / "test_data_set_0/input_0.pb", "--save", scratch],
                       check=True, stdout=subprocess.DEVNULL)
        return numpy.load(next(Path(scratch).glob("*.npy")))


def onnxruntime_mask(folder, level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    x = numpy_helper.to_array(onnx.load_tensor(str(folder / "test_data_set_0/input_0.pb")))
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def agreement(a, b):
    unions = [(numpy.sum((a == c) & (b == c)), numpy.sum((a == c) | (b == c))) for c in numpy.union1d(a, b)]
    return f"{numpy.mean(a == b):.4f} of the pixels equal, mean IoU {numpy.mean([i / u for i, u in unions]):.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--anneal", default=ROOT / "build/release/bin/anneal")
    arguments = parser.parse_args()
    levels = onnxruntime.GraphOptimizationLevel
    plain = onnxruntime_mask(arguments.folder, levels.ORT_DISABLE_ALL)
    print(f"onnxruntime {onnxruntime.__version__}, without its optimizations, and")
    print(f"  Anneal:        {agreement(anneal_mask(arguments.anneal, arguments.folder), plain)}")
    print(f"  with them:     {agreement(onnxruntime_mask(arguments.folder, levels.ORT_ENABLE_ALL), plain)}")


main()
