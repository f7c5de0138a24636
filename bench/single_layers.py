#!/usr/bin/env python3
"""Models of one layer at the sizes of real networks: Anneal and ONNX Runtime in turns. Finds kernels that are far slower than they could be.

    single_layers.py ANNEAL [--only REGEX] [--threads 1] [--below 0.7]

Prints the shortest times of a run, their ratio (above 1: Anneal is faster) and Anneal's kernels, those with the lowest ratio first. Inputs and
outputs lie as ONNX has them, so layers that compute with channels beside each other copy them here, which they do not inside a network.
--below: only ratios below it. Needs numpy, onnx and onnxruntime.
"""

import argparse
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

random = np.random.default_rng(0)


def f32(*dims):
    return random.standard_normal(dims).astype(np.float32)


def i64(low, high, *dims):
    return random.integers(low, high, dims).astype(np.int64)


def u8(*dims):
    return random.integers(0, 256, dims).astype(np.uint8)


def i8(*dims):
    return random.integers(-127, 128, dims).astype(np.int8)


def numbers(*values):
    return np.array(values, np.int64)


def number(value, dtype=np.float32):
    return np.array(value, dtype)


def boxes(count, size):
    return np.sort(random.random((count, 4)).astype(np.float32) * size, axis=-1)


IMAGE, TOKENS, HEADS = (1, 64, 56, 56), (1, 128, 768), (1, 12, 128, 64)
WIDE = (1, 128, 3072)
NO_ROI = np.array([], np.float32)


# operator, inputs, constants behind them, attributes; outputs and domain are attributes of that name.
def cases():
    for name in ("Erf", "Gelu", "Sigmoid", "Tanh", "Exp", "Sin", "Cos", "Elu", "Selu", "Mish", "HardSwish", "Softplus", "Atan", "Floor"):
        yield name, [f32(*WIDE)], [], {}
    yield "Pow", [abs(f32(*WIDE))], [number(1.7)], {}
    for name in ("Add", "Mul", "Div", "Max"):
        yield name, [f32(*TOKENS), f32(*TOKENS)], [], {}
    yield "Add", [f32(*IMAGE), f32(64, 1, 1)], [], {}
    yield "Where", [random.random((1, 12, 128, 128)) > 0.5, f32(1, 12, 128, 128), f32(1, 1, 1, 1)], [], {}
    yield "Equal", [i64(0, 9, 100_000), i64(0, 9, 100_000)], [], {}
    yield "Mod", [i64(0, 99_999, 100_000)], [number(7, np.int64)], {}
    yield "Trilu", [f32(1, 12, 512, 512)], [], {"upper": 0}
    for to in (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT16, onnx.TensorProto.BOOL):
        yield "Cast", [abs(f32(*TOKENS))], [], {"to": to}
    yield "Softmax", [f32(1, 12, 128, 128)], [], {"axis": -1}
    yield "Softmax", [f32(1, 21, 256, 256)], [], {"axis": 1}
    yield "Softmax", [f32(196, 196, 4)], [], {"axis": 1}
    yield "Softmax", [f32(50_000, 4)], [], {"axis": -1}
    yield "LayerNormalization", [f32(3136, 96), f32(96), f32(96)], [], {}
    for name in ("Softmax", "LogSoftmax"):
        yield name, [f32(8192, 64)], [], {"axis": -1}
    for name in ("ReduceL2", "ReduceMax"):
        yield name, [f32(50_000, 3)], [numbers(-1)], {}
    for name in ("ReduceL2", "ReduceMax", "ReduceMean"):
        yield name, [f32(8192, 32)], [numbers(-1)], {}
    yield "LayerNormalization", [f32(*TOKENS), f32(768), f32(768)], [], {}
    yield "InstanceNormalization", [f32(*IMAGE), f32(64), f32(64)], [], {}
    yield "LRN", [f32(*IMAGE)], [], {"size": 5}
    for axes in ((-1,), (1,), (0, 1)):
        yield "ReduceMean", [f32(*TOKENS)], [numbers(*axes)], {}
    yield "ReduceMean", [f32(*IMAGE)], [numbers(2, 3)], {}
    yield "ArgMax", [f32(1, 21, 256, 256)], [], {"axis": 1}
    yield "ArgMax", [f32(128, 30_000)], [], {"axis": -1}
    yield "TopK", [f32(100, 10_000)], [numbers(10)], {"outputs": 2}
    yield "TopK", [f32(1, 100_000)], [numbers(1000)], {"outputs": 2}
    for dims in ((128, 10_000), (16, 512, 64)):
        yield "CumSum", [f32(*dims)], [number(1, np.int64)], {}
    yield "Transpose", [f32(1, 128, 12, 64)], [], {"perm": [0, 2, 1, 3]}
    yield "Transpose", [f32(*IMAGE)], [], {"perm": [0, 2, 3, 1]}
    yield "Concat", [f32(*IMAGE), f32(*IMAGE)], [], {"axis": 1}
    yield "Split", [f32(*TOKENS)], [], {"axis": -1, "num_outputs": 3, "outputs": 3}
    yield "Slice", [f32(*IMAGE)], [numbers(0), numbers(56), numbers(3), numbers(2)], {}
    yield "Pad", [f32(*IMAGE)], [numbers(0, 0, 1, 1, 0, 0, 1, 1)], {}
    yield "Expand", [f32(1, 128, 1)], [numbers(16, 128, 768)], {}
    yield "Tile", [f32(*TOKENS)], [numbers(4, 1, 1)], {}
    yield "DepthToSpace", [f32(*IMAGE)], [], {"blocksize": 2}
    yield "Gather", [f32(30_000, 768), i64(0, 30_000, 1, 128)], [], {"axis": 0}
    yield "Gather", [f32(64, 1000, 16), i64(0, 1000, 300)], [], {"axis": 1}
    yield "Gather", [f32(50_000, 64), i64(0, 50_000, 200_000)], [], {"axis": 0}
    yield "GatherElements", [f32(512, 1000), i64(0, 512, 512, 1000)], [], {"axis": 0}
    yield "GatherND", [f32(64, 64, 128), i64(0, 64, 1000, 2)], [], {}
    yield "ScatterND", [f32(1000, 128), i64(0, 1000, 300, 1), f32(300, 128)], [], {}
    yield "ScatterND", [f32(1000, 128), i64(0, 1000, 300, 1), f32(300, 128)], [], {"reduction": "add"}
    yield "ScatterElements", [f32(512, 1000), i64(0, 512, 100, 1000), f32(100, 1000)], [], {"axis": 0}
    yield "ScatterElements", [f32(512, 1000), i64(0, 512, 100, 1000), f32(100, 1000)], [], {"axis": 0, "reduction": "add"}
    nodes = np.repeat(i64(0, 10_000, 50_000, 1), 64, 1)
    yield "ScatterElements", [f32(10_000, 64), nodes, f32(50_000, 64)], [], {"axis": 0, "reduction": "add"}
    yield "Col2Im", [f32(1, 64 * 9, 784)], [numbers(28, 28), numbers(3, 3)], {"pads": [1] * 4}
    yield "ReverseSequence", [f32(128, 16, 256), numbers(*[100] * 16)], [], {}
    yield "NonZero", [random.random((512, 512)) > 0.5], [], {}
    yield "OneHot", [i64(0, 1000, 512)], [number(1000, np.int64), np.array([0, 1], np.float32)], {}
    for mode, scale in (("linear", 2), ("nearest", 2), ("cubic", 2)):
        yield "Resize", [f32(*IMAGE)], [NO_ROI, np.array([1, 1, scale, scale], np.float32)], {"mode": mode}
    yield "Resize", [f32(1, 3, 1080, 1920)], [NO_ROI, NO_ROI, numbers(1, 3, 224, 224)], {"mode": "linear"}
    for channels, size in ((32, 56), (3, 256)):
        yield "GridSample", [f32(1, channels, size, size), random.uniform(-1, 1, (1, size, size, 2)).astype(np.float32)], [], {}
    yield "RoiAlign", [f32(1, 256, 50, 50), boxes(100, 40), np.zeros(100, np.int64)], [], {
        "output_height": 7, "output_width": 7, "sampling_ratio": 2}
    yield "NonMaxSuppression", [boxes(2000, 100)[None], random.random((1, 20, 2000)).astype(np.float32)], [
        numbers(100), np.array([0.5], np.float32), np.array([0.5], np.float32)], {}
    for name in ("MaxPool", "AveragePool"):
        yield name, [f32(*IMAGE)], [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    yield "MaxPool", [f32(*IMAGE)], [], {"kernel_shape": [2, 2], "strides": [2, 2], "outputs": 2}
    yield "LpPool", [f32(*IMAGE)], [], {"kernel_shape": [2, 2], "strides": [2, 2]}
    for channels, dims, kernel, more in ((256, (1000,), (31,), {"pads": [15] * 2}), (64, (16_000,), (3,), {"pads": [4] * 2, "dilations": [4]}),
                                         (96, (56, 56), (7, 7), {"pads": [3] * 4}), (96, (56, 56), (3, 3), {"pads": [1] * 4})):
        yield "Conv", [f32(1, channels, *dims)], [f32(channels, 1, *kernel)], {"group": channels, **more}
    for x, w, more in (((1, 3, 224, 224), (64, 3, 7, 7), {"strides": [2, 2], "pads": [3] * 4}), (IMAGE, (64, 64, 3, 3), {"pads": [1] * 4}),
                       (IMAGE, (64, 64, 3, 3), {"pads": [2] * 4, "dilations": [2, 2]}),
                       ((1, 512, 32, 32), (256, 512, 3, 3), {"pads": [24] * 4, "dilations": [24, 24]}), ((1, 128, 56, 56), (128, 4, 3, 3), {"pads": [1] * 4, "group": 32}),
                       ((1, 80, 3000), (384, 80, 3), {"pads": [1, 1]}), ((1, 16, 8, 56, 56), (16, 16, 3, 3, 3), {"pads": [1] * 6}),
                       ((1, 1, 512, 512), (32, 1, 3, 3), {"pads": [1] * 4})):
        yield "Conv", [f32(*x)], [f32(*w)], more
    for w, more in (((64, 32, 2, 2), {"strides": [2, 2]}), ((64, 32, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
                    ((64, 1, 4, 4), {"strides": [2, 2], "pads": [1] * 4, "group": 64})):
        yield "ConvTranspose", [f32(*IMAGE)], [f32(*w)], more
    yield "ConvTranspose", [f32(1, 56, 64, 64)], [f32(56, 1, 9, 9)], {"strides": [2, 2], "pads": [4] * 4}
    scale, zero = number(0.02), number(128, np.uint8)
    for w, group in ((i8(64, 64, 3, 3), 1), (u8(64, 64, 3, 3), 1), (i8(64, 1, 3, 3), 64), (u8(64, 1, 3, 3), 64)):
        w_zero = number(131 if w.dtype == np.uint8 else 0, w.dtype)
        yield "QLinearConv", [u8(*IMAGE)], [scale, zero, w, number(0.01), w_zero, number(0.05), zero], {"pads": [1] * 4, "group": group}
    for m, k, n in ((1, 768, 3072), (128, 768, 768), (4096, 64, 64), (1000, 512, 1)):
        yield "MatMul", [f32(m, k)], [f32(k, n)], {}
    for m in (1, 16, 128):
        yield "MatMul", [f32(12, m, 64), f32(12, 64, 128)], [], {}
    yield "MatMul", [f32(32, 1, 128), f32(32, 128, 1000)], [], {}
    yield "MatMul", [f32(4, 24, 512), f32(4, 512, 1024)], [], {}
    yield "MatMul", [f32(64, 256).astype(np.float64), f32(256, 256).astype(np.float64)], [], {}
    yield "MatMulInteger", [u8(128, 768)], [i8(768, 768), zero], {}
    for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        yield name, [f32(100, 1, 128)], [f32(1, gates * 256, 128), f32(1, gates * 256, 256)], {"hidden_size": 256}
    for length in (1, 512):
        states = f32(1, 16, 128, 128), -abs(f32(1, length, 16)), random.random((1, length, 16)).astype(np.float32)
        yield "LinearAttention", [f32(1, length, 2048), f32(1, length, 2048) / 12, f32(1, length, 2048), *states], [], {
            "domain": "com.microsoft", "q_num_heads": 16, "kv_num_heads": 16, "update_rule": "gated_delta", "outputs": 2}
    for bits in (8, 4):  # of a quantized cache of 4,096 keys, the last of which is new
        rows = [i8(1, 8, 4096, 128) if bits == 8 else u8(1, 8, 4096, 64) for _ in range(2)]
        lengths = np.array([4095], np.int32), np.array([4096], np.int32)
        scales = [np.full((1, 8, 1, 128), 0.01, np.float32)] * 2
        yield "GroupQueryAttention", [f32(1, 1, 4096), f32(1, 1, 1024), f32(1, 1, 1024), *rows, *lengths], [np.empty(0)] * 5 + scales, {
            "domain": "com.microsoft", "num_heads": 32, "kv_num_heads": 8, "k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL",
            "kv_cache_bit_width": bits, "outputs": 3}
    for name in ("FastGelu", "QuickGelu"):
        yield name, [f32(*WIDE)], [], {"domain": "com.microsoft"}
    yield "MultiHeadAttention", [f32(*TOKENS)] * 3, [], {"domain": "com.microsoft", "num_heads": 12}


def save(path, op, inputs, constants, attributes):
    attributes = dict(attributes)
    outputs = [f"y{i}" for i in range(attributes.pop("outputs", 1))]
    given, held = [f"x{i}" for i in range(len(inputs))], [f"c{i}" if constant.size else "" for i, constant in enumerate(constants)]
    node = helper.make_node(op, given + held, outputs, domain=attributes.pop("domain", ""), **attributes)
    ports = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in zip(given, inputs)]
    graph = helper.make_graph([node], "layer", ports, [helper.make_empty_tensor_value_info(y) for y in outputs],
                              [numpy_helper.from_array(constant, name) for constant, name in zip(constants, held) if name])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 10
    path.write_bytes(model.SerializeToString())
    return dict(zip(given, inputs))


def shortest_of_session(session, feed, seconds):
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def kernels_of(anneal, engine):
    plan = subprocess.run([anneal, "inspect", engine, "--plan"], check=True, capture_output=True, text=True).stdout
    return re.findall(r"^step .* = (cpu\.[a-z0-9_.]+)\(", plan, re.M)


def measure(anneal, folder, threads, op, inputs, constants, attributes):
    model, engine, report = folder / "layer.onnx", folder / "layer.engine", folder / "bench.json"
    feed = save(model, op, inputs, constants, attributes)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    subprocess.run([anneal, "build", model, "-o", engine], check=True, capture_output=True)
    given = []
    for name, x in feed.items():
        np.save(folder / f"{name}.npy", x)
        given += ["--input", f"{name}={folder}/{name}.npy"]
    own, peer = [], []
    for _ in range(3):
        subprocess.run([anneal, "bench", engine, "--threads", str(threads), "--duration", "0.1", "--json", report, *given], check=True,
                       capture_output=True)
        own.append(json.loads(report.read_text())["latency_milliseconds"]["min"])
        peer.append(shortest_of_session(session, feed, 0.1))
    return min(own), min(peer), " ".join(kernels_of(anneal, engine))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anneal")
    parser.add_argument("--only", default="", metavar="REGEX", help="of operators")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--below", type=float, default=float("inf"))
    flags = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for op, inputs, constants, attributes in cases():
            if not re.search(flags.only, op):
                continue
            own, peer, kernels = measure(flags.anneal, Path(folder), flags.threads, op, inputs, constants, attributes)
            shapes = " ".join("x".join(map(str, array.shape)) for array in inputs + [c for c in constants if c.ndim > 1])
            rows.append((peer / own, own, peer, f"{op} {shapes}", kernels))
    print(f"{'ratio':>6} {'Anneal':>9} {'ORT':>9}  layer, kernels (ms)")
    for ratio, own, peer, layer, kernels in sorted(rows):
        if ratio < flags.below:
            print(f"{ratio:6.2f} {own:9.3f} {peer:9.3f}  {layer}  {kernels}")


if __name__ == "__main__":
    main()
