"""Arrays of other libraries, by DLPack."""

import runpy
from pathlib import Path

import anneal
import numpy as np
import pytest
from conftest import ROOT
from models import adding, convolution, copying

torch = pytest.importorskip("torch")


def test_torch_in_and_out():
    session = anneal.build(adding()).session()
    a, b = torch.ones(2, 4), torch.arange(8.0).reshape(2, 4)
    out = torch.zeros(2, 4)
    outputs = session.run({"a": a, "b": b}, out={"sum": out})
    assert outputs["sum"] is out and torch.equal(out, a + b) and session.copied_inputs == 0
    assert np.array_equal(outputs["product"], (a * b).numpy())


def test_torch_strides():
    session = anneal.build(adding()).session()
    a = torch.arange(16.0).reshape(4, 4)
    out = torch.zeros(4, 8)
    session.run({"a": a.t(), "b": a[:, :1].expand(4, 4)}, out={"sum": out[:, ::2]})
    assert torch.equal(out[:, ::2], a.t() + a[:, :1]) and session.copied_inputs == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "int64", "uint8"])
def test_torch_types(dtype):
    session = anneal.build(copying(dtype, [3, 4])).session()
    x = (torch.arange(12).reshape(3, 4) % 2).to(getattr(torch, dtype))
    out = torch.empty(6, 4, dtype=x.dtype)
    session(x, out=out)
    assert torch.equal(out, torch.cat([x, x]))


def test_a_tensor_with_a_gradient_is_read():
    session = anneal.build(adding()).session()
    assert (session(torch.ones(1, 4, requires_grad=True), torch.ones(1, 4))[0] == 2).all()


def test_a_negated_view():
    """DLPack cannot say that a tensor's elements are negated when they are read."""
    session = anneal.build(adding()).session()
    negated = torch.full((2, 4), 3j).conj().imag
    assert negated.is_neg() and (session(negated, torch.ones(2, 4))[0] == -2).all() and session.copied_inputs == 1


def test_tensors_without_memory_that_can_be_read():
    session, one = anneal.build(adding()).session(), torch.ones(2, 4)
    with pytest.raises(BufferError):
        session(one.to_sparse(), one)
    with pytest.raises(BufferError):
        session(torch.ones(2, 4, device="meta"), one)
    with pytest.raises(anneal.InvalidArgumentError, match="no tensor has"):
        session(one.to(torch.float8_e4m3fn), one)
    with pytest.raises(anneal.InvalidArgumentError, match="may share memory"):
        session(one, one, out=(torch.zeros(1, 4).expand(2, 4), None))
    assert (session(one, one)[0] == 2).all()


def test_arrays_of_jax_are_not_written():
    jax = pytest.importorskip("jax.numpy")
    session, one = anneal.build(adding()).session(), np.ones((1, 4), "float32")
    total = jax.zeros((1, 4), "float32")
    with pytest.raises(TypeError, match="read-only"):
        session(one, one, out=(total, None))
    assert (total == 0).all()
    with pytest.raises(TypeError, match="read-only"):
        anneal.build(copying("bfloat16", [1, 4])).session()(jax.zeros((1, 4), "bfloat16"), out=jax.zeros((2, 4), "bfloat16"))


@pytest.mark.parametrize("memory", ["numpy", "torch", "jax"])
def test_results_go_to_others_without_copies(memory):
    """An output of NumPy is memory that torch and JAX take by DLPack."""
    total = anneal.build(adding()).session()(torch.ones(1, 4), torch.ones(1, 4))[0]
    if memory == "torch":
        assert torch.from_dlpack(total).data_ptr() == total.ctypes.data
    elif memory == "jax":
        assert (pytest.importorskip("jax.numpy").from_dlpack(total) == 2).all()


def test_jax():
    jax = pytest.importorskip("jax.numpy")
    session = anneal.build(adding()).session()
    a = jax.arange(8, dtype="float32").reshape(2, 4)
    assert np.array_equal(session(a, a)[0], 2 * np.asarray(a)) and session.copied_inputs == 0


def test_what_an_exporter_says():
    class OnGpu:
        """A tensor whose exporter fails: its own words reach the caller."""
        def __dlpack__(self, **options):
            raise BufferError("there is no GPU")

    with pytest.raises(BufferError, match="no GPU"):
        anneal.build(adding()).session()(OnGpu(), np.ones((1, 4), "float32"))


def test_samples_of_torch():
    data = torch.utils.data.TensorDataset(torch.randn(8, 1, 3, 16, 16))
    by_torch = anneal.calibrate(convolution(), [image for image, in data])
    assert by_torch.table == anneal.calibrate(convolution(), data.tensors[0][:, 0].numpy()).table


def test_sample_from_torch_to_a_frontier():
    pytest.importorskip("onnxscript")
    runpy.run_path(str(ROOT / "samples/python/frontier.py"))
    assert Path("frontier.svg").read_text().startswith("<svg") and Path("tuned.engine").exists()
