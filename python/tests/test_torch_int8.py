"""int8 in torch.compile(backend="anneal")."""

import inspect

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="torch.onnx needs onnxscript")

import anneal.torch  # noqa: E402
import torch_models  # noqa: E402


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNEAL_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    anneal.torch._cache._engines.clear()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def images():
    return torch.randn(2, 3, 16, 16)


def test_int8():
    """Samples are an option: tensors of the only argument, or dicts of the arguments by name."""
    model, x = torch_models.Small().eval(), images()
    samples = [torch.randn(4, *x.shape[1:], generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    expected = model(x)
    name = next(iter(inspect.signature(model.forward).parameters))
    for given in (samples, (each for each in samples), [(each,) for each in samples], [{name: each} for each in samples]):
        torch._dynamo.reset()
        options = {"precision": "int8", "calibrate": given, "fallback": False, "cache": False}
        fast = torch.compile(model, backend="anneal", options=options)
        assert (fast(x) - expected).abs().max() < 0.1 * expected.abs().max()
        engine, = anneal.torch._cache._engines.values()  # all of them are one: samples decide, not their form
        assert any("is int8" in decision.text for decision in engine.report.decisions)
    torch._dynamo.reset()
    other = {**options, "calibrate": [10 * each for each in samples]}
    torch.compile(model, backend="anneal", options=other)(x)
    assert len(anneal.torch._cache._engines) == 2


def test_int8_of_two_arguments():
    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.product = torch.nn.Linear(8, 8)

        def forward(self, left, right):
            return self.product(right) + left  # the graph reads `right` first

    both = Both().eval()
    samples = [{"left": torch.randn(2, 8), "right": torch.randn(2, 8)} for _ in range(4)]
    options = {"precision": "int8", "calibrate": samples, "fallback": False, "cache": False}
    fast = torch.compile(both, backend="anneal", options=options)
    x = samples[0]
    assert (fast(**x) - both(**x)).abs().max() < 0.2
    for wrong, said in (([(x["left"], x["right"])], "give each sample as a dict"), ([{"left": x["left"]}], "lacks the input right"),
                        ([{"left": x["left"], "right": x["right"].double()}], "float64 of 2 axes"), ([], "calibrate has none")):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=said):
            torch.compile(both, backend="anneal", options={**options, "calibrate": wrong})(**x)


def test_int8_without_samples():
    for precision in ("int8", ["bf16", "int8"]):
        torch._dynamo.reset()
        with pytest.raises(Exception, match='precision="int8" needs samples.*calibrate='):
            torch.compile(torch_models.Small().eval(), backend="anneal", options={"precision": precision})(images())


def test_int8_after_a_graph_break():
    """The graph that follows has no samples: they are of the function's arguments."""
    class Cut(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x):
            x = self.first(x)
            torch._dynamo.graph_break()
            return self.second(x)

    cut, x = Cut().eval(), torch.randn(2, 8)
    options = {"precision": "int8", "calibrate": [x], "cache": False}
    with pytest.raises(Exception, match="what follows a graph break"):
        torch.compile(cut, backend="anneal", options={**options, "fallback": False})(x)
    torch._dynamo.reset()
    before = anneal.torch.counters.fallbacks
    assert torch.allclose(torch.compile(cut, backend="anneal", options=options)(x), cut(x), atol=0.1)
    assert anneal.torch.counters.fallbacks == before + 1  # the second half
