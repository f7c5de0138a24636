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
    with pytest.raises(anneal.InvalidArgumentError, match='there is no output "next"'):
        session.run(["next"], {"x": x})
    with pytest.raises(anneal.InvalidArgumentError, match="is a state that the context keeps"):
        session.run({"x": x}, out={"next": np.zeros((1, 2), "float32")})
    with pytest.raises(anneal.InvalidArgumentError, match="call run"):
        session.states()
