"""What is measured: ONNX files, the batches and types they are run with, and the inputs that all peers get."""

import dataclasses
import re
from pathlib import Path

import numpy
import onnx
from onnx import helper, numpy_helper

TYPES = ("f32", "int8", "bf16", "f16")
HALF = onnx.TensorProto.FLOAT16


@dataclasses.dataclass(frozen=True)
class Model:
    path: Path
    net: str  # what f32 and 8-bit versions of the same network share
    folder: str  # models of one folder have a geometric mean
    type: str  # "f32", "f16" or "int8": what the file holds
    inputs: dict  # name: (numpy type, sizes; None where open)

    @property
    def has_open_batch(self):
        """Networks whose inputs are all open in the first size, and only there."""
        return all(sizes and sizes[0] is None and None not in sizes[1:] for _, sizes in self.inputs.values()) \
            and not self.samples()

    def samples(self):
        """The inputs of the first test_data_set beside the model, if it is laid out as ONNX's tests are."""
        files = sorted((self.path.parent / "test_data_set_0").glob("input_*.pb"),
                       key=lambda file: int(file.stem.split("_")[1]))
        return files if self.path.name == "model.onnx" and len(files) == len(self.inputs) else []

    def feeds(self, batch):
        """The samples, else random numbers with open sizes `batch`, or 1."""
        if files := self.samples():
            return {name: numpy_helper.to_array(onnx.load_tensor(str(file))) for name, file in zip(self.inputs, files)}
        generator = numpy.random.default_rng(0)
        return {name: generator.random([batch or 1 if size is None else size for size in sizes]).astype(dtype)
                for name, (dtype, sizes) in self.inputs.items()}


def type_of(graph):
    if any("Quantize" in node.op_type or "Integer" in node.op_type for node in graph.node):
        return "int8"
    return "f16" if any(tensor.data_type == HALF for tensor in graph.initializer) else "f32"


def read_model(path, folder):
    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {}
    for each in graph.input:
        if each.name not in weights:
            tensor = each.type.tensor_type
            sizes = [size.dim_value if size.HasField("dim_value") else None for size in tensor.shape.dim]
            inputs[each.name] = (helper.tensor_dtype_to_np_dtype(tensor.elem_type), sizes)
    net = path.parent.name if path.name == "model.onnx" else path.stem
    return Model(path, net.removesuffix("_qdq"), folder, type_of(graph), inputs)


def read_models(places, pattern):
    """All .onnx files that are or lie below `places` and whose network's name matches."""
    found = []
    for place in map(Path, places):
        paths = [place] if place.is_file() else sorted(place.rglob("*.onnx"))
        if not paths:
            raise FileNotFoundError(f"{place} holds no .onnx file")
        models = [read_model(path, place.name if place.is_dir() else place.parent.name) for path in paths]
        found += [model for model in models if re.search(pattern, model.net)]
    return found


@dataclasses.dataclass(frozen=True)
class Case:
    """A model run one way. `batch` is None where the model or the data beside it fix the sizes."""
    model: Model
    type: str
    batch: int | None


def cases_of(models, types, batches):
    """bf16 is what Anneal makes of an f32 file; it is measured of networks with an open batch."""
    found = []
    for model in models:
        for batch in batches if model.has_open_batch else [None]:
            if model.type in types or model.type == "f16" and "f32" in types:
                found.append(Case(model, model.type, batch))
            if model.type == "f32" and "bf16" in types and model.has_open_batch:
                found.append(Case(model, "bf16", batch))
    return sorted(found, key=lambda case: (case.model.folder, TYPES.index(case.type), case.batch or 0))
