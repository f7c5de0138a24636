"""compare(): what `anneal compare` does."""

import json
import subprocess
import sys

import anneal
import numpy as np
import onnx
import pytest
from models import adding, convolution

IMAGES = np.random.default_rng(0).normal(size=(4, 3, 16, 16)).astype("float32")


def changed(factor):
    """The network with other weights of its last product."""
    model = convolution()
    weights = next(each for each in model.graph.initializer if each.name == "m")
    values = onnx.numpy_helper.to_array(weights) * factor
    weights.CopyFrom(onnx.numpy_helper.from_array(values.astype("float32"), "m"))
    return model


def test_a_model_with_the_reference():
    found = anneal.compare(convolution(), inputs={"image": IMAGES})
    assert found.agrees and found.first_difference is None and len(found.tensors) > 1
    scores, = found.outputs
    assert scores.name == "scores" and scores.type == "f32[4,8]" and scores.agrees and scores.reason == ""
    assert "reference" in scores.kernel_b and scores.sqnr_db > 80 and scores.max_abs_error < 1e-3
    assert f"all {len(found.tensors)} tensors agree" in str(found) and "scores" in str(found)
    assert found.to_rows()[-1]["name"] == "scores" and found.to_dict()["only_in_b"] == found.only_in_b


def test_engines_that_differ():
    a, b = anneal.build(changed(1.01)), anneal.build(convolution())
    found = anneal.compare(a, b, {"image": IMAGES})
    assert not found.agrees and found.first_difference.name == "scores" and "differ by more than" in found.first_difference.reason
    assert found.first_difference.agrees_alone is False and "DIFFERS" in str(found)
    assert 30 < found.outputs[0].sqnr_db < 50 and 0.99 < found.outputs[0].cosine <= 1
    assert anneal.compare(a, b, {"image": IMAGES}, rtol=0.1, atol=0.1).agrees
    assert not anneal.compare(b, b, {"image": IMAGES}, rtol=0, atol=0).first_difference


def test_the_tolerance_is_of_the_coarsest_type():
    a = anneal.build(convolution(), precision="fp16", target="emulated", device="emulated", shapes=(1, 3, 16, 16))
    assert anneal.compare(a, convolution(), {"image": IMAGES[:1]}).agrees
    assert not anneal.compare(a, convolution(), {"image": IMAGES[:1]}, rtol=1e-6, atol=1e-7).agrees


def test_files_bytes_and_random_inputs(tmp_path):
    path = anneal.build(convolution(), tmp_path / "a.engine").path
    onnx.save(convolution(), tmp_path / "m.onnx")
    for a in (path, open(path, "rb").read(), tmp_path / "m.onnx"):
        assert anneal.compare(a, tmp_path / "m.onnx").agrees
    assert anneal.compare(tmp_path / "m.onnx", shapes={"image": (2, 3, 16, 16)}).outputs[0].type == "f32[2,8]"


def test_it_says_what_the_command_says(tmp_path):
    onnx.save(changed(1.01), tmp_path / "a.onnx")
    onnx.save(convolution(), tmp_path / "b.onnx")
    np.save(tmp_path / "image.npy", IMAGES)
    subprocess.run([sys.executable, "-m", "anneal", "compare", "a.onnx", "b.onnx", "--input", "image=image.npy", "--json", "c.json"],
                   check=False, capture_output=True)
    told = json.loads((tmp_path / "c.json").read_text())
    found = anneal.compare("a.onnx", "b.onnx", {"image": IMAGES})
    assert [(row["name"], row["agrees"], row["max_abs_error"]) for row in told["tensors"]] == [
        (tensor.name, tensor.agrees, tensor.max_abs_error) for tensor in found.tensors]
    assert told["first_diverging"] == found.first_difference.name


def test_what_cannot_be_compared(tmp_path):
    with pytest.raises(anneal.InvalidArgumentError, match="different inputs"):
        anneal.compare(anneal.build(convolution()), anneal.build(adding()))
    with pytest.raises(anneal.InvalidArgumentError, match='there is no input "picture"; there are image'):
        anneal.compare(convolution(), inputs={"picture": IMAGES})
    with pytest.raises(anneal.ReadError):
        anneal.compare(tmp_path / "missing.onnx")
    with pytest.raises(TypeError, match="give b"):
        anneal.compare(anneal.build(convolution(), tmp_path / "a.engine"))
    with pytest.raises(anneal.InvalidArgumentError, match="reference"):
        anneal.build(convolution(), target=["reference", "cpu"])
