"""An encoder and its decoder: the encoder reads a text or speech once, and the decoder writes one token after the other."""

from __future__ import annotations

from typing import Any, Sequence

import anneal
import numpy

from decoder import State, UnknownModel, as_floats, input_of, part_of, role_of


class EncoderDecoder:
    """Feeds tokens to the decoder of a text-to-text or speech model and keeps its caches: of one text, or of several that begin alike.

    `decoders` are one that also takes caches (optimum's decoder_model_merged, onnxruntime-genai's decoder), or one that reads
    the first tokens and one that continues with caches (decoder_model, decoder_with_past_model). A decoder without
    cache inputs reads all tokens again for each new one. The caches of cross-attention come from the encoder or from the first
    run of the decoder and are constant after it.
    """

    def __init__(self, encoder: anneal.Engine, decoders: Sequence[anneal.Engine], *, threads: int = 0) -> None:
        self._encoder = encoder.session(threads=threads)
        self._sessions = [engine.session(threads=threads) for engine in decoders]
        self._engines = list(decoders)
        sources = [info for info in encoder.inputs if "mask" not in info.name]
        if len(sources) != 1:
            names = ", ".join(info.name for info in encoder.inputs)
            raise UnknownModel(f"the encoder must have one input of token ids or features beside a mask, and has {names}")
        self._source = sources[0]
        self._masks = [info for info in encoder.inputs if "mask" in info.name]
        # The encoder's first output, by the names of optimum and of onnxruntime-genai.
        self._hidden = next(info.name for info in encoder.outputs if not is_cache(info.name))
        for engine in decoders:
            if not any(info.name == "logits" for info in engine.outputs):
                raise UnknownModel(f"the decoder has no output logits, but {', '.join(info.name for info in engine.outputs)}")
        self._roles = [{info.name: role_of(info) for info in engine.inputs if not is_cache(info.name)} for engine in decoders]
        self._has_caches = any(is_cache(info.name) for info in decoders[-1].inputs)
        self._keep: dict[tuple[Any, ...], numpy.ndarray] = {}
        self.reset()

    @property
    def has_open_batch(self) -> bool:
        """Whether feed_texts() takes more than one text."""
        return all(not isinstance(info.shape[0], int) for engine in self._engines for info in engine.inputs if len(info.shape) > 1)

    @property
    def reads_speech(self) -> bool:
        return "float" in str(self._source.dtype)

    def encode(self, source: list[int] | numpy.ndarray) -> None:
        """Reads the tokens of a text, or features f32[mels, frames]."""
        values = numpy.asarray(source)[None]
        inputs = {self._source.name: values.astype(self._source.dtype),
                  **{info.name: numpy.ones(values.shape, info.dtype) for info in self._masks}}
        outputs = self._encoder.run(inputs)
        self._encoded = self._encoded_texts = outputs.pop(self._hidden)
        self._source_rows = self._encoded.shape[1]
        self._keep = {part_of(name): array for name, array in outputs.items() if is_cache(name)}
        self.reset()

    def reset(self) -> None:
        """Forgets the tokens of the decoder, and keeps what the encoder read."""
        self._texts: list[list[int]] = [[]]
        self._caches = dict(self._keep)

    @property
    def state_bytes(self) -> int:
        return sum(array.nbytes for array in self._caches.values())

    @property
    def memory_bytes(self) -> int:
        """Bytes of activations and workspaces."""
        return sum(session.memory_bytes for session in [self._encoder, *self._sessions])

    def feed(self, tokens: list[int]) -> numpy.ndarray:
        """Appends the tokens and returns the logits of the token that follows, f32[vocabulary]."""
        return self.feed_texts([tokens], [0])[0]

    def feed_texts(self, tokens: list[list[int]], origins: list[int]) -> numpy.ndarray:
        """Text i is from now on text origins[i] of the call before with tokens[i] behind it, as many for each. Returns the logits of
        the tokens that follow, f32[texts, vocabulary]. More than one text needs a decoder with an open batch."""
        before = len(self._texts[0]) if self._has_caches else 0
        if origins != list(range(len(self._texts))):
            is_other_count = len(origins) != len(self._texts)  # rows of cross-attention are the same for all texts
            self._caches = {part: array[origins] if is_other_count or "cross" not in part else array
                            for part, array in self._caches.items()}
        self._texts = [self._texts[origin] + more for origin, more in zip(origins, tokens)]
        number = len(self._engines) - 1 if before else 0
        inputs = {info.name: self._input(info, self._roles[number].get(info.name), before) for info in self._engines[number].inputs}
        outputs = self._sessions[number].run(inputs)
        logits = outputs.pop("logits")
        for name, array in outputs.items():
            part = part_of(name)
            # A merged decoder gives empty tensors for the constant caches after the first run.
            if self._has_caches and is_cache(name) and (not before or "cross" not in part):
                self._caches[part] = array
        return as_floats(logits.reshape(len(self._texts), -1, logits.shape[-1])[:, -1])

    def _input(self, info: Any, role: str | None, before: int) -> numpy.ndarray:
        count = len(self._texts)
        if role == "encoder's output":
            if len(self._encoded_texts) != count:
                self._encoded_texts = numpy.repeat(self._encoded, count, axis=0)
            return self._encoded_texts
        if role == "encoder's mask":
            return numpy.ones((count, self._source_rows), info.dtype)
        if role is not None:
            arrays = [input_of(info, role, text[before:], before) for text in self._texts]
            return numpy.concatenate(arrays) if len(info.shape) == 2 else arrays[0]
        part = part_of(info.name)
        if part not in self._caches:
            return numpy.repeat(State(info, info, row_axis=2).zeros(self._source_rows if "cross" in part else 0), count, axis=0)
        return self._caches[part]


def is_cache(name: str) -> bool:
    return name.startswith(("past", "present"))
