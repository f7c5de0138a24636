#!/usr/bin/env python3
"""What a run costs in Python beyond the run in C++, on models of a few microseconds; with ONNX Runtime beside it.

    python bench/python_overhead.py [--rounds N]    with a Python that has anneal, numpy, onnx and onnxruntime

Each number is the least of the rounds' means, in microseconds of CPU time per run on one thread: other programs disturb that less. C++ is `anneal bench`, whose number is
the least of its runs: so the difference is an upper bound.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time

import anneal
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper


def relu(inputs):
    """`inputs` times y = relu(x) of 64 floats."""
    def ports(name):
        return [helper.make_tensor_value_info(f"{name}{i}", TensorProto.FLOAT, [1, 64]) for i in range(inputs)]

    nodes = [helper.make_node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(inputs)]
    return helper.make_model(helper.make_graph(nodes, "relu", ports("x"), ports("y")),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def perceptron():
    """A product of 256 x 256 and a bias."""
    random = np.random.default_rng(0)
    weights = [onnx.numpy_helper.from_array(random.normal(size=shape).astype("float32"), name)
               for name, shape in (("w", (256, 256)), ("b", (256,)))]
    return helper.make_model(helper.make_graph(
        [helper.make_node("Gemm", ["x0", "w", "b"], ["y0"])], "perceptron",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, 256])],
        [helper.make_tensor_value_info("y0", TensorProto.FLOAT, [1, 256])], weights),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def microseconds(run, rounds, runs=5000):
    for _ in range(runs):
        run()
    least = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(runs):
            run()
        least = min(least, (time.process_time() - begin) / runs * 1e6)
    return least


def in_cpp(path, folder):
    report = f"{folder}/bench.json"
    subprocess.run([sys.executable, "-m", "anneal", "bench", path, "--threads", "1", "--duration", "0.5", "--json", report],
                   check=True, stdout=subprocess.DEVNULL)
    with open(report, encoding="utf-8") as file:
        return json.load(file)["latency_milliseconds"]["min"] * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    print(f"anneal {anneal.__version__}, Python {sys.version.split()[0]}, NumPy {np.__version__}, "
          f"ONNX Runtime {onnxruntime.__version__}; microseconds per run")
    print(f"{'model':22}{'C++':>8}{'run()':>8}{'out=':>8}{'call':>8}{'most over C++':>15}{'ONNX Runtime':>14}")
    for name, model in (("relu of 64", relu(1)), ("4 of them", relu(4)), ("product of 256 x 256", perceptron())):
        with tempfile.TemporaryDirectory() as folder:
            engine = anneal.build(model, f"{folder}/a.engine")
            session = engine.session(threads=1)
            inputs = {port.name: np.ones(port.shape, port.dtype) for port in engine.inputs}
            out = {port.name: np.empty(port.shape, port.dtype) for port in engine.outputs}
            arrays = list(inputs.values())
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            theirs = onnxruntime.InferenceSession(model.SerializeToString(), options)
            cpp = in_cpp(engine.path, folder)
            ours = [microseconds(run, rounds) for run in (lambda: session.run(inputs), lambda: session.run(inputs, out=out),
                                                          lambda: session(*arrays))]
            other = microseconds(lambda: theirs.run(None, inputs), rounds)
        print(f"{name:22}{cpp:8.2f}" + "".join(f"{each:8.2f}" for each in ours) + f"{max(ours) - cpp:15.2f}{other:14.2f}")


if __name__ == "__main__":
    main()
