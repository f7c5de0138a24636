"""Runs an engine with tensors of torch: inputs are read in place, outputs are tensors that the run writes to."""

from __future__ import annotations

import dataclasses
import importlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

import anneal
from anneal.torch._graph import DTYPES, Computed, Exported, Given, Literal, Output, Size, View
from anneal.torch._reasons import Refused

sympy: Any = importlib.import_module("sympy")  # which has no types

# Sizes that were seen, whose outputs' sizes are remembered.
_MOST_SIZES = 64


def _strides_to_write(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether every element has its own place, in any order of the axes."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides) if size != 1):
        if stride != expected and size:
            return False
        expected *= size
    return True


class Runner:
    """Runs the engine of an Exported; any number of threads may call it, each has a session meanwhile."""

    def __init__(self, exported: Exported, engine: anneal.Engine | None, threads: int) -> None:
        self.engine = engine
        self._exported = dataclasses.replace(exported, model=None)  # which has the weights
        self._threads = threads
        self._sessions: deque[anneal.Session] = deque()
        self._layouts: dict[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]] | None]] = {}
        self._symbols = list(exported.symbols.items())
        self._computed = exported.computed
        self._input_names: list[str] = []
        self._output_names: list[str] = []
        if engine is not None:
            self._input_names = [info.name for info in engine.inputs]
            self._output_names = [info.name for info in engine.outputs]
            self._check(engine)

    def _check(self, engine: anneal.Engine) -> None:
        if len(self._input_names) != len(self._exported.inputs) or len(self._output_names) != len(self._computed):
            raise Refused("the engine has other inputs or outputs than the graph")
        for index, info in enumerate(engine.outputs):
            wanted = DTYPES[self._computed[index].dtype]
            if info.dtype != wanted:
                raise Refused(f"torch.onnx gives {info.dtype} for an output of {wanted}")

    def _bound(self, args: Sequence[Any]) -> tuple[int, ...]:
        return tuple(args[index] if axis is None else args[index].shape[axis] for _, (index, axis) in self._symbols)

    def _evaluate(self, expr: Any, values: tuple[int, ...]) -> int | None:
        if isinstance(expr, int):
            return expr
        number = expr.xreplace({symbol: sympy.Integer(value) for (symbol, _), value in zip(self._symbols, values)})
        return int(number) if number.is_number else None

    def _layout(self, output: Computed, values: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Sizes and strides, or None if they depend on values of tensors."""
        sizes = [self._evaluate(size, values) for size in output.sizes]
        strides = [self._evaluate(stride, values) for stride in output.strides]
        known_sizes = tuple(size for size in sizes if size is not None)
        known_strides = tuple(stride for stride in strides if stride is not None)
        if len(known_sizes) < len(sizes):
            return None
        if len(known_strides) < len(strides) or not _strides_to_write(known_sizes, known_strides):
            return known_sizes, tuple(torch.empty(known_sizes, device="meta").stride())
        return known_sizes, known_strides

    def _layouts_at(self, values: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]] | None]:
        layouts = self._layouts.get(values)
        if layouts is None:
            layouts = [self._layout(self._computed[index], values) for index in range(len(self._computed))]
            if len(self._layouts) >= _MOST_SIZES:
                self._layouts.clear()
            self._layouts[values] = layouts
        return layouts

    def _compute(self, args: Sequence[Any], values: tuple[int, ...]) -> list[torch.Tensor]:
        assert self.engine is not None
        given = {}
        for index, (name, layout) in enumerate(zip(self._output_names, self._layouts_at(values))):
            if layout is not None:
                given[name] = torch.empty_strided(*layout, dtype=self._computed[index].dtype)
        inputs = {name: _without_neg(args[index]) for name, index in zip(self._input_names, self._exported.inputs)}
        try:
            session = self._sessions.pop()
        except IndexError:
            session = self.engine.session(threads=self._threads or torch.get_num_threads())
        try:
            results = session.run(inputs, out=given)
        finally:
            self._sessions.append(session)
        return [given[name] if name in given else _tensor(results[name], self._computed[index].dtype)
                for index, name in enumerate(self._output_names)]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The graph's outputs. args: its inputs, also those that are constants of the model."""
        values = self._bound(args) if self._symbols else ()
        computed = self._compute(args, values) if self.engine is not None else []
        return [self._output(each, args, computed, values) for each in self._exported.outputs]

    def _output(self, each: Output, args: Sequence[Any], computed: list[torch.Tensor], values: tuple[int, ...]) -> Any:
        if isinstance(each, Computed):
            return computed[each.index]
        if isinstance(each, Given):
            return args[each.index]
        if isinstance(each, Size):
            return self._evaluate(each.expr, values)
        if isinstance(each, View):
            return self._view(each, self._output(each.base, args, computed, values), values)
        assert isinstance(each, Literal)
        return each.value

    def _view(self, view: View, base: torch.Tensor, values: tuple[int, ...]) -> torch.Tensor:
        """Offsets are those of the example's storage, where base begins at 0: an input may begin elsewhere now."""
        if isinstance(view.base, Computed) and list(base.stride()) != [self._known(each, values) for each in view.base.strides]:
            raise Refused("an output has the memory of another one with gaps")
        sizes, strides, (offset,) = ([self._known(each, values) for each in every]
                                     for every in (view.sizes, view.strides, (view.offset,)))
        return base.as_strided(sizes, strides, base.storage_offset() + offset)

    def _known(self, expr: Any, values: tuple[int, ...]) -> int:
        number = self._evaluate(expr, values)
        if number is None:
            raise Refused("an output has the memory of another and a size that depends on values")
        return number


def _without_neg(value: Any) -> Any:
    """DLPack has no bit for a negated view."""
    return value.resolve_neg() if isinstance(value, torch.Tensor) else value


def _tensor(array: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor in the memory of a NumPy array."""
    return torch.from_numpy(array.view("int16")).view(dtype) if dtype == torch.bfloat16 else torch.from_numpy(array)
