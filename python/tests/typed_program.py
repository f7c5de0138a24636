"""A user's program, for mypy: what the stubs say about each call."""

import logging
from typing import Any

import anneal
import numpy as np


def main() -> None:
    engine = anneal.build("model.onnx", "model.engine", precision="int8", calibrate=[np.zeros((1, 3))])
    report: anneal.BuildReport | None = engine.report
    if report is not None:
        layers: list[str] = [layer.name for layer in report.self_check.back_to_f32]
        print(layers, [decision.text for decision in report.decisions])
    for port in engine.inputs:
        name: str = port.name
        shape: tuple[int | str, ...] = port.shape
        print(name, port.dtype, shape, port.min_shape)
    session: anneal.Session = engine.session(threads=1)
    outputs: dict[str, Any] = session.run({"image": np.zeros((1, 3), "float32")})
    scores: list[Any] = session.run(["scores"], {"image": np.zeros((1, 3), "float32")})
    stream = anneal.Stream("cpu")
    session.enqueue({"image": np.zeros((1, 3))}, stream, out=outputs)
    print(session.wait(), session.is_done(), scores)
    rows: list[dict[str, Any]] = session.profile({"image": 0}).to_rows()
    tuned, frontier = anneal.tune("model.onnx", [np.zeros((1, 3))], lambda answer: float(answer.outputs["scores"][0]))
    print(rows, tuned.device, frontier.points, frontier.svg())
    options: anneal.BuildOptions = {"precision": ["best", "bf16"], "shapes": {"image": anneal.Shapes(max=(8, 3))}, "threads": 1}
    small = anneal.build("model.onnx", log=logging.getLogger("build"), **options)
    session.observe(lambda tensor: print(tensor.name, tensor.value, tensor.iterations), names="conv.*")
    session.observe(None)
    compared: anneal.Comparison = anneal.compare(engine, small, {"image": np.zeros((1, 3))}, rtol=0.01)
    worst: float = max(tensor.max_abs_error for tensor in compared.outputs)
    masked = anneal.Samples([np.zeros((1, 3))], masks=[np.zeros((4, 4), "int32")])
    print(worst, compared.agrees, anneal.calibrate("model.onnx", masked, exact=True, log=lambda level, text: print(level, text)))
    try:
        anneal.load(b"", device="cpu")
    except anneal.InvalidArgumentError as error:
        print(error.code, error.port, error.dims)
