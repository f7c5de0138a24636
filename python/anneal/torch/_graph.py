"""A graph of torch's operators becomes an ONNX model: which values are its inputs, constants and outputs."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, Union

import torch
from torch.export import ExportedProgram
from torch.export import graph_signature as signatures
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

import anneal
from anneal.torch._attention import make_exportable
from anneal.torch._reasons import Refused, reason_of

Result = TypeVar("Result")

DTYPES = {
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int8: "int8", torch.int16: "int16", torch.int32: "int32", torch.int64: "int64", torch.uint8: "uint8",
    torch.uint16: "uint16", torch.uint32: "uint32", torch.uint64: "uint64", torch.bool: "bool",
}

# The largest size of a dimension that torch leaves without a bound.
_LARGEST = 65536

_exporting = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Literal:
    """An output that is a value of Python: None, a number."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Given:
    """An output that is an input of the graph."""

    index: int


@dataclasses.dataclass(frozen=True)
class Size:
    """An output that is an expression of sizes."""

    expr: Any


@dataclasses.dataclass(frozen=True)
class Computed:
    """An output of the engine. sizes, strides: numbers, or expressions of the symbols."""

    index: int
    dtype: torch.dtype
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class View:
    """An output in the memory of another value: base is a Given, or an output of the engine."""

    base: Given | Computed
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any


Output = Union[Literal, Given, Size, Computed, View]


@dataclasses.dataclass
class Exported:
    """An ONNX model and how it fits the graph.

    model: onnx_ir.Model; None if nothing is computed. inputs: for each input of the model, the index of the graph's input.
    computed: the model's outputs. outputs: the graph's.
    symbols: where the value of each symbol is found: (index of input, axis), or (index of input, None) of a number.
    """

    model: Any
    inputs: list[int]
    computed: list[Computed]
    outputs: list[Output]
    symbols: dict[Any, tuple[int, int | None]]
    shapes: dict[str, anneal.Shapes]

    def moved(self, by: int) -> Exported:
        """For callers who count the inputs from another one on."""
        outputs = [Given(each.index + by) if isinstance(each, Given) else each for each in self.outputs]
        assert not any(isinstance(each, View) and isinstance(each.base, Given) for each in outputs)
        symbols = {symbol: (index + by, axis) for symbol, (index, axis) in self.symbols.items()}
        return Exported(self.model, [index + by for index in self.inputs], self.computed, outputs, symbols, self.shapes)


def in_fresh_thread(work: Callable[[], Result]) -> Result:
    """Calls `work` where no mode of the caller's thread is active: dispatch keys, autocast, tracing."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def value_of(node: torch.fx.Node) -> Any:
    """What torch knows of a node's result: a FakeTensor, a SymInt, None."""
    return node.meta.get("val")


def placeholders(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The inputs of a graph."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def tensor_refusal(tensor: torch.Tensor) -> str | None:
    """Why a tensor can be no input or output of an engine; None: it can."""
    if tensor.layout != torch.strided:
        return f"a tensor has the layout {tensor.layout}"
    if tensor.device.type != "cpu":
        return f"a tensor is in the memory of {tensor.device}"
    if tensor.dtype not in DTYPES:
        return f"a tensor has the dtype {tensor.dtype}"
    return None


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of an operator by name."""
    schema = getattr(node.target, "_schema", None)
    return {} if schema is None else {
        argument.name: node.args[index] if index < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        for index, argument in enumerate(schema.arguments)}


def _is_translated_wrongly(target: str, arguments: dict[str, Any]) -> bool:
    """Faults of torch.onnx 2.15: the model computes something else, in every runtime."""
    if target.startswith("aten.avg_pool"):
        return arguments.get("divisor_override") is not None
    if target.startswith("aten.scatter_reduce"):
        return arguments.get("reduce") == "mean"
    if target.startswith("aten._upsample") and "_aa" in target:
        return bool(arguments.get("align_corners"))
    return target.startswith("aten.logaddexp")


def _operator_refusal(node: torch.fx.Node) -> str | None:
    """Why an operator, which torch.onnx may translate, is not what torch computes."""
    target, arguments = node.target, _arguments(node)
    if arguments.get("training") is True or arguments.get("train") is True:
        return f"{target} is in training mode"
    if _is_translated_wrongly(str(target), arguments):
        return f"torch.onnx translates {target} wrongly with these arguments"
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return None
    if any(arguments.get(name) == 0 for name in ("dropout_p", "p", "dropout")) or arguments.get("train") is False:
        return None
    return f"{target} draws random numbers"


def _expr(value: Any) -> Any:
    return value.node.expr if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value


def _copy(gm: torch.fx.GraphModule) -> tuple[torch.fx.Graph, list[Any]]:
    """The graph without its output, and what it returns."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    returned = graph.graph_copy(gm.graph, copies)
    for node, copy in copies.items():
        copy.meta = dict(node.meta)
    return graph, list(returned) if isinstance(returned, (tuple, list)) else [returned]


def _symbols(nodes: list[torch.fx.Node], constants: Mapping[int, Any]) -> dict[Any, tuple[int, int | None]]:
    """Where each symbol of a size is found; sizes of tensors first."""
    found: dict[Any, tuple[int, int | None]] = {}
    for index, node in enumerate(nodes):
        value = value_of(node)
        if isinstance(value, torch.Tensor) and index not in constants:
            for axis, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and _expr(size).is_Symbol:
                    found.setdefault(_expr(size), (index, axis))
    for index, node in enumerate(nodes):
        value = value_of(node)
        if isinstance(value, torch.SymInt) and _expr(value).is_Symbol:
            found.setdefault(_expr(value), (index, None))
    return found


def free_numbers(gm: torch.fx.GraphModule, constants: Mapping[int, Any] | set[int]) -> list[int]:
    """Inputs that are numbers and no size of a tensor: an engine is built for each of their values."""
    nodes = placeholders(gm.graph)
    symbols = _symbols(nodes, dict.fromkeys(constants))
    numbers = []
    for index, node in enumerate(nodes):
        value = value_of(node)
        if isinstance(value, torch.Tensor) or index in constants:
            continue
        place = symbols.get(_expr(value)) if isinstance(value, torch.SymInt) else None
        if place is None or place[1] is None:
            numbers.append(index)
    return numbers


def _with_literal(user: torch.fx.Node, node: torch.fx.Node, literal: Any) -> Any:
    return torch.fx.map_arg((user.args, user.kwargs), lambda each: literal if each is node else each)


def _replace_numbers(graph: torch.fx.Graph, nodes: list[torch.fx.Node], constants: Mapping[int, Any],
                     symbols: Mapping[Any, tuple[int, int | None]]) -> None:
    """Numbers among the inputs become sizes of tensors, or literals."""
    for index, node in enumerate(nodes):
        value = value_of(node)
        if isinstance(value, torch.Tensor):
            continue
        if index in constants:
            for user in list(node.users):
                user.args, user.kwargs = _with_literal(user, node, constants[index])
        elif isinstance(value, torch.SymInt) and node.users:
            at, axis = symbols[_expr(value)]
            with graph.inserting_after(nodes[-1]):
                size = graph.call_function(torch.ops.aten.sym_size.int, (nodes[at], axis))
            size.meta = {"val": value}
            node.replace_all_uses_with(size)


def _lift_attributes(gm: torch.fx.GraphModule, graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.Tensor]:
    """Tensors that are attributes of the graph become inputs with a constant value."""
    lifted = {}
    first = next(iter(graph.nodes))
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        value: Any = gm
        for name in str(node.target).split("."):
            value = getattr(value, name)
        if not isinstance(value, torch.Tensor):
            continue
        with graph.inserting_before(first):
            holder = graph.placeholder(f"constant_{node.name}")
        holder.meta = dict(node.meta)
        if "val" not in holder.meta:
            raise Refused(f"the constant {node.target} has no known type")
        node.replace_all_uses_with(holder)
        graph.erase_node(node)
        lifted[holder] = value
    return lifted


def _range(size: torch.SymInt) -> tuple[int, int, int]:
    """Smallest, expected and largest value."""
    node: Any = size.node
    bounds = node.shape_env.bound_sympy(node.expr)

    def bounded(bound: Any, otherwise: int) -> int:
        return int(bound) if bound.is_Integer else otherwise

    low = max(1, bounded(bounds.lower, 1))
    low = 1 if low == 2 else low  # torch's bound of every open size: its guards handle 1 apart, exported programs do not
    high = max(low, min(bounded(bounds.upper, _LARGEST), 1 << 31))
    hint = node.hint if node.has_hint() else low
    return low, min(max(low, int(hint)), high), high


def _shapes(node: torch.fx.Node) -> anneal.Shapes | None:
    sizes = value_of(node).shape
    if all(isinstance(size, int) for size in sizes):
        return None
    ranges = [(size, size, size) if isinstance(size, int) else _range(size) for size in sizes]
    low, expected, high = zip(*ranges)
    return anneal.Shapes(low, expected, high)


def _program(gm: torch.fx.GraphModule, graph: torch.fx.Graph, inputs: list[torch.fx.Node], values: dict[torch.fx.Node, torch.Tensor],
             names: dict[torch.fx.Node, str], outputs: list[torch.fx.Node]) -> ExportedProgram:
    """An ExportedProgram of a functional graph."""
    specs, state = [], {}
    for node in placeholders(graph):
        argument = signatures.TensorArgument(name=node.name)
        if node in values:
            state[names[node]] = values[node].detach()
            specs.append(signatures.InputSpec(signatures.InputKind.BUFFER, argument, names[node], persistent=True))
        else:
            specs.append(signatures.InputSpec(signatures.InputKind.USER_INPUT, argument, None))
    written = [signatures.OutputSpec(signatures.OutputKind.USER_OUTPUT, signatures.TensorArgument(name=node.name), None)
               for node in outputs]
    in_spec = pytree.tree_structure((tuple(range(len(inputs))), {}))
    out_spec = pytree.tree_structure(tuple(range(len(outputs))))
    call = ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec, [node.name for node in inputs]))
    return ExportedProgram(gm, graph, signatures.ExportGraphSignature(specs, written), state, {}, [call])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's warnings: what it cannot do it raises."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "onnxscript.optimizer")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def _to_onnx(make: Callable[[], ExportedProgram]) -> Any:
    def work() -> Any:
        with _exporting, _quiet(), torch.no_grad():
            exported = torch.onnx.export(make(), dynamo=True, verbose=False)
        assert exported is not None
        return exported.model

    try:
        return in_fresh_thread(work)
    except Refused:
        raise
    except Exception as error:
        raise Refused(reason_of(error)) from error


class _Outputs:
    """Sorts what a graph returns into what is given, computed, and a view of these."""

    def __init__(self, graph: torch.fx.Graph, nodes: list[torch.fx.Node], returned: list[Any], views_of_inputs: bool) -> None:
        self._nodes = nodes
        self.computed: list[torch.fx.Node] = []
        self._creators: dict[Any, torch.fx.Node] = {}
        for node in graph.nodes:
            if isinstance(value_of(node), torch.Tensor):
                self._creators.setdefault(_storage(node), node)
        if not views_of_inputs:
            self._creators = {storage: node for storage, node in self._creators.items() if node.op != "placeholder"}
        self._shared: dict[Any, int] = {}
        for each in {each for each in returned if isinstance(each, torch.fx.Node)}:
            if isinstance(value_of(each), torch.Tensor):
                self._shared[_storage(each)] = self._shared.get(_storage(each), 0) + 1
        self.outputs = [self._output(each) for each in returned]

    def _output(self, each: Any) -> Output:
        if not isinstance(each, torch.fx.Node):
            return Literal(each)
        value = value_of(each)
        if each in self._nodes:
            return Given(self._nodes.index(each))
        if isinstance(value, torch.SymInt):
            return Size(_expr(value))
        if not isinstance(value, torch.Tensor):
            raise Refused(f"the output {each.name} is a {type(value).__name__}")
        reason = tensor_refusal(value)
        if reason is not None:
            raise Refused(f"{reason} (output {each.name})")
        creator = self._creators.get(_storage(each), each)
        if creator is each or not self._is_view(each, creator):
            return self._compute(each)
        base = Given(self._nodes.index(creator)) if creator in self._nodes else self._compute(creator)
        return View(base, *_layout(value), _expr(value.storage_offset()))

    def _is_view(self, node: torch.fx.Node, creator: torch.fx.Node) -> bool:
        """Whether the output must share memory: with another one, with an input, or its own elements with each other."""
        value, base = value_of(node), value_of(creator)
        if value.dtype != base.dtype or isinstance(base.storage_offset(), torch.SymInt) or base.storage_offset() != 0:
            return False
        repeats = any(isinstance(stride, int) and stride == 0 for stride in value.stride())
        return repeats or creator in self._nodes or self._shared[_storage(node)] > 1

    def _compute(self, node: torch.fx.Node) -> Computed:
        if node not in self.computed:
            self.computed.append(node)
        value = value_of(node)
        return Computed(self.computed.index(node), value.dtype, *_layout(value))


def _storage(node: torch.fx.Node) -> Any:
    reference: Any = StorageWeakRef
    return reference(value_of(node).untyped_storage())


def _layout(value: torch.Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(map(_expr, value.shape)), tuple(map(_expr, value.stride()))


def export(gm: torch.fx.GraphModule, constants: Mapping[int, Any], names: Mapping[int, str] | None = None, *,
           views_of_inputs: bool = True) -> Exported:
    """The ONNX model of a functional graph of aten operators.

    constants: values of inputs, by index, that the model contains: tensors, and numbers that are no size of a tensor.
    names: of the constants. views_of_inputs: inputs have the strides of the example in every call, so that outputs may be
    views of them. Raises Refused.
    """
    graph, returned = _copy(gm)
    nodes = placeholders(graph)
    symbols = _symbols(nodes, constants)
    values = {nodes[index]: value for index, value in constants.items() if isinstance(value, torch.Tensor)}
    called = {nodes[index]: name for index, name in (names or {}).items()}
    _replace_numbers(graph, nodes, constants, symbols)
    sorted_outputs = _Outputs(graph, nodes, returned, views_of_inputs)
    computed, outputs = sorted_outputs.computed, sorted_outputs.outputs
    if not computed:
        return Exported(None, [], [], outputs, symbols, {})

    graph.output(tuple(computed)).meta = {"val": tuple(value_of(node) for node in computed)}
    graph.eliminate_dead_code()
    for node in graph.nodes:
        reason = _operator_refusal(node)
        if reason is not None:
            raise Refused(reason)
    lifted = _lift_attributes(gm, graph)
    values.update(lifted)
    for node in placeholders(graph):
        if not node.users:
            graph.erase_node(node)
            values.pop(node, None)
    live = [node for node in placeholders(graph) if node not in values]
    for node in live:
        value = value_of(node)
        if not isinstance(value, torch.Tensor):
            raise Refused(f"the input {node.name} is a {type(value).__name__}")
        reason = tensor_refusal(value)
        if reason is not None:
            raise Refused(f"{reason} (input {node.name})")
    names_of = {node: called.get(node, f"constant.{node.name}") for node in values}

    def program() -> ExportedProgram:
        make_exportable(graph)
        written: Any = graph.output_node().args[0]
        return _program(gm, graph, live, values, names_of, list(written))

    model = _to_onnx(program)
    shapes = {}
    for node in live:
        wanted = _shapes(node)
        if wanted is not None:
            shapes[node.name] = wanted
    given = [value.name for value in model.graph.inputs]
    by_name = {node.name: nodes.index(node) for node in live}
    if len(model.graph.outputs) != len(computed) or not set(given) <= set(by_name):
        raise Refused("torch.onnx changed the inputs or outputs of the graph")
    described = [Computed(index, value_of(node).dtype, *_layout(value_of(node))) for index, node in enumerate(computed)]
    return Exported(model, [by_name[name] for name in given], described, outputs, symbols, shapes)
