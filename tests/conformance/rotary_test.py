#!/usr/bin/python3
"""Rotary embeddings at positions up to 5,000, in every precision: the angles come of a MatMul, a Mul or an Einsum.

    rotary_test.py ANNEAL

The scores of attention in 16 and 8 bits are within 2 % of the largest score of f64 by numpy. Angles in f16 are off by more than a
radian there. Needs numpy and onnx.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print(f"{missing.name} is not here")
    sys.exit(77)

TOKENS, DEPTH, WIDTH, HEADS, LAST = 24, 64, 128, 2, 5000
WAYS = {"f32": [], "fp16": ["--fp16"], "bf16": ["--bf16"], "best": ["--best"], "int8": ["--int8", "--calibrate"],
        "best, calibrated": ["--best", "--calibrate"]}
MOST, MOST_F32 = 0.02, 0.002


def angles(form, frequencies):
    """Nodes and constants that make `angles` [1, tokens, DEPTH / 2] of `positions` [1, tokens]."""
    if form == "MatMul":
        nodes = [("Unsqueeze", ["positions", "one"], "row", {}), ("MatMul", ["frequencies", "row"], "columns", {}),
                 ("Transpose", ["columns"], "angles", {"perm": [0, 2, 1]})]
        return nodes, frequencies.reshape(1, -1, 1)
    if form == "Mul":
        return [("Unsqueeze", ["positions", "two"], "column", {}), ("Mul", ["column", "frequencies"], "angles", {})], frequencies
    return [("Einsum", ["positions", "frequencies"], "angles", {"equation": "bi,j->bij"})], frequencies


def model(form, weights, frequencies):
    first, shaped = angles(form, frequencies)
    nodes = [("Cast", ["p"], "positions", {"to": TensorProto.FLOAT}), *first, ("Concat", ["angles", "angles"], "both", {"axis": -1}),
             ("Cos", ["both"], "cos", {}), ("Sin", ["both"], "sin", {}), ("Unsqueeze", ["cos", "one"], "cosines", {}),
             ("Unsqueeze", ["sin", "one"], "sines", {})]
    for name in ("q", "k"):
        nodes += [("MatMul", ["x", f"w{name}"], f"{name}0", {}), ("Reshape", [f"{name}0", "heads"], f"{name}1", {}),
                  ("Transpose", [f"{name}1"], f"{name}2", {"perm": [0, 2, 1, 3]}),
                  ("Split", [f"{name}2", "halves"], [f"{name}a", f"{name}b"], {"axis": -1}), ("Neg", [f"{name}b"], f"{name}n", {}),
                  ("Concat", [f"{name}n", f"{name}a"], f"{name}r", {"axis": -1}), ("Mul", [f"{name}2", "cosines"], f"{name}c", {}),
                  ("Mul", [f"{name}r", "sines"], f"{name}s", {}), ("Add", [f"{name}c", f"{name}s"], f"{name}e", {})]
    nodes += [("Transpose", ["ke"], "kt", {"perm": [0, 1, 3, 2]}), ("MatMul", ["qe", "kt"], "scores", {}),
              ("Mul", ["scores", "scale"], "y", {})]
    constants = {**weights, "frequencies": shaped.astype("float32"), "heads": numpy.array([1, TOKENS, HEADS, DEPTH]),
                 "one": numpy.array([1]), "two": numpy.array([2]), "halves": numpy.array([DEPTH // 2] * 2),
                 "scale": numpy.array(DEPTH ** -0.5, "float32")}
    graph = helper.make_graph(
        [helper.make_node(op, inputs, outputs if isinstance(outputs, list) else [outputs], **attributes)
         for op, inputs, outputs, attributes in nodes], "rotary",
        [helper.make_tensor_value_info("p", TensorProto.INT64, [1, TOKENS]),
         helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, TOKENS, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, HEADS, TOKENS, TOKENS])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def right(positions, x, weights, frequencies):
    """In f64."""
    both = numpy.concatenate([positions[0][:, None] * frequencies] * 2, axis=-1)

    def turned(weight):
        y = (x[0].astype("float64") @ weight).reshape(TOKENS, HEADS, DEPTH).transpose(1, 0, 2)
        half = DEPTH // 2
        return y * numpy.cos(both) + numpy.concatenate([-y[..., half:], y[..., :half]], axis=-1) * numpy.sin(both)

    return turned(weights["wq"]) @ turned(weights["wk"]).transpose(0, 2, 1) * DEPTH ** -0.5


def main(anneal):
    random = numpy.random.default_rng(1)
    frequencies = 10000.0 ** (-numpy.arange(0, DEPTH, 2) / DEPTH)
    weights = {name: (random.standard_normal((WIDTH, HEADS * DEPTH)) / 11).astype("float32") for name in ("wq", "wk")}
    positions = numpy.linspace(0, LAST, TOKENS).astype("int64").reshape(1, TOKENS)
    x = random.standard_normal((1, TOKENS, WIDTH)).astype("float32")
    wanted = right(positions, x, weights, frequencies)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="anneal-rotary-") as folder:
        folder = Path(folder)
        samples = folder / "samples/0"
        samples.mkdir(parents=True)
        for index, (name, tensor) in enumerate((("p", positions), ("x", x))):
            numpy.save(folder / f"{name}.npy", tensor)
            (samples / f"input_{index}.pb").write_bytes(numpy_helper.from_array(tensor, name).SerializeToString())
        for form in ("MatMul", "Mul", "Einsum"):
            (folder / "model.onnx").write_bytes(model(form, weights, frequencies).SerializeToString())
            for way, flags in WAYS.items():
                given = [*flags, folder / "samples"] if "--calibrate" in flags else flags
                subprocess.run([anneal, "build", folder / "model.onnx", "-q", "-o", folder / "model.engine", *given], check=True)
                subprocess.run([anneal, "run", folder / "model.engine", "--input", f"p={folder}/p.npy", "--input",
                                f"x={folder}/x.npy", "--save", folder / "out"], check=True, stdout=subprocess.DEVNULL)
                scores = numpy.load(folder / "out/y.npy")[0].astype("float64")
                loss = float(numpy.abs(scores - wanted).max() / numpy.abs(wanted).max())
                print(f"{form}, {way}: {100 * loss:.3f} % of the largest score", flush=True)
                wrong += not loss < (MOST if flags else MOST_F32)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
