"""Observers of intermediate tensors, and masks of samples."""

import re

import anneal
import numpy as np
import onnx
import pytest
from models import convolution, model_of, onnx_runtime

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype("float32")


def test_each_tensor_is_seen():
    engine = anneal.build(convolution(), skip_passes=["all"])
    session, seen = engine.session(), {}
    session.observe(lambda tensor: seen.setdefault(tensor.name, tensor))
    scores = session(IMAGES)
    assert {"c", "r", "p", "f", "scores"} <= set(seen)
    assert seen["r"].step and seen["r"].kernel.startswith("cpu.") and seen["r"].iterations == ()
    assert np.array_equal(seen["r"].value, np.maximum(seen["c"].value, 0)) and seen["r"].value.shape == (4, 8, 16, 16)
    assert np.array_equal(seen["scores"].value, scores)
    assert np.allclose(seen["p"].value, seen["r"].value.mean((2, 3), keepdims=True), atol=1e-5)
    before = len(seen)
    seen.clear()
    session.observe(None)
    session(IMAGES)
    assert before and not seen


def test_names():
    session, seen = anneal.build(convolution(), skip_passes=["all"]).session(), []
    session.observe(lambda tensor: seen.append(tensor.name), names="[cr]")
    session(IMAGES)
    assert sorted(seen) == ["c", "r"]
    seen.clear()
    session.observe(lambda tensor: seen.append(tensor.name), names=lambda name: name == "f")
    session.profile({"image": IMAGES})
    session.enqueue({"image": IMAGES}, anneal.Stream())
    session.wait()
    assert seen == ["f", "f"]


def test_observers_that_are_none():
    session = anneal.build(convolution()).session()
    for wrong in (lambda: session.observe(3), lambda: session.observe("c"), lambda: session.observe(print, names=4)):
        with pytest.raises(TypeError, match="is no function"):
            wrong()
    with pytest.raises(re.error):
        session.observe(print, names="(")
    assert session(IMAGES[:1]).shape == (1, 8)


def test_layouts_are_copied_in_the_order_of_the_model():
    """A convolution may keep its channels last: what is seen has the model's order of axes."""
    model = model_of([("Conv", ["x", "w"], ["c"], {}), ("Conv", ["c", "w"], ["d"], {}), ("Relu", ["d"], ["y"], {})],
                     {"x": ("float32", [1, 16, 20, 20]), "w": ("float32", [16, 16, 3, 3])}, {"y": ("float32", [1, 16, 16, 16])})
    random = np.random.default_rng(1)
    x, w = random.normal(size=(1, 16, 20, 20)).astype("float32"), random.normal(size=(16, 16, 3, 3)).astype("float32")
    middle = model_of([("Conv", ["x", "w"], ["c"], {})], {"x": ("float32", [1, 16, 20, 20]), "w": ("float32", [16, 16, 3, 3])},
                      {"c": ("float32", [1, 16, 18, 18])})
    session, seen = anneal.build(model).session(), {}
    session.observe(lambda tensor: seen.setdefault(tensor.name, tensor.value))
    session.run({"x": x, "w": w})
    assert np.allclose(seen["c"], onnx_runtime(middle, {"x": x, "w": w})["c"], rtol=1e-3, atol=1e-3)


def test_an_exception_ends_the_run():
    session = anneal.build(convolution()).session()

    def broken(tensor):
        raise ZeroDivisionError(tensor.name)

    session.observe(broken)
    with pytest.raises(ZeroDivisionError):
        session(IMAGES)
    session.enqueue({"image": IMAGES}, anneal.Stream())
    with pytest.raises(ZeroDivisionError):
        session.wait()
    session.observe(lambda tensor: session(IMAGES))
    with pytest.raises(anneal.InvalidArgumentError, match="must not use its session"):
        session(IMAGES)
    session.observe(None)
    assert session(IMAGES).shape == (4, 8)


def segmentation():
    """image [N,1,8,8] -> classes of each pixel as scores [N,2,8,8]: the second is larger where the image is above 0.5."""
    weights = np.array([[[[-1.0]]], [[[1.0]]]], "float32")
    return model_of([("Conv", ["image", "w", "b"], ["scores"], {})], {"image": ("float32", ["N", 1, 8, 8])},
                    {"scores": ("float32", ["N", 2, 8, 8])},
                    [onnx.numpy_helper.from_array(weights, "w"),
                     onnx.numpy_helper.from_array(np.array([0.5, -0.5], "float32"), "b")])


def test_masks_for_miou():
    images = np.random.default_rng(0).random((40, 1, 8, 8)).astype("float32")
    right = (images[:, 0] > 0.5).astype("uint8")
    half = right.copy()
    half[:, :4] = 1 - half[:, :4]

    def score(masks):
        _, frontier = anneal.tune(segmentation(), anneal.Samples(images, masks=masks), "miou", budget=100, modelled_times=True,
                                  most_groups=1)
        return next(point for point in frontier.points if point["name"] == "f32")["search"]["score"]

    assert score(right) > 99
    assert 20 < score(list(half)) < 50
    ignored = half.astype("int32")
    ignored[:, :4] = -1
    assert score(ignored) > 99
    with pytest.raises(anneal.InvalidArgumentError, match="mask"):
        score([None] * 40)
    with pytest.raises(anneal.InvalidArgumentError, match=r"a mask has 3 axes"):
        score(right[:, None])
    with pytest.raises(ValueError, match="3 masks for 40 samples"):
        score(right[:3])
    with pytest.raises(ValueError, match="leave labels and masks out"):
        anneal.calibrate(segmentation(), anneal.Samples("folder", masks=right))


def test_a_metric_gets_the_masks():
    images = np.random.default_rng(0).random((20, 1, 8, 8)).astype("float32")
    masks = (images[:, 0] > 0.5).astype("int64")
    seen = []

    def judge(answer):
        seen.append((answer.mask.dtype, answer.mask.shape))
        return float((answer.outputs["scores"][0].argmax(0) == answer.mask).mean())

    anneal.tune(segmentation(), anneal.Samples(images, masks=masks), anneal.Metric(judge, wants_masks=True), budget=1,
                modelled_times=True, most_groups=1)
    assert set(seen) == {(np.dtype("int32"), (8, 8))}
