"""Arrays in and out of a session."""

import ctypes
import gc
import weakref

import anneal
import ml_dtypes
import numpy as np
import pytest
from models import adding, convolution, copying, model_of, onnx_runtime


def values(dtype, shape):
    random = np.random.default_rng(1)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        return random.integers(0, 100, shape).astype(dtype)
    return random.normal(size=shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
                                   "uint16", "uint32", "uint64", "bool"])
def test_every_type(dtype):
    session = anneal.build(copying(dtype, [3, 4])).session()
    x = values(dtype, (3, 4))
    y = session(x)
    assert y.dtype == x.dtype and y.shape == (6, 4)
    assert np.array_equal(y.view("uint8"), np.concatenate([x, x]).view("uint8"))
    out = np.empty_like(y)
    assert session(x, out=out) is out
    assert np.array_equal(out.view("uint8"), y.view("uint8"))


def test_bfloat16_as_bits():
    session = anneal.build(copying("bfloat16", [3, 4])).session()
    x = values("bfloat16", (3, 4))
    assert np.array_equal(session(x.view("uint16")).view("uint16"), np.concatenate([x, x]).view("uint16"))
    with pytest.raises(anneal.InvalidArgumentError, match="is u16, the engine expects f32"):
        anneal.build(copying("float32", [3, 4])).session()(x.view("uint16"))


def test_ports():
    engine = anneal.build(convolution(), shapes={"image": anneal.Shapes(min=(1, 3, 16, 16), max=(8, 3, 16, 16))})
    (image,), (scores,) = engine.inputs, engine.outputs
    assert (image.name, image.dtype, image.shape) == ("image", "float32", ("N", 3, 16, 16))
    assert (image.min_shape, image.max_shape, image.default) == ((1, 3, 16, 16), (8, 3, 16, 16), None)
    assert scores.shape == ("N", 8)
    assert repr(image) == "<TensorInfo image: float32[N, 3, 16, 16]>"


def test_run_as_dict_list_and_call():
    session = anneal.build(adding()).session()
    a, b = np.ones((2, 4), "float32"), np.full((2, 4), 3, "float32")
    outputs = session.run({"a": a, "b": b})
    assert list(outputs) == ["sum", "product"]
    assert (outputs["sum"] == 4).all() and (outputs["product"] == 3).all()
    product, = session.run(["product"], {"a": a, "b": b})
    assert (product == 3).all()
    assert [each[0, 0] for each in session.run(None, {"a": a, "b": b})] == [4, 3]
    assert [each[0, 0] for each in session(a, b)] == [4, 3]
    assert [each[0, 0] for each in session(a, b=b)] == [4, 3]
    for wrong in (lambda: session(a, b, a), lambda: session(a, a=a), lambda: session.run(a)):
        with pytest.raises(TypeError):
            wrong()


def test_outputs_are_new_arrays():
    session = anneal.build(adding()).session()
    first = session.run({"a": np.ones((2, 4), "float32"), "b": np.ones((2, 4), "float32")})
    second = session.run({"a": np.zeros((3, 4), "float32"), "b": np.zeros((3, 4), "float32")})
    assert (first["sum"] == 2).all() and (second["sum"] == 0).all() and second["sum"].shape == (3, 4)
    assert first["sum"].flags.owndata and first["sum"].flags.writeable


def test_given_outputs():
    session = anneal.build(adding()).session()
    a = np.ones((2, 4), "float32")
    whole = np.zeros((2, 8), "float32")
    outputs = session.run({"a": a, "b": a}, out={"sum": whole[:, ::2]})
    assert outputs["sum"].base is whole and (whole[:, ::2] == 2).all() and (whole[:, 1::2] == 0).all()
    kept = whole.copy()
    session.run({"a": a, "b": 2 * a})  # not written to again
    assert np.array_equal(whole, kept)
    frozen = np.zeros((2, 4), "float32")
    frozen.flags.writeable = False
    with pytest.raises(TypeError, match="can be written"):
        session.run({"a": a, "b": a}, out={"sum": frozen})
    with pytest.raises(anneal.InvalidArgumentError, match="with these inputs it is") as caught:
        session.run({"a": a, "b": a}, out={"sum": np.zeros((3, 4), "float32")})
    assert (caught.value.port, caught.value.dims) == ("sum", (3, 4))
    assert (session.run({"a": a, "b": a})["sum"] == 2).all()


@pytest.mark.parametrize("change", [lambda x: x[:, ::2], lambda x: x.T.copy().T, lambda x: x[::-1], lambda x: x[:, ::-1],
                                    lambda x: np.broadcast_to(x[:1], x.shape)], ids=["step", "order", "up", "back", "wide"])
def test_strides(change):
    x = change(np.arange(24, dtype="float32").reshape(4, 6))
    session = anneal.build(copying("float32", [None, None])).session()
    assert np.array_equal(session(x), np.concatenate([x, x]))
    assert session.copied_inputs == (1 if min(x.strides) < 0 else 0)


def test_strides_that_no_view_has():
    rows = np.zeros(4, dtype=[("tag", "int8"), ("value", "float32")])
    rows["value"] = [1, 2, 3, 4]
    session = anneal.build(copying("float32", [None])).session()
    assert np.array_equal(session(rows["value"]), [1, 2, 3, 4] * 2)
    assert session.copied_inputs == 1


def test_memory_is_read_in_place():
    """A queue holds the run back; what the memory holds when it runs is what counts, so no copy was made."""
    session = anneal.build(adding()).session()
    a, b = np.zeros((2, 4), "float32"), np.zeros((2, 4), "float32")
    big = anneal.build(convolution(size=256, channels=64)).session()
    stream = anneal.Stream()
    big.enqueue({"image": np.zeros((16, 3, 256, 256), "float32")}, stream)
    session.enqueue({"a": a, "b": b}, stream)
    assert not session.is_done()
    a[:] = 5
    big.wait()
    assert (session.wait()["sum"] == 5).all() and session.copied_inputs == 0


def test_inputs_are_dropped_after_the_run():
    session = anneal.build(adding()).session()
    a = np.ones((2, 4), "float32")
    session.run({"a": a, "b": a})
    gone = weakref.ref(a)
    del a
    gc.collect()
    assert gone() is None
    with pytest.raises(anneal.InvalidArgumentError, match='"b" is not set'):
        session.run({"a": np.ones((2, 4), "float32")})


def test_no_array():
    session = anneal.build(adding()).session()
    a = np.ones((2, 4), "float32")
    for wrong in ([[1.0]], "a", 3, a.astype(object), a.astype(str)):
        with pytest.raises((TypeError, BufferError, ValueError)):
            session.run({"a": wrong, "b": a})
    with pytest.raises(anneal.InvalidArgumentError, match="no tensor has"):
        session.run({"a": a.astype(complex), "b": a})
    with pytest.raises(anneal.InvalidArgumentError, match="is f64, the engine expects f32"):
        session.run({"a": a.astype("float64"), "b": a})
    with pytest.raises(anneal.InvalidArgumentError, match='no input "c"'):
        session.run({"a": a, "b": a, "c": a})
    with pytest.raises(anneal.InvalidArgumentError, match='no output "c"'):
        session.run({"a": a, "b": a}, out={"c": a})
    with pytest.raises(anneal.Error):
        session.run({"a": np.ones((1,) * 9, "float32"), "b": a})


@pytest.mark.parametrize("dtype", [">f4", "datetime64[s]", "longdouble", ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_dtypes_that_no_tensor_has(dtype):
    session, a = anneal.build(adding()).session(), np.ones((2, 4), "float32")
    wrong = np.zeros((2, 4), dtype)
    for call in (lambda: session(wrong, a), lambda: session(a, a, out=(wrong, None))):
        with pytest.raises(anneal.InvalidArgumentError, match=f'dtype {wrong.dtype}, which no tensor has: convert it to float32'.replace("[", r"\[")):
            call()
    assert (session(a, a)[0] == 2).all()


def test_outputs_that_cannot_be_written():
    session, a = anneal.build(adding()).session(), np.ones((2, 4), "float32")
    place = np.lib.stride_tricks.as_strided
    for strides in ((0, 4), (4, 4), (12, 4), (4, 4)):
        with pytest.raises(anneal.InvalidArgumentError, match="elements may share memory") as caught:
            session(a, a, out=(place(np.zeros(8, "float32"), (2, 4), strides), None))
        assert caught.value.port == "sum"
    with pytest.raises(anneal.InvalidArgumentError, match="negative strides"):
        session(a, a, out=(np.zeros((2, 4), "float32")[::-1], None))
    rows = np.zeros((2, 4), dtype=[("tag", "int8"), ("value", "float32")])
    with pytest.raises(anneal.InvalidArgumentError, match="no multiple of its element"):
        session(a, a, out=(rows["value"], None))
    half = anneal.build(copying("bfloat16", [3, 4])).session()
    frozen = np.zeros((6, 4), ml_dtypes.bfloat16)
    frozen.flags.writeable = False
    with pytest.raises(TypeError, match='"y" is a read-only .*can be written'):
        half(np.zeros((3, 4), ml_dtypes.bfloat16), out=frozen)


def test_inputs_that_cannot_be_written():
    session, a = anneal.build(adding()).session(), np.arange(8, dtype="float32").reshape(2, 4)
    a.flags.writeable = False
    assert np.array_equal(session(a, a)[0], 2 * a) and np.array_equal(session(a[::-1], a)[0], a[::-1] + a)
    odd = np.frombuffer(bytearray(33), "int8")[1:].view("float32").reshape(2, 4)  # begins between two floats
    assert not odd.flags.aligned and np.array_equal(session(odd, a)[0], a)
    assert session(a, a, out=(odd, None))[0] is odd and np.array_equal(odd, 2 * a)


def test_buffers_and_scalars():
    session = anneal.build(model_of([("Add", ["x", "x"], ["y"], {})], {"x": ("int32", [])}, {"y": ("int32", [])})).session()
    assert session(np.int32(4)) == 8 and session(np.array(4, "int32")).shape == ()
    bytes_session = anneal.build(copying("uint8", [4])).session()
    assert bytes(bytes_session(memoryview(b"\1\2\3\4"))) == b"\1\2\3\4" * 2


def test_empty_and_large():
    session = anneal.build(copying("float32", [None, 3])).session()
    assert session(np.zeros((0, 3), "float32")).shape == (0, 3)
    x = np.random.default_rng(0).normal(size=(200_000, 3)).astype("float32")
    assert np.array_equal(session(x), np.concatenate([x, x]))


def test_sizes_that_depend_on_values():
    session = anneal.build(model_of([("NonZero", ["x"], ["y"], {})], {"x": ("float32", [6])},
                                    {"y": ("int64", [1, "n"])})).session()
    assert session(np.array([0, 1, 0, 2, 3, 0], "float32")).tolist() == [[1, 3, 4]]
    assert session(np.zeros(6, "float32")).shape == (1, 0)
    with pytest.raises(anneal.InvalidArgumentError, match="depends on values"):
        session(np.zeros(6, "float32"), out=np.zeros((1, 3), "int64"))


def test_default_inputs():
    import onnx
    model = model_of([("Add", ["x", "bias"], ["y"], {})], {"x": ("float32", [2]), "bias": ("float32", [2])},
                     {"y": ("float32", [2])}, [onnx.numpy_helper.from_array(np.array([1, 2], "float32"), "bias")])
    engine = anneal.build(model, default_inputs="bias")
    session = engine.session()
    x = np.zeros(2, "float32")
    assert engine.inputs[1].default.tolist() == [1, 2]
    assert session(x).tolist() == [1, 2]
    assert session(x, np.array([5, 6], "float32")).tolist() == [5, 6]
    assert session(x).tolist() == [1, 2]  # the given value is not remembered


def test_profile():
    session = anneal.build(convolution()).session()
    profile = session.profile({"image": np.ones((1, 3, 16, 16), "float32")})
    assert profile.outputs["scores"].shape == (1, 8)
    assert profile.microseconds > 0 and any("conv1" in step.step for step in profile.steps)
    assert profile.to_rows()[0].keys() == {"step", "kernel", "microseconds", "times"}
    assert profile.to_dict()["steps"] == profile.to_rows()


def test_limits_and_options():
    engine = anneal.build(convolution())
    image = np.ones((4, 3, 16, 16), "float32")
    with pytest.raises(anneal.LimitError):
        engine.session(max_memory=100)(image)
    with pytest.raises(anneal.InvalidArgumentError):
        engine.session(threads=-1)
    session = engine.session(threads=1, shape_cache_size=1, prewarm=False, micro_batch=2)
    assert np.allclose(session(image), onnx_runtime(convolution(), {"image": image})["scores"], atol=1e-5)
    session.prepare({"image": (2, 3, 16, 16)})
    assert session(image[:2]).shape == (2, 8) and session.memory_bytes > 0 and session.run_warnings == []


def test_changing_shapes():
    session = anneal.build(convolution()).session()
    for rows in (1, 5, 2, 64, 1, 3):
        image = np.random.default_rng(rows).normal(size=(rows, 3, 16, 16)).astype("float32")
        assert np.allclose(session(image), onnx_runtime(convolution(), {"image": image})["scores"], atol=1e-5)


class ForeignMemory:
    """f32[2,4] in the memory of a device, by DLPack. The default address is never read."""

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                    ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                    ("byte_offset", ctypes.c_uint64), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, device_type, device_id, address=0x1000, strides=(4, 1)):
        self.shape, self.strides = (ctypes.c_int64 * 2)(2, 4), (ctypes.c_int64 * 2)(*strides)
        self.tensor = self.Tensor(address, device_type, device_id, 2, 2, 32, 1, self.shape, self.strides, 0, None, None)

    def __dlpack_device__(self):
        return self.tensor.device_type, self.tensor.device_id

    def __dlpack__(self, **options):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def test_memory_of_devices_is_refused_by_name():
    session = anneal.build(adding()).session()
    b = np.ones((2, 4), "float32")
    with pytest.raises(anneal.UnsupportedError, match='input "a" is in the memory of GPU 3') as caught:
        session.run({"a": ForeignMemory(2, 3), "b": b})
    assert caught.value.port == "a" and caught.value.dims == (2, 4)
    with pytest.raises(anneal.UnsupportedError, match='output "sum" is in the memory of GPU 0'):
        session.run({"a": b, "b": b}, out={"sum": ForeignMemory(2, 0)})
    with pytest.raises(anneal.UnsupportedError, match="DLPack type 7"):
        session.run({"a": ForeignMemory(7, 0), "b": b})
    assert (session.run({"a": b, "b": b})["sum"] == 2).all()


def test_memory_of_the_engines_gpu():
    """Kernels of the emulated GPU refuse NumPy's memory, so it is less aligned than they want: it is copied there."""
    engine = anneal.build(adding((2, 4)), target="emulated", device="emulated")
    session = engine.session()

    def less_aligned(value):
        memory = np.zeros(64, "float32")
        first = -(memory.ctypes.data // 4) % 16 + 1
        array = memory[first:first + 8].reshape(2, 4)
        array[:] = value
        return array

    def of_gpu(array):
        return ForeignMemory(2, -1, array.ctypes.data, [stride // 4 for stride in array.strides])

    a, b, total, wide = less_aligned(1), less_aligned(3), less_aligned(0), np.zeros((2, 8), "float32")
    given = of_gpu(total)
    for run in range(4):
        a += 1
        outputs = session.run({"a": of_gpu(a), "b": b}, out={"sum": given})
        assert outputs["sum"] is given and (total == a + b).all()
    assert session.run_warnings == [] and session.copied_inputs == 0
    stream = anneal.Stream("emulated")
    for run in range(3):
        a += 1
        session.enqueue({"a": of_gpu(a), "b": of_gpu(b)}, stream, out={"sum": given})
        assert session.wait()["sum"] is given and (total == a + b).all()
    for strided in (wide[:, ::2], a[:, ::-1]):
        with pytest.raises(anneal.UnsupportedError, match="make it dense and row-major"):
            session.run({"a": of_gpu(strided), "b": b})
    with pytest.raises(anneal.UnsupportedError, match="GPU 1: copy it to the host; the engine is on"):
        session.run({"a": ForeignMemory(2, 1), "b": b})


def test_samples_in_the_memory_of_a_gpu_are_refused():
    with pytest.raises(anneal.UnsupportedError, match="is in the memory of GPU 0: copy it to the host"):
        anneal.build(convolution(), precision="int8", calibrate=[{"image": ForeignMemory(2, 0)}])


def test_named_outputs_are_written_to_given_arrays():
    session = anneal.build(adding()).session()
    a, b = np.ones((2, 4), "float32"), np.full((2, 4), 3, "float32")
    total = np.full((2, 4), -1, "float32")
    for names in (None, ["sum"]):
        total[:] = -1
        assert session.run(names, {"a": a, "b": b}, out={"sum": total})[0] is total and (total == 4).all()
    with pytest.raises(anneal.InvalidArgumentError, match='there is no output "q"') as caught:
        session.run(["q"], {"a": a, "b": b})
    assert caught.value.port == "q"
    with pytest.raises(TypeError, match="3 arrays are given for 2 outputs"):
        session(a, b, out=(total, None, total))


def test_an_array_may_change_the_dict_that_holds_it():
    session = anneal.build(adding()).session()
    inputs = {}

    class Popping:
        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            inputs.pop("a", None)
            gc.collect()
            return self.array.__dlpack__(**options)

    b = np.ones((2, 4), "float32")
    inputs.update(a=Popping(np.full((2, 4), 3, "float32")), b=b)
    assert (session.run(inputs)["sum"] == 4).all()


def test_bits_of_bfloat16_have_16_bits():
    session = anneal.build(copying("bfloat16", [3, 4])).session()

    class Forged:
        dtype = np.dtype(ml_dtypes.bfloat16)
        __array_interface__ = {}

        def view(self, dtype):
            return np.zeros((3, 4), "uint8")

    with pytest.raises(TypeError, match="not an array of numbers"):
        session(Forged())
