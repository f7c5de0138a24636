"""A decoder over one session: it finds the inputs, caches and logits of a model, and keeps the caches between runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import anneal
import numpy

KEYS_OR_VALUES = {"key": "key", "keys": "key", "k": "key", "value": "value", "values": "value", "v": "value"}
ROWS_AT_A_TIME = 256


class UnknownModel(Exception):
    """The model has inputs or outputs that Decoder does not support."""


@dataclass
class State:
    """An input that is an output of the run before: a cache, [batch, heads, rows, ...], or a state of fixed shape.

    Kinds: "fixed"; "growing", whose output has the new rows, too; "buffer", whose output has the rows of the input if these
    are enough; "window", a buffer of the last rows. The session keeps a state that the engine marks as one.
    """

    past: Any  # anneal.TensorInfo
    present: Any
    kind: str = "fixed"
    row_axis: int | None = None

    @property
    def is_kept(self) -> bool:
        return self.past.state_output is not None

    def zeros(self, rows: int) -> numpy.ndarray:
        shape = [size if isinstance(size, int) else 1 for size in self.past.shape]
        if self.row_axis is not None:
            shape[self.row_axis] = rows
        return numpy.zeros(shape, self.past.dtype)

    def longer(self, cache: numpy.ndarray, rows: int) -> numpy.ndarray:
        grown = self.zeros(rows)
        grown[tuple(slice(size) for size in cache.shape)] = cache
        return grown


class Decoder:
    """Feeds tokens to a model and keeps its caches, unless the engine has them as states, which its session keeps. Batch 1.

    The caches of a model with GroupQueryAttention are buffers: a run writes the new rows into them and copies nothing.
    They have room for `rows` tokens, and grow by as many at a time, so that memory follows the length. A cache of
    a sliding window has `window` rows. Caches that grow by Concat are outputs that the next run reads. Where a plan cannot
    update its input, as on a GPU, two buffers take turns. A model without caches reads all tokens again for each new one.
    """

    def __init__(self, engine: anneal.Engine, *, threads: int = 0, rows: int = ROWS_AT_A_TIME, window: int = 0) -> None:
        self._session = engine.session(threads=threads)
        self._rows_at_a_time, self._window = rows, window
        if not any("int" in str(info.dtype) and len(info.shape) == 2 for info in engine.inputs):
            raise UnknownModel("the model has no input of token ids: integers of shape [batch, tokens]")
        self._states = states_of(engine)
        self._own = [state for state in self._states if not state.is_kept]
        if not window and any(state.kind == "window" for state in self._states):
            raise UnknownModel("the caches have a sliding window of unknown size: genai_config.json beside the model, or Decoder(window=...), gives it")
        past = {state.past.name for state in self._states}
        self._ports = {role_of(info): info for info in engine.inputs if info.name not in past}
        if "ids" not in self._ports:
            raise UnknownModel("the model has no input of token ids")
        present = {state.present.name for state in self._states}
        self._logits = next((info.name for info in engine.outputs if info.name == "logits"),
                            next(info.name for info in engine.outputs if info.name not in present))
        # Outputs that are the memory of their inputs, until a plan refuses one.
        self._in_place = {state.present.name for state in self._own if state.kind in ("buffer", "window")}
        self.reset()

    def reset(self) -> None:
        """Forgets all tokens."""
        self.tokens: list[int] = []
        self._rows = self._rows_at_a_time
        self._caches = {state.past.name: self._empty(state) for state in self._own}
        self._spare: dict[str, numpy.ndarray] = {}
        if len(self._own) < len(self._states):
            # Buffers have rows to spare, and a session does not know the size of a window.
            self._session.reset_states({state.past.name: self._empty(state).shape for state in self._states if state.is_kept})

    def unread(self, tokens: list[int]) -> list[int]:
        """The tokens to feed, so that it has read all of `tokens`. Forgets what it has read if they do not begin with that."""
        count = len(self.tokens)
        if count < len(tokens) and tokens[:count] == self.tokens:
            return tokens[count:]
        self.reset()
        return tokens

    def _empty(self, state: State) -> numpy.ndarray:
        return state.zeros({"buffer": self._rows, "window": self._window}.get(state.kind, 0))

    @property
    def state_bytes(self) -> int:
        kept = self._session.states() if self.tokens and len(self._own) < len(self._states) else {}
        return sum(array.nbytes for array in [*self._caches.values(), *self._spare.values(), *kept.values()])

    @property
    def memory_bytes(self) -> int:
        """Bytes of activations and workspaces."""
        return self._session.memory_bytes

    def feed(self, tokens: list[int]) -> numpy.ndarray:
        """Appends the tokens and returns the logits of the token that follows, f32[vocabulary]."""
        before = len(self.tokens)
        self.tokens += tokens
        read = tokens if self._states else self.tokens
        self._make_room(len(self.tokens))
        begin = before if self._states else 0
        inputs = {info.name: input_of(info, role, read, begin) for role, info in self._ports.items()}
        outputs = self._run({**inputs, **self._caches})
        for state in self._own:
            self._caches[state.past.name] = outputs[state.present.name]
        logits = outputs[self._logits]
        return as_floats(logits.reshape(-1, logits.shape[-1])[-1])

    def _make_room(self, tokens: int) -> None:
        if tokens <= self._rows:
            return
        self._rows = -(-tokens // self._rows_at_a_time) * self._rows_at_a_time
        for state in self._own:
            if state.kind == "buffer":
                self._caches[state.past.name] = state.longer(self._caches[state.past.name], self._rows)
                self._spare.pop(state.past.name, None)

    def _run(self, inputs: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
        """Runs once. A buffer is updated in place, or its next rows are written to the spare buffer."""
        buffers = [state for state in self._own if state.kind in ("buffer", "window")]
        while True:
            out = {}
            for state in buffers:
                past, present = state.past.name, state.present.name
                if present not in self._in_place and past not in self._spare:
                    self._spare[past] = self._empty(state)
                out[present] = self._caches[past] if present in self._in_place else self._spare[past]
            try:
                outputs = self._session.run(inputs, out=out)
            except anneal.InvalidArgumentError as error:  # before anything ran
                if "overlaps" not in str(error) or error.port not in self._in_place:
                    raise
                self._in_place.remove(error.port)
                continue
            for past in self._spare:
                self._spare[past] = self._caches[past]
            return outputs


def role_of(info: Any) -> str:
    """The role of an input that is not a state, by the names of onnxruntime-genai, optimum and transformers."""
    name, is_integer = info.name.lower(), "int" in str(info.dtype)
    if "encoder_hidden_states" in name:
        return "encoder's output"
    if "mask" in name and is_integer and len(info.shape) == 2:
        return "encoder's mask" if name.startswith("encoder") else "mask"
    if "position" in name and is_integer:  # also cache_position
        return "positions"
    if "logits_to_keep" in name:
        return "logits to keep"
    if name == "use_cache_branch":
        return "with cache"
    if is_integer and len(info.shape) == 2:
        return "ids"
    raise UnknownModel(f'input "{info.name}" of {info.dtype} {info.shape} is neither token ids, mask, positions nor a state')


def input_of(info: Any, role: str, read: list[int], begin: int) -> numpy.ndarray:
    """The array for an input when a run reads the tokens `read`, which follow `begin` tokens in the caches."""
    length = begin + len(read)
    array: numpy.ndarray
    if role == "mask":
        array = numpy.ones(length, info.dtype)
    elif role == "positions":
        array = numpy.arange(begin, length, dtype=info.dtype)
        if len(info.shape) == 3:  # of text, height and width, which are the same in text
            return numpy.tile(array, (3, 1, 1))
    else:
        values: Any = {"ids": read, "with cache": [begin > 0], "logits to keep": 1}[role]
        array = numpy.array(values, dtype=info.dtype)
    return array[None] if role in ("ids", "mask", "positions") and len(info.shape) == 2 else array.reshape(
        (1,) * (len(info.shape) - array.ndim) + array.shape)


def states_of(engine: anneal.Engine) -> list[State]:
    """Pairs of an input of floats, or of quantized ones, and the output that follows it in time: by layer and by "key" or
    "value" in their names, else in their order."""
    if any(info.name == "inputs_embeds" for info in engine.inputs):
        raise UnknownModel("the model takes embeddings (inputs_embeds) instead of token ids")
    if any("cross" in part_of(info.name) for info in engine.inputs):
        raise UnknownModel("the model is a decoder that needs an encoder: give the folder with the files of both")
    pasts = [info for info in engine.inputs if len(info.shape) >= 2 and any(name in str(info.dtype) for name in ("float", "int8"))]
    presents = [info for info in engine.outputs if info.name != "logits"]
    if len(presents) > len(pasts):
        presents = presents[len(presents) - len(pasts):]
    if len(presents) != len(pasts):
        raise UnknownModel(f"the model has {len(pasts)} inputs of states, but {len(presents)} outputs for them")
    by_name = {part_of(info.name): info for info in presents}
    if len(by_name) == len(presents) and {part_of(info.name) for info in pasts} == set(by_name):
        presents = [by_name[part_of(info.name)] for info in pasts]
    return [state_of(past, present) for past, present in zip(pasts, presents)]


def part_of(name: str) -> tuple[Any, ...]:
    """("past_key_values.12.key") -> ("12", "key"), ("past.3.conv") -> ("3", "conv")"""
    words = re.findall(r"[a-z]+|\d+", name.lower().replace("past_key_values", "past"))
    behind = words[max((place for place, word in enumerate(words) if word.isdigit()), default=len(words)) + 1:]
    return (*[word for word in words if word.isdigit()], *[KEYS_OR_VALUES[word] for word in words[1:] if word in KEYS_OR_VALUES][-1:],
            *["cross" for word in words if word in ("encoder", "cross")],
            *[word for word in behind if word not in KEYS_OR_VALUES and word not in ("encoder", "decoder", "cross", "self")][-1:])


def state_of(past: Any, present: Any) -> State:
    if len(past.shape) != len(present.shape) or past.dtype != present.dtype:
        raise UnknownModel(f'state "{past.name}" of {past.dtype} {past.shape} becomes "{present.name}" of {present.dtype} {present.shape}')
    # Axis 0 is the batch, whose size is 1.
    row_axis = next((axis for axis in range(1, len(past.shape)) if not isinstance(past.shape[axis], int)), None)
    if row_axis is None:
        return State(past, present)
    rows = str(present.shape[row_axis])
    kind = "window" if rows == str(past.shape[row_axis]) else "buffer" if rows.startswith("max(") else "growing"
    return State(past, present, kind, row_axis)


def as_floats(logits: numpy.ndarray) -> numpy.ndarray:
    if logits.dtype == numpy.uint16:  # the bits of bf16
        return (logits.astype(numpy.uint32) << 16).view(numpy.float32)
    return logits.astype(numpy.float32, copy=False)
