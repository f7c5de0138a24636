"""optimize(): a module becomes an engine that is called like the module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.export import graph_signature as signatures
from torch.utils import _pytree as pytree

import anneal
from anneal.torch._attention import scaled_dot_product
from anneal.torch._cache import engine_for
from anneal.torch._decompositions import decompositions
from anneal.torch._graph import Exported, export, in_fresh_thread, placeholders, value_of
from anneal.torch._reasons import Refused
from anneal.torch._run import Runner
from anneal.torch._samples import digest_of, rows_of
from anneal.torch._settings import OptimizeOptions, settings_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


_without_tracing: Callable[[Any], Any] = torch.compiler.disable


class _Call:
    """The structure of the module's arguments, and of what it returns."""

    def __init__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._signature = inspect.signature(module.forward)
        self._kwargs = list(kwargs)
        self._args = len(args)
        self._bound = self._bind(args, kwargs)
        self.example, self.structure = pytree.tree_flatten((args, kwargs))

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The leaves of arguments, in the order of the example's. TypeError: another structure."""
        if len(args) != self._args or list(kwargs) != self._kwargs:
            args, kwargs = self._as_example(self._bind(args, kwargs))
        leaves, structure = pytree.tree_flatten((args, kwargs))
        if structure != self.structure:
            raise TypeError(f"the arguments have the structure {structure}, and the example has {self.structure}")
        return leaves

    def _as_example(self, bound: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments, by position and by name as in the example."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            value = bound[parameter.name]
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args.extend(value)
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif len(args) < self._args and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                args.append(value)
            elif parameter.name in self._kwargs:
                kwargs[parameter.name] = value
            elif value is not self._bound[parameter.name] and not _is_same(value, self._bound[parameter.name]):
                raise TypeError(f"{parameter.name} was not given in the example, and {value!r} is not its default")
        return tuple(args), {name: kwargs[name] for name in self._kwargs if name in kwargs}


def _is_same(value: Any, example: Any) -> bool:
    return type(value) is type(example) and not isinstance(value, torch.Tensor) and bool(value == example)


class OptimizedModule(torch.nn.Module):
    """What optimize() returns: it is called as the module was, gives the same structure of outputs, and has no weights.

    Any number of threads may call it.
    """

    def __init__(self, runner: Runner, call: _Call, fixed: list[tuple[int, Any]], outputs: pytree.TreeSpec,
                 name: str) -> None:
        super().__init__()
        self._runner, self._call, self._fixed, self._outputs, self._name = runner, call, fixed, outputs, name

    @property
    def engine(self) -> anneal.Engine:
        """The engine."""
        if self._runner.engine is None:
            raise AttributeError("the module computes nothing, so it has no engine")
        return self._runner.engine

    @property
    def report(self) -> anneal.BuildReport | None:
        """What the build decided and found."""
        return self.engine.report

    def save(self, path: Any) -> None:
        """Writes the engine file, for anneal.load() and the command; its inputs are named after the module's."""
        self.engine.save(path)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the engine. Inputs have the shapes of the example, but for the dimensions that dynamic_shapes names."""
        leaves = self._call.flatten(args, kwargs)
        for index, value in self._fixed:
            if not _is_same(leaves[index], value):
                raise ValueError(f"the module was exported with {value!r} for an argument that is {leaves[index]!r} now")
        if torch.is_grad_enabled() and any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
            raise RuntimeError("an optimized module has no gradients: call it under torch.no_grad()")
        return pytree.tree_unflatten(self._runner(leaves), self._outputs)

    # torch.compile of a module around it does not look inside.
    forward = _without_tracing(_forward)

    def extra_repr(self) -> str:
        """For print()."""
        return f"of {self._name}"


def _exported_program(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> Any:
    def work() -> Any:
        with torch.no_grad():
            program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
            return program.run_decompositions({**decompositions(), torch.ops.aten.scaled_dot_product_attention.default: scaled_dot_product})

    return in_fresh_thread(work)


def _check_mutations(signature: Any) -> None:
    for kind, what in ((signatures.OutputKind.BUFFER_MUTATION, "buffer"), (signatures.OutputKind.USER_INPUT_MUTATION, "input")):
        names = [spec.target for spec in signature.output_specs if spec.kind == kind]
        if names:
            hint = "; call module.eval() before" if what == "buffer" else ""
            raise anneal.UnsupportedError(f"the module writes to its {what} {names[0]}, which an engine cannot{hint}")


def _constants(program: Any) -> tuple[dict[int, torch.Tensor], dict[int, str]]:
    values, names = {}, {}
    for index, spec in enumerate(program.graph_signature.input_specs):
        if spec.kind == signatures.InputKind.USER_INPUT:
            continue
        if spec.kind in (signatures.InputKind.PARAMETER, signatures.InputKind.BUFFER) and spec.target in program.state_dict:
            values[index] = program.state_dict[spec.target]
        else:
            values[index] = program.constants[spec.target]
        names[index] = spec.target
    return values, names


def _samples(samples: Iterable[Any], call: _Call, exported: Exported, first: int, names: Sequence[str]) -> list[dict[str, torch.Tensor]]:
    """Arguments of calls as samples with a batch axis of size 1."""
    rows: list[dict[str, torch.Tensor]] = []
    for sample in samples:
        args = tuple(sample) if isinstance(sample, (tuple, list)) else () if isinstance(sample, Mapping) else (sample,)
        leaves = call.flatten(args, dict(sample) if isinstance(sample, Mapping) else {})
        rows += rows_of({name: leaves[index - first] for name, index in zip(names, exported.inputs)})
    return rows


def optimize(module: torch.nn.Module, example_inputs: Any, precision: str | Iterable[str] | None = None, *,
             example_kwargs: Mapping[str, Any] | None = None, calibrate: Iterable[Any] | None = None,
             dynamic_shapes: Any = None, target: str | Iterable[str] = "cpu", threads: int = 0, cache: bool = True,
             **options: Unpack[OptimizeOptions]) -> OptimizedModule:
    """Builds an engine of a module for inference, and returns what is called like the module.

    example_inputs: a tensor, or a tuple of positional arguments; example_kwargs: arguments by name. precision: "f16",
    "bf16", "int8" or several, allowed beside the module's own. calibrate: for int8, an iterable of arguments: a tensor, a
    tuple, or a dict of named ones, cut into rows along axis 0. dynamic_shapes: as torch.export.export() takes them; other
    sizes are those of the example. threads: most threads of a run; 0: torch.get_num_threads(). cache: keep the engine in
    the folder of the cache. options: those of anneal.build().

    Raises anneal.UnsupportedError with the operator that cannot be exported or built.
    """
    args = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    kwargs = dict(example_kwargs or {})
    precisions = [precision] if isinstance(precision, str) else list(precision or [])
    settings = settings_of({**options, "target": target, "precision": precisions, "threads": threads, "cache": cache,
                            "calibrate": calibrate})
    call = _Call(module, args, kwargs)
    try:
        program = _exported_program(module, args, kwargs, dynamic_shapes)
    except Exception as error:
        raise anneal.UnsupportedError(f"torch.export: {str(error).strip().splitlines()[0]}") from error
    signature = program.graph_signature
    _check_mutations(signature)
    constants, names = _constants(program)
    first = next((index for index, spec in enumerate(signature.input_specs)
                  if spec.kind == signatures.InputKind.USER_INPUT), len(signature.input_specs))
    fixed: list[tuple[int, Any]] = []
    for index, node in enumerate(placeholders(program.graph)):
        value = value_of(node)
        if index >= first and not isinstance(value, (torch.Tensor, torch.SymInt)):
            fixed.append((index - first, call.example[index - first]))
            constants[index] = call.example[index - first]
    try:
        exported = export(program.graph_module, constants, names, views_of_inputs=False)
        engine = None
        if exported.model is not None:
            build: dict[str, Any] = {**settings.build, "calibrate": None}
            extra = ""
            if calibrate is not None:
                input_names = [value.name for value in exported.model.graph.inputs]
                build["calibrate"] = _samples(calibrate, call, exported, first, input_names)
                extra = digest_of(build["calibrate"])
            engine = engine_for(exported.model, exported.shapes, build, cache=settings.cache, extra_key=extra)
        runner = Runner(exported.moved(-first), engine, settings.threads)
    except Refused as refused:
        raise anneal.UnsupportedError(str(refused)) from refused
    return OptimizedModule(runner, call, fixed, program.call_spec.out_spec, type(module).__name__)
