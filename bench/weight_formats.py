#!/usr/bin/env python3
"""Products by weights that a model holds in 4, 8 or 16 bits, or scaled: Anneal and ONNX Runtime in turns, one thread.

    weight_formats.py ANNEAL [--side 4096] [--rows 1] [--rounds 5]

Prints the median time of one run of each, their ratio (above 1: Anneal is faster), the largest difference of the results
as a share of the largest, and the sizes of model and engine. By default ONNX Runtime rounds the activations of products by
8-bit weights to 8 bits, which the difference shows; "ORT f32" is its time if they stay f32, as Anneal's do. Needs numpy,
onnx and onnxruntime.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32


def tensors(**arrays):
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def n_bits(side, random, bits, **attributes):
    codes = random.integers(0, 256, (side, side // BLOCK, BLOCK * bits // 8), dtype=np.uint8)
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=side, N=side, bits=bits,
                            block_size=BLOCK, **attributes)
    return [node], tensors(w=codes, s=(random.random(side * side // BLOCK) * 0.01).astype(np.float32))


def four_bits(side, random):
    return n_bits(side, random, 4)


def four_bits_by_eight(side, random):
    """The activations may be rounded to 8 bits."""
    return n_bits(side, random, 4, accuracy_level=4)


def eight_bits(side, random):
    return n_bits(side, random, 8)


def eight_bits_by_eight(side, random):
    return n_bits(side, random, 8, accuracy_level=4)


def dequantized(side, random, scales, **attributes):
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["f"], **attributes), helper.make_node("MatMul", ["x", "f"], ["y"])]
    integers = random.integers(-127, 128, (side, side), dtype=np.int8)
    return nodes, tensors(w=integers, s=(random.random(scales) * 0.01).astype(np.float32))


def eight_bits_in_blocks(side, random):
    return dequantized(side, random, (side // BLOCK, side), axis=0, block_size=BLOCK)


def eight_bits_per_column(side, random):
    return dequantized(side, random, (side,), axis=1)


def half(side, random):
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), helper.make_node("MatMul", ["x", "f"], ["y"])]
    return nodes, tensors(w=(random.standard_normal((side, side)) * 0.02).astype(np.float16))


def scaled(side, random):
    nodes = [helper.make_node("Mul", ["w", "s"], ["f"]), helper.make_node("MatMul", ["x", "f"], ["y"])]
    return nodes, tensors(w=(random.standard_normal((side, side)) * 0.02).astype(np.float32),
                          s=random.random(side).astype(np.float32))


FORMATS = [("4 bits, MatMulNBits", four_bits), ("4 bits, accuracy_level 4", four_bits_by_eight),
           ("8 bits, MatMulNBits", eight_bits), ("8 bits, accuracy_level 4", eight_bits_by_eight), ("8 bits, a scale per block", eight_bits_in_blocks),
           ("8 bits, a scale per column", eight_bits_per_column), ("f16 with Cast", half), ("f32 times a scale", scaled)]


def save(path, side, rows, make):
    nodes, weights = make(side, np.random.default_rng(1))
    port = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, side])
    graph = helper.make_graph(nodes, "product", [port("x")], [port("y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 10
    path.write_bytes(model.SerializeToString())


def open_session(path, f32=False):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if f32:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def median_of_session(session, x, runs=20):
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        session.run(None, {"x": x})
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times))


def median_of_engine(anneal, engine, folder, runs=20):
    report = folder / "bench.json"
    subprocess.run([anneal, "bench", engine, "--threads", "1", "--iterations", str(runs), "--json", report], check=True,
                   capture_output=True)
    return json.loads(report.read_text())["latency_milliseconds"]["median"]


def measure(anneal, folder, name, make, flags):
    path, engine = folder / "model.onnx", folder / "model.engine"
    save(path, flags.side, flags.rows, make)
    subprocess.run([anneal, "build", path, "-o", engine], check=True, capture_output=True)
    session, session_f32 = open_session(path), open_session(path, f32=True)
    x = np.random.default_rng(2).standard_normal((flags.rows, flags.side)).astype(np.float32)
    np.save(folder / "x.npy", x)
    subprocess.run([anneal, "run", engine, "--input", f"x={folder}/x.npy", "--save", folder / "out"], check=True,
                   capture_output=True)
    want, got = session.run(None, {"x": x})[0], np.load(folder / "out" / "y.npy")
    rounds = [(median_of_session(session, x), median_of_session(session_f32, x), median_of_engine(anneal, engine, folder))
              for _ in range(flags.rounds)]
    peer, peer_f32, own = (float(np.median(times)) for times in zip(*rounds))
    sizes = f"{path.stat().st_size / 1e6:.0f} MB, {engine.stat().st_size / 1e6:.0f} MB"
    print(f"{name:28} {peer:8.2f} {peer_f32:8.2f} {own:8.2f} {peer / own:6.2f}  {np.abs(want - got).max() / np.abs(want).max():.0e}  {sizes}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anneal")
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    print(f"{'ms per run':28} {'ORT':>8} {'ORT f32':>8} {'Anneal':>8} {'ratio':>6}  error  model, engine")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in FORMATS:
            measure(flags.anneal, Path(folder), name, make, flags)


if __name__ == "__main__":
    main()
