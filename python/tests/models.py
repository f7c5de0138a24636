"""Small ONNX models, and what ONNX Runtime computes with them."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

TYPES = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16, "int8": TensorProto.INT8,
    "int16": TensorProto.INT16, "int32": TensorProto.INT32, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16, "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64, "bool": TensorProto.BOOL,
    "bfloat16": TensorProto.BFLOAT16,
}


def model_of(nodes, inputs, outputs, initializers=()):
    """nodes: (op, inputs, outputs, attributes). inputs, outputs: name -> (dtype, shape)."""
    def infos(ports):
        return [helper.make_tensor_value_info(name, TYPES[dtype], shape) for name, (dtype, shape) in ports.items()]

    graph = helper.make_graph([helper.make_node(op, list(reads), list(writes), **attributes)
                               for op, reads, writes, attributes in nodes], "model", infos(inputs), infos(outputs),
                              list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def copying(dtype, shape):
    """y is x in other words: it has the bits of x."""
    return model_of([("Concat", ["x", "x"], ["y"], {"axis": 0})], {"x": (dtype, shape)},
                    {"y": (dtype, [None if size is None else 2 * size if axis == 0 else size
                                   for axis, size in enumerate(shape)])})


def adding(shape=("N", 4)):
    """sum = a + b, product = a * b."""
    ports = {name: ("float32", list(shape)) for name in ("a", "b")}
    return model_of([("Add", ["a", "b"], ["sum"], {}), ("Mul", ["a", "b"], ["product"], {})], ports,
                    {name: ("float32", list(shape)) for name in ("sum", "product")})


def convolution(seed=0, channels=8, size=16):
    """image [N,3,size,size] -> scores [N,channels]: a convolution, a mean and a product."""
    random = np.random.default_rng(seed)
    weights = {"w": random.normal(size=(channels, 3, 3, 3)), "m": random.normal(size=(channels, channels))}
    return model_of(
        [("Conv", ["image", "w"], ["c"], {"pads": [1, 1, 1, 1], "name": "conv1"}), ("Relu", ["c"], ["r"], {}),
         ("GlobalAveragePool", ["r"], ["p"], {}), ("Flatten", ["p"], ["f"], {}), ("MatMul", ["f", "m"], ["scores"], {})],
        {"image": ("float32", ["N", 3, size, size])}, {"scores": ("float32", ["N", channels])},
        [onnx.numpy_helper.from_array(value.astype("float32"), name) for name, value in weights.items()])


def onnx_runtime(model, inputs):
    data = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs)))
