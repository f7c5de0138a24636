#!/usr/bin/env python3
"""Forests of decision trees by batch: Anneal and ONNX Runtime in turns, on one thread.

    trees.py [--rounds 5]

A random forest (scikit-learn), LightGBM and XGBoost learn a function of 30 numbers. Each run has other rows, as in a service: a
processor that has seen the rows before predicts their ways down the trees. Prints microseconds for a run, the median of rounds,
and the ratio (above 1: Anneal is faster); fails if results differ. Needs anneal, onnxruntime, scikit-learn, skl2onnx, lightgbm, xgboost and onnxmltools.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import anneal
import lightgbm
import numpy as np
import onnxmltools
import onnxruntime
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

FEATURES, LEARNED, ROWS = 30, 4000, 20000
BATCHES = (1, 16, 1000)


def learned():
    """Names and models."""
    random = np.random.default_rng(0)
    x = random.standard_normal((LEARNED, FEATURES), dtype=np.float32)
    y = (x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.3 * random.standard_normal(LEARNED)).astype(np.float32)
    classes = np.digitize(y, [-0.5, 0.5])
    forest = RandomForestClassifier(100, random_state=0).fit(x, classes)
    yield "random forest, 100 trees, 3 classes", to_onnx(forest, x[:1], options={"zipmap": False}, target_opset={"": 17, "ai.onnx.ml": 3})
    forest = RandomForestRegressor(200, max_depth=10, random_state=0).fit(x, y)
    yield "random forest, 200 trees of 10 levels", to_onnx(forest, x[:1], target_opset={"": 17, "ai.onnx.ml": 3})
    rows = [("x", FloatTensorType([None, FEATURES]))]
    yield "LightGBM, 1000 trees", onnxmltools.convert_lightgbm(
        lightgbm.LGBMRegressor(n_estimators=1000, verbose=-1).fit(x, y), initial_types=rows, target_opset=15)
    yield "LightGBM, 100 trees, 3 classes", onnxmltools.convert_lightgbm(
        lightgbm.LGBMClassifier(n_estimators=100, verbose=-1).fit(x, classes), initial_types=rows, target_opset=15, zipmap=False)
    yield "XGBoost, 500 trees of 6 levels", onnxmltools.convert_xgboost(
        xgboost.XGBRegressor(n_estimators=500, max_depth=6).fit(x, y), initial_types=rows, target_opset=15)


def microseconds(run, batches):
    """Of a run with one of the batches."""
    start = time.perf_counter()
    for batch in batches:
        run(batch)
    return (time.perf_counter() - start) / len(batches) * 1e6


def measure(path, batch, rounds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options)
    name = session.get_inputs()[0].name
    ours = anneal.build(path, shapes={name: anneal.Shapes(opt=(batch, FEATURES))}).session(threads=1)
    rows = np.random.default_rng(1).standard_normal((ROWS // batch, batch, FEATURES), dtype=np.float32)
    runs = {
        "anneal": lambda x: ours.run({name: x}),
        "onnxruntime": lambda x: session.run(None, {name: x}),
    }
    for row in rows[:3]:
        for mine, wanted in zip(ours.run({name: row}).values(), session.run(None, {name: row})):
            np.testing.assert_allclose(mine, np.asarray(wanted), rtol=1e-4, atol=1e-4)
    times = {which: [] for which in runs}
    for run in runs.values():
        microseconds(run, rows[:20])
    for _ in range(rounds):
        for which, run in runs.items():
            times[which].append(microseconds(run, rows))
    return [statistics.median(times[which]) for which in runs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    print(f"{'':40} {'rows':>5} {'anneal':>10} {'onnxruntime':>12} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for title, model in learned():
            path = Path(folder) / "model.onnx"
            path.write_bytes(model.SerializeToString())
            for batch in BATCHES:
                ours, theirs = measure(str(path), batch, flags.rounds)
                print(f"{title:40} {batch:5} {ours:10.1f} {theirs:12.1f} {theirs / ours:6.2f}", flush=True)


if __name__ == "__main__":
    main()
