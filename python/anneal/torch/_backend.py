"""The backend of torch.compile."""

from __future__ import annotations

import dataclasses
import sys
import threading
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_module_simplified

import anneal
from anneal.torch._cache import engine_for
from anneal.torch._decompositions import decompositions
from anneal.torch._graph import Exported, export, free_numbers, placeholders, tensor_refusal, value_of
from anneal.torch._reasons import Refused, log, reason_of, say_fallback, say_once
from anneal.torch._run import Runner
from anneal.torch._samples import digest_of, samples_of_graph
from anneal.torch._settings import Settings, settings_of


# Elements of a buffer whose content is compared in each call.
_MOST_COMPARED = 1 << 16

# Engines of a graph for values of its integer arguments.
_MOST_NUMBERS = 8


@dataclasses.dataclass
class _Watched:
    """A weight as it was when the engine was built."""

    index: int
    tensor: Callable[[], torch.Tensor | None]  # a weak reference
    version: int
    address: int
    # Of a small buffer, such as running means: operators of torch update these without counting a version.
    content: torch.Tensor | None

    @staticmethod
    def of(index: int, tensor: torch.Tensor) -> _Watched:
        content = None
        if not isinstance(tensor, torch.nn.Parameter) and tensor.numel() <= _MOST_COMPARED:
            content = tensor.detach().clone()
            if not torch.equal(content, content):  # NaN is not equal to itself
                content = None
        return _Watched(index, weakref.ref(tensor), tensor._version, tensor.data_ptr(), content)

    def fits(self, tensor: torch.Tensor | None) -> bool:
        """Whether it is the same tensor, unchanged since."""
        return (tensor is not None and self.tensor() is tensor and tensor._version == self.version
                and tensor.data_ptr() == self.address and (self.content is None or torch.equal(tensor, self.content)))

    def is_current(self) -> bool:
        """False: this value never comes back."""
        return self.fits(self.tensor())


class _Variant:
    """An engine, for the weights and numbers that it contains."""

    def __init__(self, runner: Runner, watched: list[_Watched], numbers: list[tuple[int, Any]]) -> None:
        self.runner = runner
        self.watched, self.numbers = watched, numbers
        self.calls = 0

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether the weights are those of the engine: the same tensors, unchanged since."""
        return (all(each.fits(args[each.index]) for each in self.watched)
                and all(args[index] == value for index, value in self.numbers))


class _Graph:
    """A functional graph of aten operators: AOTAutograd gives it, and calls run()."""

    def __init__(self, settings: Settings, name: str, arguments: Sequence[str | None]) -> None:
        self._settings, self._name, self._arguments = settings, name, arguments
        self._variants: tuple[_Variant, ...] = ()
        self._building = threading.Lock()
        self._changes = 0  # one after the other, each after one call
        self._seen: list[tuple[int, int, int]] = []

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        """Takes the graph. The engine is built in the first call, which has the weights."""
        context = torch._guards.TracingContext.try_get()
        metadata = None if context is None else context.fw_metadata
        static = [] if metadata is None else list(metadata.static_input_indices)
        nodes = placeholders(gm.graph)
        mutated = set() if metadata is None else {index for index, info in enumerate(metadata.input_info) if info.mutates_data}
        self._gm = gm
        self._weights = [index for index in static if index < len(nodes) and index not in mutated
                         and isinstance(value_of(nodes[index]), torch.Tensor)]
        self._numbers = free_numbers(gm, set(self._weights))

        def run(args: list[Any]) -> list[Any]:
            outputs = self._run(args)
            args.clear()
            return outputs

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _run(self, args: list[Any]) -> list[Any]:
        variant = self._fitting(args)
        if variant is None:
            with self._building:
                variant = self._fitting(args) or self._add(args)
        variant.calls += 1
        try:
            return variant.runner(args)
        except anneal.Error as error:
            raise Refused(reason_of(error), is_of_call=True) from error

    def _fitting(self, args: list[Any]) -> _Variant | None:
        return next((each for each in self._variants if each.fits(args)), None)

    def _add(self, args: list[Any]) -> _Variant:
        """Builds the engine of these weights. Engines of weights that have changed are dropped."""
        current = tuple(each for each in self._variants if all(watched.is_current() for watched in each.watched))
        stale = [each for each in self._variants if each not in current]
        self._variants = current
        if stale:
            self._changes = self._changes + 1 if all(each.calls <= 1 for each in stale) else 0
        # A module of inference mode does not count its changes: its weights are inputs of the engine.
        weights = [index for index in self._weights if not args[index].is_inference()]
        if len(weights) < len(self._weights):
            say_once(f"{self._name} has weights that were made in inference mode, where torch does not count changes: they "
                     "are inputs of the engine, which is slower")
        watched = [_Watched.of(index, args[index]) for index in weights]
        seen = [(id(args[each.index]), each.version, each.address) for each in watched]
        if self._changes > 2 and self._settings.fallback and seen != self._seen:
            self._seen = seen
            raise Refused("its weights change at every call", is_of_call=True)
        if stale:
            log.info("%s: weights have changed, the engine is built again", self._name)
        numbers = [(index, args[index]) for index in self._numbers]
        if numbers and len(current) >= _MOST_NUMBERS and self._settings.fallback:
            raise Refused(f"an integer argument has more than {_MOST_NUMBERS} values, and each takes an engine", is_of_call=True)
        variant = _Variant(self._build(args, weights, numbers), watched, numbers)
        self._variants = (variant, *current)
        return variant

    def _build(self, args: list[Any], weights: list[int], numbers: list[tuple[int, Any]]) -> Runner:
        constants = {**{index: args[index] for index in weights}, **dict(numbers)}
        exported = export(self._gm, constants)
        settings = self._settings
        engine = None
        if exported.model is not None:
            try:
                build, extra = dict(settings.build), ""
                if build.get("calibrate") is not None:
                    build["calibrate"] = self._samples(build["calibrate"], exported, args)
                    extra = digest_of(build["calibrate"])
                engine = engine_for(exported.model, exported.shapes, build, cache=settings.cache, extra_key=extra)
                engine.inputs  # loads it
            except anneal.Error as error:
                raise Refused(reason_of(error)) from error
        return Runner(exported, engine, settings.threads)


    def _samples(self, samples: Any, exported: Exported, args: list[Any]) -> list[dict[str, torch.Tensor]]:
        arguments = self._arguments if len(self._arguments) == len(args) else [None] * len(args)
        inputs = {value.name: arguments[index] for value, index in zip(exported.model.graph.inputs, exported.inputs)}
        examples = {str(arguments[index]): args[index] for index in exported.inputs}
        return samples_of_graph(samples, sorted(examples), inputs, examples)


def _argument_of(node: Any) -> str | None:
    """The argument of the compiled function that an input of Dynamo's graph is; None: another value."""
    source = getattr(node, "_dynamo_source", None) or getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "local_name", None)
    return name if isinstance(name, str) and getattr(source, "is_input", True) else None


def _is_resumed() -> bool:
    """Whether Dynamo compiles what follows a graph break: its arguments are values of the function before."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_locals.get("code")
        if isinstance(code, types.CodeType) and code.co_name.startswith("torch_dynamo_resume_in"):
            return True
        frame = frame.f_back
    return False


def _refusal(example_inputs: Sequence[Any]) -> str | None:
    tensors = [each for each in example_inputs if isinstance(each, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return ("gradients may be wanted, and Anneal has none: call it under torch.no_grad() or torch.inference_mode(), or "
                "model.requires_grad_(False)")
    return next((reason for reason in map(tensor_refusal, tensors) if reason is not None), None)


def _name_of(gm: torch.fx.GraphModule) -> str:
    compiled = torch._guards.CompileContext.current_compile_id()
    for node in gm.graph.nodes:
        stack = node.meta.get("stack_trace")
        if stack:
            lines = [line.strip() for line in stack.splitlines() if line.strip().startswith("File ")]
            if lines:
                return f"graph {compiled} ({lines[-1]})"
    return f"graph {compiled}"


def anneal_backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
                   mode: str | None = None) -> Callable[..., Any]:
    """The backend "anneal" of torch.compile: see docs/torch.md.

    options: fallback (False: raise the reason instead of running in eager mode), cache, threads, and the options of
    anneal.build(). mode is not used.
    """
    settings, name = settings_of(options), _name_of(gm)
    eager = gm.forward
    has_failed = False

    def refuse(reason: str) -> None:
        if not settings.fallback:
            raise anneal.UnsupportedError(f"{name}: {reason}")
        say_fallback(name, reason)

    reason = _refusal(example_inputs)
    if reason is not None:
        refuse(reason)
        return eager
    if not any(node.op.startswith("call_") for node in gm.graph.nodes):
        return eager  # it computes nothing

    graph = _Graph(settings, name, [None if _is_resumed() else _argument_of(node) for node in placeholders(gm.graph)])
    try:
        compiled = aot_module_simplified(gm, list(example_inputs), fw_compiler=graph.compile,
                                         inference_compiler=graph.compile, decompositions=decompositions())
    except Refused as refused:
        refuse(str(refused))
        return eager

    def call(*args: Any) -> Any:
        nonlocal has_failed
        if has_failed:
            return eager(*args)
        try:
            return compiled(*args)
        except Refused as refused:
            refuse(str(refused))
            has_failed = has_failed or not refused.is_of_call
            return eager(*args)

    return call
