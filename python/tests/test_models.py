"""Real models through Python alone: Anneal and ONNX Runtime on the same inputs."""

import anneal
import numpy as np
import onnxruntime
import pytest
from conftest import ROOT, shared_models

TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(int64)": "int64",
         "tensor(int32)": "int32", "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(bool)": "bool"}


def inputs_of(folder, ports):
    """The model's own first test case, by the order of its inputs; else random numbers."""
    import onnx
    case = folder / "test_data_set_0"
    inputs = {}
    for index, port in enumerate(ports):
        file = case / f"input_{index}.pb"
        if file.exists():
            tensor = onnx.TensorProto()
            tensor.ParseFromString(file.read_bytes())
            inputs[tensor.name or port.name] = onnx.numpy_helper.to_array(tensor)
            continue
        shape = [size if isinstance(size, int) else 1 for size in port.shape]
        random = np.random.default_rng(index)
        inputs[port.name] = (random.normal(size=shape) if "float" in port.type else random.integers(0, 2, shape)).astype(
            TYPES[port.type])
    return inputs


def compare(path, inputs):
    session = anneal.build(path).session()
    ours = session.run(inputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # On CPUs without VNNI, sums of u8 by s8 products saturate in ONNX Runtime without this option.
    options.add_session_config_entry("session.x64quantprecision", "1")
    theirs = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in theirs.get_outputs()]
    expected = dict(zip(names, theirs.run(None, inputs)))
    assert list(ours) == names
    for name in names:
        assert ours[name].dtype == expected[name].dtype and ours[name].shape == expected[name].shape
        difference = np.abs(ours[name].astype("float64") - expected[name].astype("float64"))
        yield ours[name].dtype, difference, np.abs(expected[name].astype("float64")).max(initial=0)


@pytest.mark.parametrize("name", ["glyphs", "glyphs_wide"])
def test_samples(name):
    images = np.random.default_rng(0).random((4, 1, 32, 32)).astype("float32")
    for _, difference, largest in compare(ROOT / f"samples/glyphs/{name}.onnx", {"image": images}):
        assert difference.max() <= 1e-4 * max(largest, 1)


@pytest.mark.parametrize("folder", shared_models(), ids=lambda folder: folder.name)
def test_shared(folder):
    path = next(folder.glob("*.onnx"))
    try:
        ports = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_inputs()
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} refuses it: {error}")
    is_quantized = "qdq" in folder.name
    is_half = "fp16" in folder.name
    for dtype, difference, largest in compare(path, inputs_of(folder, ports)):
        if difference.size == 0:
            continue
        if is_quantized and np.issubdtype(dtype, np.integer):  # classes, which change where two scores are close
            assert (difference > 0).mean() < 0.01
            continue
        # Of quantized models a tie may be rounded the other way, which is a step of an output's scale.
        bound = (0.1 if is_quantized else 2e-2 if is_half else 2e-3) * max(largest, 1e-3)
        assert difference.max() <= bound and np.median(difference) <= bound / 4
