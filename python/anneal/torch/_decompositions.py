"""Fused operators of torch that torch.onnx does not know, in smaller ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, qkv_weight: torch.Tensor,
               qkv_bias: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Context [batch, length, width] and weights [batch, heads, length, length] of nn.MultiheadAttention."""
    batch, length, width = query.shape
    parts = []
    for tensor, weight, bias in zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3)):
        projected = torch.nn.functional.linear(tensor, weight, bias)
        parts.append(projected.reshape(batch, tensor.shape[1], heads, width // heads).transpose(1, 2))
    scores = torch.matmul(parts[0] * (width // heads) ** -0.5, parts[1].transpose(2, 3))
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    weights = torch.softmax(scores, -1)
    return torch.matmul(weights, parts[2]).transpose(1, 2).reshape(batch, length, width), weights


def _broadcast(mask: torch.Tensor | None, mask_type: int | None) -> torch.Tensor | None:
    """mask_type 0: [length, length]; 1: [batch, length] of keys; 2: as it is."""
    if mask is None:
        return None
    return mask[:, None, None, :] if mask_type == 1 else mask


def _encoder_layer(src: torch.Tensor, embed_dim: int, num_heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor,
                   proj_weight: torch.Tensor, proj_bias: torch.Tensor, use_gelu: bool, norm_first: bool, eps: float,
                   norm_weight_1: torch.Tensor, norm_bias_1: torch.Tensor, norm_weight_2: torch.Tensor,
                   norm_bias_2: torch.Tensor, ffn_weight_1: torch.Tensor, ffn_bias_1: torch.Tensor,
                   ffn_weight_2: torch.Tensor, ffn_bias_2: torch.Tensor, mask: torch.Tensor | None = None,
                   mask_type: int | None = None) -> torch.Tensor:
    linear, norm = torch.nn.functional.linear, torch.nn.functional.layer_norm
    x = norm(src, (embed_dim,), norm_weight_1, norm_bias_1, eps) if norm_first else src
    context, _ = _attention(x, x, x, num_heads, qkv_weight, qkv_bias, _broadcast(mask, mask_type))
    x = src + linear(context, proj_weight, proj_bias)
    if not norm_first:
        x = norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)
    hidden = norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps) if norm_first else x
    hidden = linear(hidden, ffn_weight_1, ffn_bias_1)
    hidden = torch.nn.functional.gelu(hidden) if use_gelu else torch.relu(hidden)
    x = x + linear(hidden, ffn_weight_2, ffn_bias_2)
    return x if norm_first else norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)


def _native_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, embed_dim: int, num_head: int,
                      qkv_weight: torch.Tensor, qkv_bias: torch.Tensor, proj_weight: torch.Tensor, proj_bias: torch.Tensor,
                      mask: torch.Tensor | None = None, need_weights: bool = True, average_attn_weights: bool = True,
                      mask_type: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    context, weights = _attention(query, key, value, num_head, qkv_weight, qkv_bias, _broadcast(mask, mask_type))
    output = torch.nn.functional.linear(context, proj_weight, proj_bias)
    if not need_weights:
        return output, output.new_empty(0)
    return output, weights.mean(1) if average_attn_weights else weights


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator. torch.onnx takes normalization by the batch's own mean for that by running means."""
    by_batch = torch._decomp.get_decompositions([
        aten._native_batch_norm_legit_functional, aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit.default])
    return {**by_batch, aten._transformer_encoder_layer_fwd.default: _encoder_layer,
            aten._native_multi_head_attention.default: _native_attention}
