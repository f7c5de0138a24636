"""Samples for int8: arguments of calls as rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from anneal.torch._reasons import Refused


def rows_of(tensors: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """The inputs of one call, by name, as samples with a batch axis of size 1."""
    tensors = {name: tensor.detach() for name, tensor in tensors.items()}
    sizes = {tensor.shape[0] if tensor.dim() else 1 for tensor in tensors.values()}
    if len(sizes) != 1:
        raise ValueError(f"the inputs of a sample have the batch sizes {sorted(sizes)}: it cannot be cut into rows")
    return [{name: tensor[row : row + 1].contiguous() if tensor.dim() else tensor for name, tensor in tensors.items()}
            for row in range(sizes.pop())]


def digest_of(rows: list[dict[str, torch.Tensor]]) -> str:
    """A hash of the content."""
    digest = hashlib.sha256()
    for row in rows:
        for name, tensor in row.items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def samples_of_graph(samples: Iterable[Any], names: Sequence[str], inputs: Mapping[str, str | None],
                     examples: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """Samples of a compiled graph as rows.

    names: of the graph's inputs, which are the arguments of the compiled function. inputs: from names of the model's inputs
    to those. examples: by those, what the graph was traced with. Raises Refused where a sample does not fit the graph.
    """
    if not inputs or None in inputs.values():
        raise Refused("int8 needs samples, and this graph has an input that is no argument of the compiled function: what follows "
                      "a graph break, or a tensor from outside; use one graph, or anneal.torch.optimize()")
    rows: list[dict[str, torch.Tensor]] = []
    for sample in samples:
        if not isinstance(sample, Mapping):
            given = tuple(sample) if isinstance(sample, (tuple, list)) else (sample,)
            if len(names) != 1 or len(given) != 1:
                raise Refused(f"a sample has {len(given)} tensors without names, and the graph has the inputs "
                              f"{', '.join(names)}: give each sample as a dict of them")
            sample = {names[0]: given[0]}
        missing = sorted(set(names) - set(sample))
        if missing:
            raise Refused(f"a sample for int8 lacks the input {missing[0]}; the graph has {', '.join(names)}")
        for name in names:
            tensor, example = sample[name], examples[name]
            if not isinstance(tensor, torch.Tensor) or tensor.dtype != example.dtype or tensor.dim() != example.dim():
                raise Refused(f"a sample for int8 has {_text_of(tensor)} for the input {name}, which is {_text_of(example)}")
        rows += rows_of({model_name: sample[str(name)] for model_name, name in inputs.items()})
    if not rows:
        raise Refused("int8 needs samples, and calibrate has none")
    return rows


def _text_of(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} of {value.dim()} axes"
