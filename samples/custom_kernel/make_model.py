"""Writes soft_clip.onnx: a model with an operator that only soft_clip.c has. Needs python3-onnx."""

import onnx
from onnx import TensorProto, helper

clip = helper.make_node("SoftClip", ["x"], ["clipped"], name="clip", domain="sample", slope=0.5)
double = helper.make_node("Add", ["clipped", "clipped"], ["y"], name="double")
graph = helper.make_graph(
    [clip, double], "soft_clip",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])])
model = helper.make_model(graph, producer_name="", ir_version=8, opset_imports=[
    helper.make_opsetid("", 17), helper.make_opsetid("sample", 1)])
onnx.save(model, "soft_clip.onnx")
