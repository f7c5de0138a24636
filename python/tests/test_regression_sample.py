"""samples/regression/train.py writes a model that Anneal builds. tests/samples/regression_test.py tests the rest of the sample."""

import re
import subprocess
import sys

import anneal
import numpy
import pytest
from conftest import ROOT

SAMPLE = ROOT / "samples/regression"


def check(path):
    session = anneal.build(path).session()
    assert session.run({"xy": numpy.zeros((7, 2), "float32")})["z"].shape == (7, 1)


def test_the_committed_model():
    check(SAMPLE / "peaks.onnx")
    assert (SAMPLE / "peaks.onnx").stat().st_size < 100_000


def test_training(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    page = (SAMPLE / "README.md").read_text(encoding="utf-8")
    command = re.search(r"^venv/bin/python (samples/regression/train.py .*)$", page, re.M)[1]
    done = subprocess.run([sys.executable, *command.split(), "--epochs", "2"], cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "epoch 2 of 2: mean squared error" in done.stdout
    check(tmp_path / "peaks.onnx")
