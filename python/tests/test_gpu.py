"""Engines on an NVIDIA GPU, with arrays of torch in its memory. ANNEAL_TEST_DEVICE=cuda runs these tests."""

import os

import anneal
import numpy as np
import pytest
from models import adding, convolution

torch = pytest.importorskip("torch")
if os.environ.get("ANNEAL_TEST_DEVICE") != "cuda":
    pytest.skip("ANNEAL_TEST_DEVICE does not name a GPU", allow_module_level=True)


def build(model, **options):
    return anneal.build(model, target="sm_{}{}".format(*torch.cuda.get_device_capability()), device="cuda", **options)


def test_tensors_of_the_gpu_are_read_and_written_in_place():
    session = build(adding((2, 4))).session()
    a, b = torch.ones(2, 4, device="cuda"), torch.arange(8.0, device="cuda").reshape(2, 4)
    total = torch.zeros(2, 4, device="cuda")
    for _ in range(4):  # the third run replays a graph
        a += 1
        torch.cuda.synchronize()
        outputs = session.run({"a": a, "b": b}, out={"sum": total})
        assert outputs["sum"] is total and torch.equal(total, a + b)
        assert np.array_equal(outputs["product"], (a * b).cpu().numpy())
    assert session.copied_inputs == 0 and session.run_warnings == []


def test_other_addresses_at_each_run():
    session = build(adding((2, 4))).session()
    for index in range(12):
        a, b = torch.randn(2, 2, 4, device="cuda")
        torch.cuda.synchronize()
        total = torch.empty(2, 4, device="cuda")
        session.run({"a": a, "b": b}, out={"sum": total})
        assert torch.equal(total, a + b), index


@pytest.mark.parametrize("own_stream", [False, True])
def test_runs_are_ordered_with_a_stream_of_torch(own_stream):
    """What torch computes before on the stream is what a run reads; nobody waits between."""
    session = build(adding((512, 512))).session()
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        x = torch.eye(512, device="cuda")
        total = torch.zeros(512, 512, device="cuda")
        product = torch.zeros(512, 512, device="cuda")
        for _ in range(6):
            for _ in range(20):
                x = x @ torch.eye(512, device="cuda") + 0.5
            session.enqueue({"a": x, "b": x}, stream, out={"sum": total, "product": product})
            doubled = total * 2
            session.wait()
            assert torch.equal(doubled, 4 * x) and torch.equal(product, x * x)


def test_a_network_with_images_of_the_gpu():
    model = convolution(size=64)
    engine = build(model, shapes=(4, 3, 64, 64))
    image = torch.randn(4, 3, 64, 64, device="cuda")
    torch.cuda.synchronize()
    scores = engine.session()(image)[0]
    expected = anneal.build(model).session()(image.cpu().numpy())[0]
    assert np.allclose(np.asarray(scores), expected, atol=1e-3)


def test_tensors_that_a_run_cannot_take():
    session = build(adding((2, 4))).session()
    dense = torch.zeros(2, 4, device="cuda")
    with pytest.raises(anneal.UnsupportedError, match="make it dense and row-major"):
        session.run({"a": torch.zeros(2, 8, device="cuda")[:, ::2], "b": dense})
    on_the_cpu = anneal.build(adding((2, 4))).session()
    with pytest.raises(anneal.UnsupportedError, match="is in the memory of GPU 0"):
        on_the_cpu.run({"a": dense, "b": dense})


def test_torch_compile_falls_back_to_eager():
    import anneal.torch  # noqa: F401

    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).cuda().eval()
    x = torch.randn(2, 8, device="cuda")
    with torch.no_grad():
        assert torch.allclose(torch.compile(module, backend="anneal")(x), module(x))


def test_graphs_of_torch_are_left_alone():
    """An engine shares the primary context with torch, whose own captures and streams go on."""
    session = build(adding((2, 4))).session()
    x = torch.ones(2, 4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        y = x * 2
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = x * 2
    x += 1
    graph.replay()
    torch.cuda.synchronize()
    assert (session.run({"a": x, "b": x})["sum"] == 4).all() and (y == 4).all()
