"""States that a session keeps from run to run."""

import anneal
import numpy as np
import pytest
from models import model_of


def summing():
    """next = h + x, y = -next"""
    return model_of([("Add", ["h", "x"], ["next"], {}), ("Neg", ["next"], ["y"], {})],
                    {"h": ("float32", ["n", 2]), "x": ("float32", ["n", 2])},
                    {"next": ("float32", ["n", 2]), "y": ("float32", ["n", 2])})


def test_a_session_keeps_states():
    engine = anneal.build(summing(), states={"h": "next"})
    assert [info.state_output for info in engine.inputs] == ["next", None]
    session, x = engine.session(), np.array([[1, 2]], "float32")
    outputs = session.run({"x": x})
    assert list(outputs) == ["y"] and outputs["y"].tolist() == [[-1, -2]]
    assert session.run(None, {"x": x})[0].tolist() == [[-2, -4]]
    assert session(x).tolist() == [[-3, -6]]
    assert session.states()["h"].tolist() == [[3, 6]]
    session.reset_states()
    two = np.array([[1, 2], [3, 4]], "float32")
    assert session(two).tolist() == [[-1, -2], [-3, -4]]
    assert session(two, h=two).tolist() == [[-2, -4], [-6, -8]]


def test_states_pass_to_another_session():
    engine, x = anneal.build(summing(), states={"h": "next"}), np.array([[1, 2]], "float32")
    first, second = engine.session(), engine.session()
    first.run({"x": x})
    second.run({"x": x, **first.states()})
    assert second.run({"x": x})["y"].tolist() == [[-3, -6]]
    assert first.run({"x": x})["y"].tolist() == [[-2, -4]]


def test_wrong_states():
    with pytest.raises(anneal.InvalidArgumentError, match="the model has no such output"):
        anneal.build(summing(), states={"h": "none"})
    session, x = anneal.build(summing(), states={"h": "next"}).session(), np.array([[1, 2]], "float32")
    with pytest.raises(anneal.InvalidArgumentError, match='output "next" is a state that the session keeps'):
        session.run(["next"], {"x": x})
    with pytest.raises(anneal.InvalidArgumentError, match="is a state that the context keeps"):
        session.run({"x": x}, out={"next": np.zeros((1, 2), "float32")})
    with pytest.raises(anneal.InvalidArgumentError, match="call run"):
        session.states()
    with pytest.raises(anneal.InvalidArgumentError, match='input "x" is no state'):
        session.reset_states({"x": (1, 2)})
    with pytest.raises(anneal.InvalidArgumentError, match='there is no input "z"'):
        session.reset_states({"z": (1, 2)})


def test_reset_begins_with_default_values_and_shapes():
    import onnx
    model = model_of([("Add", ["h", "x"], ["next"], {})], {"x": ("float32", [2]), "h": ("float32", [2])}, {"next": ("float32", [2])},
                     [onnx.numpy_helper.from_array(np.array([32, 64], "float32"), "h")])
    session, x = anneal.build(model, default_inputs="h", states={"h": "next"}).session(), np.ones(2, "float32")
    for _ in range(2):
        session.run({"x": x})
        assert session.states()["h"].tolist() == [33, 65]
        session.reset_states()
    number = model_of([("Add", ["h", "x"], ["next"], {})], {"h": ("int64", []), "x": ("int64", [])}, {"next": ("int64", [])})
    session, three = anneal.build(number, states={"h": "next"}).session(), np.array(3)
    for _ in range(2):
        session.run({"x": three})
        assert session.states()["h"] == 3
        session.reset_states()
    rows = anneal.build(summing(), states={"h": "next"}).session()
    rows.reset_states({"h": (3, 2)})
    assert rows(np.ones((3, 2), "float32")).shape == (3, 2)


def test_a_model_whose_inputs_are_all_states():
    model = model_of([("Concat", ["h", "h"], ["next"], {"axis": 0}), ("Neg", ["next"], ["y"], {})], {"h": ("float32", ["n"])},
                     {"next": ("float32", ["m"]), "y": ("float32", ["m"])})
    session = anneal.build(model, states={"h": "next"}).session()
    session.reset_states({"h": (1,)})
    assert [session.run({})["y"].size for _ in range(3)] == [2, 4, 8]


def test_refit_keeps_states(tmp_path):
    (tmp_path / "m.onnx").write_bytes(summing().SerializeToString())
    anneal.build(tmp_path / "m.onnx", tmp_path / "m.engine", states={"h": "next"})
    engine = anneal.refit(tmp_path / "m.engine", tmp_path / "m.onnx")
    assert engine.inputs[0].state_output == "next"
