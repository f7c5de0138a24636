"""Beam search: of several texts that an encoder's decoder writes side by side, the most probable one."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy

from encoder_decoder import EncoderDecoder


class Text(NamedTuple):
    score: float
    tokens: list[int]


class BeamSearch:
    """Finds what transformers' generate(num_beams=beams) finds. At each step the `beams` most probable texts go on. A text that
    ends has the score log(probability) / length ** length_penalty, where the end counts as a token. The search is over
    if there are `beams` ended texts and, unless early_stopping, no text that goes on has a higher score at its present length."""

    def __init__(self, beams: int, length_penalty: float = 1.0, early_stopping: bool = False) -> None:
        self._beams, self._length_penalty, self._early_stopping = beams, length_penalty, early_stopping

    def __call__(self, model: EncoderDecoder, start: list[int], limit: int, ends: set[int],
                 excluded: tuple[list[int], list[int]] = ([], []), forced: int = 0) -> list[int]:
        """The tokens behind `start`, at most `limit` and without the end. The last `forced` tokens of `start` count as tokens of
        the text. `excluded` has tokens that are not taken at any place, and more of them that are not taken first."""
        texts, ended = [Text(0.0, [])], list[Text]()
        logits = model.feed(start)[None]
        for length in range(1, limit + 1):
            never = excluded[0] + (excluded[1] if length == 1 else [])
            candidates = self._candidates(texts, logits, never, max(2, 1 + len(ends)) * self._beams)
            divisor = (length + forced) ** self._length_penalty
            # Only the first `beams` may end; the others go on in their place.
            ended += [Text(score / divisor, [*texts[origin].tokens, token][:length - (token in ends)])
                      for score, origin, token in candidates[:self._beams] if token in ends or length == limit]
            ended = sorted(ended, key=lambda text: -text.score)[:self._beams]
            following = [candidate for candidate in candidates if candidate[2] not in ends][:self._beams]
            is_full = len(ended) == self._beams
            if not following or length == limit or (is_full and (self._early_stopping or following[0][0] / divisor <= ended[-1].score)):
                break
            texts = [Text(score, [*texts[origin].tokens, token]) for score, origin, token in following]
            logits = model.feed_texts([text.tokens[-1:] for text in texts], [origin for _, origin, _ in following])
        return ended[0].tokens if ended else []

    @staticmethod
    def _candidates(texts: list[Text], logits: Any, never: list[int], count: int) -> list[tuple[float, int, int]]:
        """Score, number of the text, and token of the `count` best continuations, the best one first."""
        scores = logits.astype(numpy.float64)
        scores -= scores.max(axis=1, keepdims=True)
        scores -= numpy.log(numpy.exp(scores).sum(axis=1, keepdims=True))
        scores[:, never] = -math.inf
        scores += numpy.array([[text.score] for text in texts])
        flat = scores.ravel()
        best = numpy.argpartition(-flat, count)[:count] if count < flat.size else numpy.arange(flat.size)
        best = best[numpy.lexsort((best, -flat[best]))]
        return [(float(flat[place]), *map(int, divmod(place, scores.shape[1]))) for place in best if flat[place] > -math.inf]
