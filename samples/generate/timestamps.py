"""Timestamps of Whisper: the rules by which a transcript has them, and the segments between them.

A timestamp is a token, a multiple of 0.02 seconds from the start of the chunk. Each segment of a transcript begins and ends with
one. The rules are those of "Robust Speech Recognition via Large-Scale Weak Supervision", Radford et al. 2022, as transformers'
WhisperTimeStampLogitsProcessor has them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from model_files import Failure
from tokens import Tokenizer

SECONDS = 0.02  # of a step of the timestamps
LEAST_STEP = 0.2  # seconds from a chunk to the next one


class Timestamps:
    """Excludes tokens that may not follow those of a transcript."""

    def __init__(self, settings: dict[str, Any], ends: set[int]) -> None:
        """settings: of generation_config.json. ends: the tokens that end a transcript; all tokens of words are smaller."""
        none = settings.get("no_timestamps_token_id")
        if none is None or not ends:
            raise Failure('the model has no timestamps: "no_timestamps_token_id" or "eos_token_id" is missing in its generation_config.json')
        last_start = settings.get("max_initial_timestamp_index")
        if not isinstance(none, int) or none <= min(ends) or not (last_start is None or (isinstance(last_start, int) and last_start >= 0)):
            raise Failure(f"generation_config.json has no_timestamps_token_id {none}, max_initial_timestamp_index {last_start} and "
                          f"eos_token_id {min(ends)}: the first must be the largest, and the second no less than 0")
        self._none, self._end, self._last_start = none, min(ends), last_start

    def is_one(self, token: int) -> bool:
        return token > self._none

    def seconds(self, token: int) -> float:
        return (token - self._none - 1) * SECONDS

    def exclude(self, logits: numpy.ndarray, tokens: list[int]) -> None:
        """Sets the logits of tokens that may not follow `tokens`, which follow the prompt, to -infinity."""
        if len(logits) <= self._none + 1:
            raise Failure(f"the model has {len(logits)} tokens, and generation_config.json has timestamps from {self._none + 1} on")
        times = logits[self._none + 1:]
        logits[self._none] = -math.inf
        if not tokens:
            logits[:self._none] = -math.inf
            if self._last_start is not None:
                times[self._last_start + 1:] = -math.inf
            return
        closes = self.is_one(tokens[-1]) and len(tokens) > 1 and not self.is_one(tokens[-2])  # the next segment begins, or the end follows
        if closes:
            logits[:self._end] = -math.inf
        elif self.is_one(tokens[-1]):
            times[:] = -math.inf
        last = next((token for token in reversed(tokens) if self.is_one(token)), None)
        if last is not None:
            times[:last - self._none - (1 if closes else 0)] = -math.inf
        # A timestamp follows where timestamps together are more probable than any other token.
        most = float(times.max(initial=-math.inf))
        if most > -math.inf and most + math.log(float(numpy.exp(times.astype(numpy.float64) - most).sum())) > logits[:self._none].max():
            logits[:self._none] = -math.inf


def clock(seconds: float) -> str:
    hundredths = round(100 * seconds)
    return f"{hundredths // 360000:02}:{hundredths // 6000 % 60:02}:{hundredths // 100 % 60:02}.{hundredths % 100:02}"


class Segments:
    """The lines of a chunk's transcript: "[start --> end] text"."""

    def __init__(self, timestamps: Timestamps, tokenizer: Tokenizer, offset: float, duration: float) -> None:
        """offset and duration, in seconds: of the chunk."""
        self._timestamps, self._tokenizer = timestamps, tokenizer
        self._offset, self._duration = offset, duration
        self._start, self._text = 0.0, ""
        self._before: int | None = None
        self._has_closed = False  # the last token closed a segment
        self._closed = 0.0  # where the last segment ended
        self._next = 0.0  # where a segment ended that another one follows; 0: none does

    def text_of(self, token: int) -> str:
        """The line that ends with the token, or nothing."""
        is_one, follows_word = self._timestamps.is_one(token), self._before is not None and not self._timestamps.is_one(self._before)
        line, self._has_closed = "", is_one and follows_word
        if not is_one:
            self._text += self._tokenizer.more_text(token)
        elif follows_word:
            self._closed = self._timestamps.seconds(token)
            line = self._line(self._closed)
        else:
            self._start = self._timestamps.seconds(token)
            self._next = 0.0 if self._before is None else self._timestamps.seconds(self._before)
        self._before = token
        return line

    def _line(self, end: float) -> str:
        text, self._text = self._text.strip(), ""
        self._tokenizer.end_text()
        if self._start >= self._duration:  # behind the speech, in the silence that fills the chunk
            return ""
        times = [clock(self._offset + min(seconds, self._duration)) for seconds in (self._start, end)]
        return f"[{times[0]} --> {times[1]}] {text}\n"

    def end(self, is_complete: bool) -> tuple[str, float]:
        """The line of words without a timestamp behind them, and the seconds of the chunk that the lines cover. Words that follow
        another segment are not printed: the next chunk begins with them. is_complete: the model ended the transcript."""
        covered = self._next if is_complete else self._closed
        if covered and not (is_complete and self._has_closed):
            self._tokenizer.end_text()
            return "", min(covered, self._duration)
        return (self._line(self._duration) if self._text else ""), self._duration
