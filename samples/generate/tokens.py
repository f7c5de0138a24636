"""Text to tokens and back, the tokens that begin and end a text, and the stream of new ones to the terminal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

from model_files import Failure


class Tokenizer:
    """Converts a prompt to tokens, and new tokens to text, by a tokenizer.json."""

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
            from tokenizers.decoders import DecodeStream
        except ImportError:
            raise Failure("the package tokenizers is missing or too old: pip install 'tokenizers>=0.21'") from None
        if not path.exists():
            raise Failure(f"there is no tokenizer file {path}: give one with --tokenizer")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package has no class of its own
            raise Failure(f"{path} is no tokenizer file: {error}") from None
        self._stream = DecodeStream(skip_special_tokens=True)

    def encode(self, text: str, special_tokens: bool = True) -> list[int]:
        tokens = self._tokenizer.encode(text, add_special_tokens=special_tokens).ids
        if not tokens:
            raise Failure("the prompt has no tokens")
        return list(tokens)

    def more_text(self, token: int) -> str:
        """The text that the token adds; empty while a character is not complete."""
        return self._stream.step(self._tokenizer, token) or ""

    def end_text(self) -> None:
        """The next token begins another text."""
        self._stream = type(self._stream)(skip_special_tokens=True)

    def token_of(self, text: str) -> int | None:
        return self._tokenizer.token_to_id(text)


class Stream:
    """Prints the text of tokens as they come, and keeps their times."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._first: str | None = None
        self._tokens = self._followers = 0
        self._seconds = 0.0

    def print(self, tokens: Iterable[int], after: str, text_of: Callable[[int], str] | None = None, at_once: bool = False) -> str:
        """Prints one text, and returns it. `after` says what the model reads before it. text_of: what to print for a token,
        by default its text. at_once: all tokens come at the end."""
        times, parts, text_of = [time.perf_counter()], [], text_of or self._tokenizer.more_text
        for token in tokens:
            times.append(time.perf_counter())
            parts.append(text_of(token))
            print(parts[-1], end="", flush=True)
        self._tokenizer.end_text()
        self._tokens += len(times) - 1
        if at_once:
            self._followers += len(times) - 1
            self._seconds += times[-1] - times[0]
        elif len(times) > 1:
            self._first = self._first or f"first token {1e3 * (times[1] - times[0]):.1f} ms after {after}"
            self._followers += len(times) - 2
            self._seconds += times[-1] - times[1]
        return "".join(parts)

    def report(self) -> Iterator[str]:
        if self._first:
            yield self._first
        if self._followers:
            yield f"{self._followers / self._seconds:.1f} tokens per second, {self._tokens} tokens"


def end_tokens(settings: dict[str, Any], tokenizer: Tokenizer, more: str | None = None) -> set[int]:
    ids = settings.get("eos_token_id")
    if ids is None:
        ids = [tokenizer.token_of(text) for text in ("</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<eos>")]
    ids = [*(ids if isinstance(ids, list) else [ids]), tokenizer.token_of(more) if more else None]
    return {token for token in ids if token is not None}


def first_tokens(settings: dict[str, Any], file: Path) -> list[int]:
    """The tokens that a decoder with an encoder begins with."""
    start = settings.get("decoder_start_token_id")
    if start is None:
        raise Failure(f'"decoder_start_token_id" is missing: copy config.json and generation_config.json of the model to {file.parent}')
    forced = settings.get("forced_bos_token_id")
    return [start] if forced is None else [start, forced]


def excluded_tokens(settings: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Tokens that a model does not write at any place, and those that it does not write first."""
    words = settings.get("bad_words_ids") or []
    never = [*(settings.get("suppress_tokens") or []), *(word[0] for word in words if len(word) == 1)]
    return never, settings.get("begin_suppress_tokens") or []
