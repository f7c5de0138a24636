"""Refitting, and engines whose weights are in a file of their own."""

import pickle

import anneal
import numpy as np
import onnx
import pytest
from models import convolution, onnx_runtime

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype("float32")


def expected(seed):
    return onnx_runtime(convolution(seed), {"image": IMAGES})["scores"]


def agrees(engine, seed):
    return np.allclose(engine.session()(IMAGES), expected(seed), atol=1e-5)


def test_in_memory():
    old = anneal.build(convolution(0))
    new = anneal.refit(old, convolution(1))
    assert new.to_bytes() == anneal.build(convolution(1)).to_bytes() == anneal.refit(old.to_bytes(), convolution(1)).to_bytes()
    assert agrees(new, 1)
    assert new.report.changed_weights == 2 and new.report.weights >= 2


def test_files(tmp_path):
    anneal.build(convolution(0), tmp_path / "net.engine")
    onnx.save(convolution(1), tmp_path / "new.onnx")
    told = []
    new = anneal.refit(tmp_path / "net.engine", tmp_path / "new.onnx", tmp_path / "net.engine",
                       progress=lambda at: told.append(at.what))
    assert new.path == str(tmp_path / "net.engine") and told
    assert agrees(anneal.load(tmp_path / "net.engine"), 1)
    assert agrees(anneal.refit(tmp_path / "net.engine", convolution(2)), 2)  # in memory
    assert agrees(anneal.load(tmp_path / "net.engine"), 1)


def test_models_that_do_not_fit(tmp_path):
    old = anneal.build(convolution(0))
    with pytest.raises(anneal.InvalidModelError, match="does not fit"):
        anneal.refit(old, convolution(1, channels=9))
    with pytest.raises(anneal.IncompatiblePlanError):
        anneal.refit(b"no engine", convolution(1))
    with pytest.raises(ValueError, match="in memory"):
        anneal.refit(old, convolution(1), tmp_path / "a.engine")


def test_weights_apart(tmp_path):
    old = anneal.build(convolution(0), tmp_path / "net.engine", weights=tmp_path / "old.weights")
    assert agrees(old, 0)
    new = anneal.refit(old, convolution(1), weights=tmp_path / "new.weights")
    assert new.path == str(tmp_path / "net.engine") and agrees(new, 1)
    for name, seed in ("old", 0), ("new", 1):
        weights = tmp_path / f"{name}.weights"
        assert agrees(anneal.load(tmp_path / "net.engine", weights=weights), seed)
        assert agrees(anneal.load((tmp_path / "net.engine").read_bytes(), weights=str(weights)), seed)
    assert agrees(pickle.loads(pickle.dumps(new)), 1)
    in_memory = anneal.refit(old.to_bytes(), convolution(2), weights=tmp_path / "third.weights")
    assert in_memory.to_bytes() == old.to_bytes() and agrees(in_memory, 2)
    with pytest.raises(anneal.InvalidArgumentError, match="file of their own"):
        anneal.load(tmp_path / "net.engine")
    with pytest.raises(ValueError, match="file of their own"):
        anneal.refit(old, convolution(1))
    with pytest.raises(ValueError, match="give the engine a path"):
        anneal.build(convolution(0), weights=tmp_path / "w")
