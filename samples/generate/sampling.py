"""The next token of logits: the best one, or a random one of the best."""

from __future__ import annotations

from collections.abc import Iterable

import numpy


class Sampler:
    """temperature 0: the token of the largest logit. Else a draw by softmax(logits / temperature), of the `top_k` best
    tokens (0: all), and of the fewest best ones whose probabilities sum to `top_p`. Before that, the logits of tokens
    that are there already are divided by `repetition_penalty`, or multiplied if they are negative (Keskar et al., 2019)."""

    def __init__(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None,
                 repetition_penalty: float = 1.0) -> None:
        if not temperature >= 0 or top_k < 0 or not 0 < top_p <= 1 or (seed is not None and seed < 0):
            raise ValueError("temperature, top_k and seed must be at least 0, and top_p above 0 and at most 1")
        if not 0 < repetition_penalty < float("inf"):
            raise ValueError("repetition_penalty must be above 0")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.repetition_penalty = repetition_penalty
        self._random = numpy.random.default_rng(seed)

    def __call__(self, logits: numpy.ndarray, before: Iterable[int] = ()) -> int:
        """before: the tokens that are there already."""
        if self.repetition_penalty != 1:
            repeated = sorted(set(before))
            logits, old = logits.copy(), logits[repeated]
            logits[repeated] = numpy.where(old > 0, old / self.repetition_penalty, old * self.repetition_penalty)
        if self.temperature == 0:
            return int(logits.argmax())
        best = numpy.argsort(-logits, kind="stable")[:self.top_k or None]
        scaled = logits[best].astype(numpy.float64) / self.temperature
        probabilities = numpy.exp(scaled - scaled[0])
        probabilities /= probabilities.sum()
        kept = int(numpy.searchsorted(numpy.cumsum(probabilities), self.top_p)) + 1
        probabilities = probabilities[:kept] / probabilities[:kept].sum()
        return int(best[self._random.choice(len(probabilities), p=probabilities)])
