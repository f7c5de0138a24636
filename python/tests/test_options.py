"""Options of build(), calibrate(), tune() and load(): names, precision="best", logs."""

import logging
import pickle
import subprocess
import sys
import warnings

import anneal
import numpy as np
import pytest
from models import adding, convolution, onnx_runtime

IMAGES = np.random.default_rng(0).normal(size=(12, 3, 16, 16)).astype("float32")


def test_an_unknown_option_names_the_closest():
    for call, said in ((lambda: anneal.build(convolution(), precison="bf16"), 'build.. has no option "precison": did you mean "precision"'),
                       (lambda: anneal.build(convolution(), progres=print), 'did you mean "progress"'),
                       (lambda: anneal.calibrate(convolution(), IMAGES, range_methods="mse"), 'calibrate.. has no option "range_methods": did you mean "range_method"'),
                       (lambda: anneal.tune(convolution(), IMAGES, "cosine", buget=1), 'did you mean "budget"'),
                       (lambda: anneal.compare(convolution(), shape=(1, 3, 16, 16)), 'compare.. has no option "shape": did you mean "shapes"'),
                       (lambda: anneal.build(convolution(), zzz=1), "there are allow_fallback")):
        with pytest.raises(TypeError, match=said):
            call()


WRONG = """import anneal
anneal.build("m", precison="bf16")
anneal.build("m", precision=3)
anneal.calibrate("m", [], max_layer_eror=1.0)
anneal.tune("m", [], "top1", threads="two")
anneal.load("m", log=3)
right: anneal.BuildOptions = {"precision": "best", "shapes": {"x": (1, 2)}, "threads": 2}
anneal.build("m", **right)
"""


def test_mypy_finds_a_misspelt_option(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}/cache", "wrong.py"],
                          capture_output=True, text=True, cwd=tmp_path)
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == [2, 3, 4, 5, 6], done.stdout


def test_best():
    """The precisions that the target computes faster: on a GPU f16, and int8 with samples; without BF16 and VNNI none."""
    def plan(precision, **options):
        return anneal.build(convolution(), precision=precision, **options).to_bytes()

    assert plan("best", target="sm_90") == plan("fp16", target="sm_90") != plan(None, target="sm_90")
    assert plan("best", target="sm_90", calibrate=IMAGES) == plan(["fp16", "int8"], target="sm_90", calibrate=IMAGES)
    assert plan(["best", "bf16"], target="sm_90") == plan("bf16", target="sm_90")
    with pytest.warns(UserWarning, match="the best precision is f32 for cpu:baseline"):
        assert plan("best", target="cpu:baseline") == plan(None, target="cpu:baseline")
    with warnings.catch_warnings():  # whatever this machine is
        warnings.simplefilter("ignore")
        engine = anneal.build(convolution(), precision="best")
        expected = onnx_runtime(convolution(), {"image": IMAGES})["scores"]
        assert np.abs(engine.session()(IMAGES) - expected).max() < 0.1 * np.abs(expected).max()


def test_best_is_what_tune_chooses_from_anyway():
    images = np.concatenate([IMAGES] * 4)
    _, best = anneal.tune(convolution(), images, "cosine", precision="best", budget=10, modelled_times=True, most_groups=2)
    _, usual = anneal.tune(convolution(), images, "cosine", budget=10, modelled_times=True, most_groups=2)
    assert [point["name"] for point in best.points] == [point["name"] for point in usual.points]


def test_log(tmp_path, caplog):
    seen = []
    engine = anneal.build(convolution(), tmp_path / "a.engine", precision="bf16", log=lambda *parts: seen.append(parts))
    assert all(level in (logging.INFO, logging.WARNING) and isinstance(text, str) for level, text in seen)
    assert any("fuse_epilogue" in text for _, text in seen)
    before = len(seen)
    engine.session()
    assert len(seen) > before  # it was loaded
    with caplog.at_level(logging.INFO, logger="my.log"):
        anneal.load(engine.path, log=logging.getLogger("my.log"))
        anneal.calibrate(convolution(), IMAGES, log=logging.getLogger("my.log"))
    assert any(record.name == "my.log" and record.levelno == logging.INFO for record in caplog.records)
    again = pickle.loads(pickle.dumps(engine))  # without the log, which has no file
    assert again.session()(IMAGES).shape == (12, 8)
    with pytest.raises(TypeError, match="log is a logging.Logger or a function"):
        anneal.load(engine.path, log=3)


def test_a_log_that_fails(tmp_path, monkeypatch):
    """Its exceptions go to sys.unraisablehook, and the call goes on."""
    said = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: said.append(args.exc_type))
    path = anneal.build(adding(), tmp_path / "a.engine").path

    def broken(level, text):
        raise ZeroDivisionError(text)

    assert len(anneal.load(path, log=broken).inputs) == 2
    assert said and set(said) == {ZeroDivisionError}


def test_a_log_must_not_use_the_engine_that_is_loaded(tmp_path, monkeypatch):
    said, engines = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: said.append(str(args.exc_value)))
    engines.append(anneal.build(adding(), tmp_path / "a.engine", log=lambda level, text: engines and engines[0].inputs))
    assert engines[0].session()(*[np.ones((1, 4), "float32")] * 2)[0][0, 0] == 2
    assert any("is being loaded" in text for text in said)
