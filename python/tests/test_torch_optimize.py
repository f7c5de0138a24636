"""anneal.torch.optimize(): structure of arguments and outputs, precisions, sizes, files."""

import dataclasses
import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="torch.onnx needs onnxscript")

import anneal.torch  # noqa: E402
import torch_models  # noqa: E402
from anneal.torch import counters, optimize  # noqa: E402
from test_torch import close, images  # noqa: E402


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNEAL_CACHE_DIR", str(tmp_path / "cache"))
    torch.manual_seed(0)
    anneal.torch._cache._engines.clear()
    counters.clear()
    with torch.no_grad():
        yield


def test_a_module():
    module, x = torch_models.Small().eval(), images()
    fast = optimize(module, x)
    close(fast(x), module(x))
    assert isinstance(fast, torch.nn.Module) and fast.report.plans[0].steps and not list(fast.parameters())
    assert [info.name for info in fast.engine.inputs] == ["x"] and "Small" in repr(fast)


def test_one_engine_for_batches_of_1_to_8():
    module = torch_models.resnet18().eval()
    fast = optimize(module, images(4, 32), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=8)},))
    for batch in range(1, 9):
        x = images(batch, 32)
        close(fast(x), module(x))
    assert counters.builds == 1
    with pytest.raises(anneal.InvalidArgumentError, match="x"):
        fast(images(9, 32))


@dataclasses.dataclass
class Answer:
    scores: torch.Tensor
    best: torch.Tensor
    name: str


torch.export.register_dataclass(Answer, serialized_type_name="test_torch_optimize.Answer")


class Structured(torch.nn.Module):
    def forward(self, pair, *, scale=2, bias=None, flag: bool = False):
        a, b = pair["a"], pair["b"]
        y = a * scale + b
        if bias is not None:
            y = y + bias
        return {"y": (y, a), "none": None, "answer": Answer(y.softmax(-1), y.argmax(-1), "it"), "flag": flag}


def test_structures():
    module = Structured()
    pair = {"a": torch.randn(2, 3), "b": torch.randn(2, 3)}
    fast = optimize(module, (pair,), example_kwargs={"bias": torch.randn(3), "scale": 3})
    pair, bias = {"a": torch.randn(2, 3), "b": torch.randn(2, 3)}, torch.randn(3)
    got = fast(pair, scale=3, bias=bias)
    close(got, module(pair, bias=bias, scale=3))
    assert isinstance(got["answer"], Answer) and got["y"][1] is pair["a"]
    close(fast(pair=pair, bias=bias, scale=3, flag=False), module(pair, bias=bias, scale=3))
    with pytest.raises(ValueError, match="exported with 3"):
        fast(pair, scale=4, bias=bias)
    with pytest.raises(TypeError, match="flag"):
        fast(pair, scale=3, bias=bias, flag=True)
    with pytest.raises(anneal.InvalidArgumentError, match="bias"):
        fast(pair, scale=3, bias=None)
    with pytest.raises(TypeError, match="structure"):
        fast([pair["a"], pair["b"]], scale=3, bias=bias)
    with pytest.raises(TypeError):
        fast(pair, bias=bias, scale=3, unknown=1)


def test_a_transformer_by_name():
    pytest.importorskip("transformers")
    module = torch_models.bert().eval()
    named = {"input_ids": torch.randint(0, 1000, (2, 7)), "attention_mask": torch.ones(2, 7, dtype=torch.int64)}
    fast = optimize(module, (), example_kwargs=named)
    got, wanted = fast(**named), module(**named)
    assert type(got) is type(wanted)
    close(got.last_hidden_state, wanted.last_hidden_state)


def test_outputs_that_are_views():
    class Views(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            return x.chunk(3), y.t(), y[1:], x

    x = torch.randn(3, 4)
    fast = optimize(Views(), x)
    got, wanted = fast(x), Views()(x)
    close(got, wanted)
    assert got[3] is x
    got[1].zero_()
    assert (got[2] == 0).all()


def test_attention_is_one_step():
    class Attention(torch.nn.Module):
        def forward(self, query, key, value):
            return torch.nn.functional.scaled_dot_product_attention(query, key, value)

    query, key, value = torch.randn(3, 2, 4, 8, 16)
    fast = optimize(Attention(), (query, key, value))
    assert [step.op for step in fast.report.plans[0].steps] == ["Attention"]
    close(fast(query, key, value), Attention()(query, key, value))


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_precisions(precision):
    module, x = torch_models.Small().eval(), images()
    close(optimize(module, x, precision)(x), module(x), 2e-2)


def test_int8():
    module = torch_models.UNet().eval()
    samples = [images(2, 32) for _ in range(4)]
    fast = optimize(module, samples[0], precision=("f16", "int8"), calibrate=samples)
    got, wanted = fast(samples[1]), module(samples[1])
    assert (got - wanted).norm() < 0.1 * wanted.norm()
    precisions = {decision.text for decision in fast.report.decisions}
    assert any("int8" in text or "i8" in text for text in precisions)
    # The same samples: the engine of the cache. Others: another engine.
    anneal.torch._cache._engines.clear()
    optimize(module, samples[0], precision=("f16", "int8"), calibrate=samples)
    assert (counters.builds, counters.cache_hits) == (1, 1)
    optimize(module, samples[0], precision=("f16", "int8"), calibrate=samples[1:])
    assert counters.builds == 2


def test_weights_beyond_the_limit_of_protobuf(monkeypatch):
    monkeypatch.setattr(anneal.torch._cache, "_MOST_IN_MEMORY", 100)  # they go through a file
    module, x = torch_models.Small().eval(), images()
    close(optimize(module, x)(x), module(x))


def test_old_engines_are_deleted(monkeypatch):
    module, x = torch_models.Small().eval(), images()
    for precision, wanted in ((None, 1), ("f16", 2), ("bf16", 2)):
        optimize(module, x, precision)
        sizes = [path.stat().st_size for path in anneal.torch.cache_folder().glob("*.engine")]
        assert len(sizes) == wanted
        if wanted == 2:
            monkeypatch.setattr(anneal.torch._cache, "MOST_BYTES", sum(sizes) + 5000)  # less than one more engine
    assert len(list(anneal.torch.cache_folder().glob("*.json"))) == 2


def test_save(tmp_path):
    module, x = torch_models.Small().eval(), images()
    optimize(module, x).save(tmp_path / "small.engine")
    torch.testing.assert_close(torch.from_numpy(anneal.load(tmp_path / "small.engine").session()(x)), module(x))


def test_refusals():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    class Random(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    class Gamma(torch.nn.Module):
        def forward(self, x):
            return torch.lgamma(x)

    for module, reason in ((Counting(), "buffer calls"), (Random(), "random"), (Gamma(), "lgamma")):
        with pytest.raises(anneal.UnsupportedError, match=reason):
            optimize(module, torch.ones(3))
    fast = optimize(torch_models.Small().eval(), images())
    with torch.enable_grad(), pytest.raises(RuntimeError, match="no gradients"):
        fast(images().requires_grad_())
    with pytest.raises(TypeError, match='there is no option "fast"'):
        optimize(torch_models.Small().eval(), images(), fast=True)


def test_threads():
    module, x = torch_models.Small().eval(), [images() for _ in range(8)]
    wanted, fast = [module(each) for each in x], optimize(module, x[0])
    got = [None] * 8

    def work(index):
        with torch.no_grad():
            for _ in range(50):
                got[index] = fast(x[index])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close(got, wanted)
