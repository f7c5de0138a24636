#!/usr/bin/env python3
"""Writes models/: one product c = a b of N x N matrices, in f32 and f16, by the operator MatMul and by those of products.c.
Needs python3-onnx."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

FOLDER = Path(__file__).parent / "models"

for type_name, data_type in (("f32", TensorProto.FLOAT), ("f16", TensorProto.FLOAT16)):
    for file, operator, domain in (("matmul", "MatMul", ""), ("naive", "NaiveMatMul", "sample"),
                                   ("tiled", "TiledMatMul", "sample")):
        a, b, c = (helper.make_tensor_value_info(name, data_type, ["N", "N"]) for name in "abc")
        node = helper.make_node(operator, ["a", "b"], ["c"], name="product", domain=domain)
        opsets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
        model = helper.make_model(helper.make_graph([node], "product", [a, b], [c]), producer_name="", ir_version=8,
                                  opset_imports=opsets)
        FOLDER.mkdir(exist_ok=True)
        onnx.save(model, str(FOLDER / f"{file}_{type_name}.onnx"))
