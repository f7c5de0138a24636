#!/usr/bin/env python3
"""Writes the models of exported_attention_test.cc, as torch.onnx exports attention: NAME.dynamo.onnx and NAME.script.onnx.

Needs torch, onnx and onnxscript; the models here are of torch 2.15 and onnxscript 0.7.2. Batch and length are open.
"""

import sys
from pathlib import Path

import onnx
import torch
from torch.nn import functional

HEADS, GROUPS, WIDTH = 4, 2, 16


class Attention(torch.nn.Module):
    def __init__(self, dtype=torch.float32, groups=HEADS, rotary=False, **options):
        super().__init__()
        self.dtype, self.groups, self.rotary, self.options = dtype, groups, rotary, options

    def rotated(self, x):
        length = x.shape[2]
        frequencies = 1.0 / 10000 ** (torch.arange(0, WIDTH, 2).float() / WIDTH)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        angles = torch.cat([angles, angles], -1)
        half = torch.cat([-x[..., WIDTH // 2:], x[..., :WIDTH // 2]], -1)
        return x * angles.cos().to(x.dtype) + half * angles.sin().to(x.dtype)

    def forward(self, q, k, v, mask=None):
        q, k, v = q.to(self.dtype), k.to(self.dtype), v.to(self.dtype)
        if self.rotary:
            q, k = self.rotated(q), self.rotated(k)
        return functional.scaled_dot_product_attention(q, k, v, mask, **self.options).float()


class Guarded(torch.nn.Module):
    """A softmax with a guard of one's own for rows that see nothing."""

    def __init__(self, guard):
        super().__init__()
        self.guard = guard

    def forward(self, q, k, v, mask):
        scores = (q @ k.transpose(-2, -1)) * WIDTH ** -0.5
        scores = scores.masked_fill(~mask, float("-inf"))
        weights = scores.softmax(-1)
        if self.guard == "nan_to_num":
            weights = torch.nan_to_num(weights)
        elif self.guard == "all_masked":
            weights = torch.where((~mask).all(-1, keepdim=True), torch.zeros_like(weights), weights)
        else:
            hidden = scores.eq(float("-inf")).all(-1, keepdim=True)
            weights = torch.where(hidden, torch.zeros_like(weights), weights)
        return weights @ v


def write(name, module, with_mask=False, script=True):
    batch, length = 2, 12
    arguments = [torch.randn(batch, HEADS, length, WIDTH),
                 *(torch.randn(batch, getattr(module, "groups", HEADS), length, WIDTH) for _ in range(2))]
    names, axes = ["q", "k", "v"], [{0: "batch", 2: "length"}] * 3
    if with_mask:
        arguments.append(torch.ones(batch, 1, length, length, dtype=torch.bool))
        names.append("mask")
        axes.append({0: "batch", 2: "length", 3: "length"})
    folder = Path(__file__).resolve().parent
    for form in ["dynamo", *(["script"] if script else [])]:
        path = folder / f"{name}.{form}.onnx"
        if form == "dynamo":
            sizes = {"batch": torch.export.Dim("batch", max=64), "length": torch.export.Dim("length", max=4096)}
            shapes = [{axis: sizes[size] for axis, size in each.items()} for each in axes]
            torch.onnx.export(module, tuple(arguments), str(path), dynamo=True, external_data=False, input_names=names,
                              output_names=["y"], dynamic_shapes=tuple(shapes), verbose=False)
        else:
            torch.onnx.export(module, tuple(arguments), str(path), dynamo=False, opset_version=17, input_names=names,
                              output_names=["y"], dynamic_axes=dict(zip([*names, "y"], [*axes, axes[0]])))
        model = onnx.load(path)
        del model.metadata_props[:], model.graph.metadata_props[:], model.graph.value_info[:]
        for node in model.graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
        onnx.save(model, path)


def main():
    torch.manual_seed(0)
    write("scaled", Attention(scale=0.3))
    write("boolean_mask", Attention(), with_mask=True)
    write("boolean_mask_f16", Attention(torch.float16), with_mask=True)
    write("causal_bf16", Attention(torch.bfloat16, is_causal=True))
    write("rotary_groups", Attention(groups=GROUPS, rotary=True, is_causal=True, enable_gqa=True), script=False)
    for guard in ("nan_to_num", "all_masked", "all_scores"):
        write(guard, Guarded(guard), with_mask=True)


if __name__ == "__main__":
    sys.exit(main())
