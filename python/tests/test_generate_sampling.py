"""The next token of samples/generate."""

import sys
from pathlib import Path

import numpy
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "samples/generate"))
from generate import generate  # noqa: E402
from sampling import Sampler  # noqa: E402


def test_sampling():
    logits = numpy.array([0.0, 2.0, 1.0, -1.0], "float32")
    assert Sampler()(logits) == 1
    draws = [Sampler(1.0, seed=seed)(logits) for seed in range(400)]
    share = numpy.bincount(draws, minlength=4) / 400
    assert abs(share - numpy.exp(logits) / numpy.exp(logits).sum()).max() < 0.08
    assert {Sampler(5.0, top_k=2, seed=seed)(logits) for seed in range(50)} == {1, 2}
    assert {Sampler(1.0, top_p=0.6, seed=seed)(logits) for seed in range(50)} == {1}
    assert {Sampler(1.0, top_p=0.7, seed=seed)(logits) for seed in range(50)} == {1, 2}
    same = [Sampler(1.0, seed=7) for _ in range(2)]
    assert [same[0](logits) for _ in range(9)] == [same[1](logits) for _ in range(9)]
    with pytest.raises(ValueError, match="top_p"):
        Sampler(1.0, top_p=0)


def test_repetition_penalty():
    logits = numpy.array([0.0, 2.0, 1.5, -1.0, -1.5], "float32")
    penalized = Sampler(repetition_penalty=2.0)
    assert penalized(logits) == 1
    assert penalized(logits, [1, 1]) == 2
    assert logits[1] == 2.0
    assert penalized(logits, {0, 1, 2}) == 1
    # Negative logits are multiplied: -1 becomes -2, which is below -1.5.
    assert penalized(numpy.array([-1.0, -1.5], "float32"), [0]) == 1
    assert Sampler(repetition_penalty=1.0)(logits, [1]) == 1
    with pytest.raises(ValueError, match="repetition_penalty"):
        Sampler(repetition_penalty=0)


def test_the_penalty_counts_the_prompt_and_the_text():
    class Model:
        def feed(self, tokens):
            return numpy.array([3.0, 2.5, 2.0, 1.0], "float32")

    def tokens(penalty):
        return list(generate(Model(), Sampler(repetition_penalty=penalty), [0], 4, ends=set()))

    assert tokens(1.0) == [0, 0, 0, 0]
    assert tokens(2.0) == [1, 2, 0, 0]
