"""Attention in a form that torch.onnx translates to what torch computes."""

from __future__ import annotations

import operator
from typing import Any, cast

import torch

aten = torch.ops.aten


def _emit(graph: torch.fx.Graph, target: Any, *args: Any) -> torch.fx.Node:
    """A call with the type of its result."""
    values = torch.fx.map_arg(args, lambda node: node.meta["val"])
    node = graph.call_function(target, args)
    with cast("list[Any]", values)[0].fake_mode:
        node.meta = {"val": target(*values)}
    return node


def _size(graph: torch.fx.Graph, node: torch.fx.Node, axis: int) -> Any:
    size = node.meta["val"].shape[axis]
    return size if isinstance(size, int) else _emit(graph, aten.sym_size.int, node, axis)


def _repeat_heads(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Keys and values have as many heads as queries: torch.onnx does not repeat them."""
    query, *others = cast("list[torch.fx.Node]", node.args[:3])
    heads = query.meta["val"].shape[1]
    for index, other in enumerate(others, 1):
        _, groups, _, width = other.meta["val"].shape
        if groups == heads:
            continue
        with graph.inserting_before(node):
            sizes = [_size(graph, other, axis) for axis in range(4)]
            wide = _emit(graph, aten.unsqueeze.default, other, 2)
            wide = _emit(graph, aten.expand.default, wide, [sizes[0], groups, heads // groups, sizes[2], width])
            node.update_arg(index, _emit(graph, aten.reshape.default, wide, [sizes[0], heads, sizes[2], width]))


def make_exportable(graph: torch.fx.Graph) -> None:
    """Rows of attention that a mask excludes altogether are 0, as in torch, and groups of heads share keys.

    torch.onnx translates the operator to a softmax, which gives NaN there: the mask lets such rows through, and their
    result is set to 0 behind.
    """
    masks: dict[torch.fx.Node, tuple[torch.fx.Node, torch.fx.Node]] = {}
    for node in list(graph.nodes):
        if node.target is not aten._scaled_dot_product_flash_attention_for_cpu.default:
            continue
        _repeat_heads(graph, node)
        mask = node.kwargs.get("attn_mask")
        if not isinstance(mask, torch.fx.Node):
            continue
        if mask not in masks:
            with graph.inserting_before(node):
                dead = _emit(graph, aten.all.dim, _emit(graph, aten.eq.Scalar, mask, float("-inf")), -1, True)
                masks[mask] = (_emit(graph, aten.masked_fill.Scalar, mask, dead, 0.0),
                               _emit(graph, aten.logical_not.default, dead))
        safe, alive = masks[mask]
        node.kwargs = {**node.kwargs, "attn_mask": safe}
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] == 0:
                with graph.inserting_after(user):
                    filled = _emit(graph, aten.mul.Tensor, user, alive)  # which keeps the order of the axes
                user.replace_all_uses_with(filled, delete_user_cb=lambda other, own=filled: other is not own)


def scaled_dot_product(*args: Any, **named: Any) -> Any:
    """The operator in smaller ones, as torch runs it on this device; torch.onnx's own translation scales both operands."""
    return aten.scaled_dot_product_attention.default._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **named)
