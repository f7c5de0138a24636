"""torch.compile(backend="anneal"): results, engines, fallbacks, weights."""

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript", reason="torch.onnx needs onnxscript")

import anneal.torch  # noqa: E402
import torch_models  # noqa: E402
from anneal.torch import counters  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNEAL_CACHE_DIR", str(tmp_path / "cache"))
    torch._dynamo.reset()
    anneal.torch._cache._engines.clear()
    torch.manual_seed(0)
    counters.clear()
    with torch.no_grad():
        yield


def close(got, wanted, tolerance=1e-4):
    got_leaves, got_structure = pytree.tree_flatten(got)
    leaves, structure = pytree.tree_flatten(wanted)
    assert got_structure == structure
    for a, b in zip(got_leaves, leaves):
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
        else:
            assert a == b and type(a) is type(b)


def compiled(module, **options):
    """With fallback=False: a test of an engine must not pass in eager mode."""
    return torch.compile(module, backend="anneal", options={"fallback": False, **options})


def images(batch=2, size=16):
    return torch.randn(batch, 3, size, size)


MODELS = {
    "resnet18": (torch_models.resnet18, lambda: (images(2, 64),)),
    "unet": (torch_models.UNet, lambda: (images(2, 32),)),
    "encoder": (torch_models.encoder, lambda: (torch.randn(3, 9, 64),)),
    "bert": (torch_models.bert, lambda: (torch.randint(0, 1000, (3, 9)), torch.ones(3, 9, dtype=torch.int64))),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    if name == "bert":
        pytest.importorskip("transformers")
    make, inputs = MODELS[name]
    module, args = make().eval(), inputs()
    run = compiled(module)
    close(run(*args), module(*args))
    assert counters.builds == 1 and counters.fallbacks == 0
    for _ in range(3):
        args = inputs()
        close(run(*args), module(*args))
    assert (counters.builds, counters.cache_hits, counters.reused) == (1, 0, 0)


def test_the_backend_is_registered_without_an_import():
    program = "import torch; print('anneal' in torch._dynamo.list_backends(), 'anneal.torch' in __import__('sys').modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == ["True", "False"]


SECOND = """
import json, sys, torch
sys.path.append(sys.argv[1])
import torch_models, anneal.torch
torch.manual_seed(0)
module = torch_models.Small().eval()
with torch.inference_mode():
    x = torch.ones(2, 3, 16, 16)
    y = torch.compile(module, backend="anneal", options={"fallback": False})(x)
    optimized = anneal.torch.optimize(module, x)
    assert torch.allclose(y, module(x), atol=1e-5) and torch.allclose(optimized(x), y, atol=1e-5)
assert optimized.report.plans[0].steps
print(json.dumps(vars(anneal.torch.counters)))
"""


def test_a_second_process_builds_nothing():
    def count():
        command = [sys.executable, "-c", SECOND, str(Path(__file__).parent)]
        return json.loads(subprocess.check_output(command, text=True, env=os.environ).splitlines()[-1])

    first, second = count(), count()
    assert first["builds"] == 2 and first["cache_hits"] == 0
    assert second["builds"] == 0 and second["cache_hits"] == 2
    assert sorted(path.suffix for path in anneal.torch.cache_folder().iterdir()) == [".engine"] * 2 + [".json"] * 2


def test_a_damaged_file_of_the_cache_is_built_again():
    module, x = torch_models.Small().eval(), images()
    close(compiled(module)(x), module(x))
    engine, = anneal.torch.cache_folder().glob("*.engine")
    torch._dynamo.reset()
    anneal.torch._cache._engines.clear()
    engine.write_bytes(engine.read_bytes()[:100])
    close(compiled(module)(x), module(x))
    assert counters.builds == 2


def test_no_cache():
    module, x = torch_models.Small().eval(), images()
    close(compiled(module, cache=False)(x), module(x))
    assert not anneal.torch.cache_folder().exists()


def test_sizes_of_the_batch_share_an_engine():
    module = torch_models.resnet18().eval()
    x = images(4, 32)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=8)
    run = compiled(module)
    close(run(x), module(x))
    for batch in range(2, 9):
        x = images(batch, 32)
        close(run(x), module(x))
    assert counters.builds == 1
    # torch.compile specializes sizes of 1.
    x = images(1, 32)
    close(run(x), module(x))
    assert counters.builds == 2


def test_bert_of_any_batch_and_length():
    pytest.importorskip("transformers")
    module = torch_models.bert(1, 64).eval()
    run = torch.compile(module, backend="anneal", dynamic=True, options={"fallback": False})
    for batch, length in ((2, 5), (3, 9), (4, 6)):
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[0, -2:] = 0
        args = torch.randint(0, 1000, (batch, length)), mask
        close(run(*args), module(*args))
    assert counters.builds == 1


def test_sizes_that_become_open():
    """Without marks, torch leaves a size open when it changes."""
    module = torch_models.Small().eval()
    run = compiled(module)
    for batch in (3, 4, 5, 6, 12):  # torch's own convolution has another rule from 16 on, and another graph
        x = images(batch, 8)
        close(run(x), module(x))
    assert counters.builds == 2


def test_a_number_that_changes_shapes():
    def function(x, times):
        return x.repeat(times, 1).sum(1), times * 2

    run = torch.compile(function, backend="anneal", dynamic=True, options={"fallback": False})
    for times in (2, 3, 5, 3):
        x = torch.randn(4, 6)
        close(run(x, times), function(x, times))
    assert counters.builds == 3


def test_views_of_open_sizes():
    def function(x):
        return x.view(x.shape[0] * 2, -1).t(), x.shape[0] + 1, x.mean((0, 2), keepdim=True).expand(x.shape[0], -1, -1)

    run = torch.compile(function, backend="anneal", dynamic=True, options={"fallback": False})
    for batch in (2, 3, 7):
        x = torch.randn(batch, 4, 6)
        close(run(x), function(x))


def test_dtypes():
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        module = torch_models.Small().eval().to(dtype)
        x = images().to(dtype)
        close(compiled(module)(x), module(x), 3e-2)


def test_integers_booleans_and_numbers():
    def function(index, mask, scalar, table, nothing, factor):
        picked = table[index] * scalar * factor
        return {"picked": torch.where(mask[:, None], picked, -picked), "count": mask.sum(), "next": index + 1,
                "nothing": nothing, "factor": factor, "any": mask.any()}

    run = compiled(function)
    args = torch.tensor([3, 1, 0]), torch.tensor([True, False, True]), torch.tensor(2.5), torch.randn(4, 5), None, 3
    close(run(*args), function(*args))


def test_a_graph_of_integers_only():
    def function(x):
        return (x // 3) * 2 % 5, x & 3, (x > 2).to(torch.uint8)

    x = torch.arange(-7, 20)
    close(compiled(function)(x), function(x))


def test_empty_graphs_and_outputs_that_are_inputs():
    def function(x, y):
        return x, (y, x), x + y, 7

    x, y = torch.randn(3), torch.randn(3)
    first, (second, third), total, seven = compiled(function)(x, y)
    assert first is x and second is y and third is x and seven == 7
    close(total, x + y)
    assert compiled(lambda x: (x, None))(x) == (x, None)
    assert compiled(lambda x: x.view(3, 1))(x).data_ptr() == x.data_ptr()


def test_outputs_that_share_memory():
    def function(x):
        y = x * 2
        return y, y.t(), y[0], x.t()

    x = torch.randn(4, 5)
    got = compiled(function)(x)
    close(got, function(x))
    got[0].zero_()
    assert (got[1] == 0).all() and (got[2] == 0).all()
    assert got[3].data_ptr() == x.data_ptr()


def test_inputs_and_buffers_that_are_written():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.fc = torch.nn.Linear(3, 3)

        def forward(self, x):
            self.calls.add_(1)
            x.mul_(2)
            return self.fc(x) + self.calls

    module = Counting()
    run = compiled(module)
    for call in range(1, 4):
        x = torch.randn(2, 3)
        y = x.clone()
        got = run(y)
        assert torch.equal(y, 2 * x) and module.calls == call
        close(got, module.fc(y) + call)
    assert counters.builds == 1


def test_a_strided_input_is_read_in_place():
    sessions = []
    make = anneal.Engine.session
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anneal.Engine, "session", lambda *args, **named: sessions.append(make(*args, **named)) or sessions[-1])
        patch.setattr(torch, "from_numpy", lambda array: pytest.fail("an output was not given"))
        x = images(4, 32)[::2, :, ::2, 1::3].to(memory_format=torch.channels_last)
        module = torch_models.Small().eval()
        close(compiled(module)(x), module(x))
    assert [session.copied_inputs for session in sessions] == [0]


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_attention_with_rows_that_see_nothing(dtype):
    def function(query, key, value, mask):
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)

    query, key, value = torch.randn(3, 2, 4, 8, 16)
    mask = torch.rand(2, 1, 8, 8) > 0.5
    mask[0, 0, 3] = False
    if dtype == "float32":
        mask = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    got = compiled(function)(query, key, value, mask)
    close(got, function(query, key, value, mask))
    assert (got[0, :, 3] == 0).all()


def test_causal_attention():
    def function(x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    x = torch.randn(2, 4, 8, 16)
    close(compiled(function)(x), function(x))


def test_attention_of_groups_of_heads():
    def function(query, key):
        return torch.nn.functional.scaled_dot_product_attention(query, key, key, enable_gqa=True)

    query, key = torch.randn(2, 4, 8, 16), torch.randn(2, 2, 9, 16)
    close(compiled(function)(query, key), function(query, key))


def test_norms_by_the_batch():
    """torch.onnx itself takes the running means."""
    by_batch, by_instance = torch.nn.BatchNorm2d(3), torch.nn.InstanceNorm2d(3).eval()
    again = torch.nn.BatchNorm2d(3)
    x = torch.randn(2, 3, 4, 4) * 3 + 1
    close(compiled(lambda x: (by_batch(x), by_instance(x)))(x), (again(x), by_instance(x)))
    close(dict(by_batch.state_dict()), dict(again.state_dict()))


def test_graph_breaks():
    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch_models.Small(), torch.nn.Linear(4, 2)

        def forward(self, x):
            y = self.first(x)
            torch._dynamo.graph_break()
            return self.second(torch.relu(y))

    module = Broken().eval()
    x = images()
    close(compiled(module)(x), module(x))
    assert counters.builds == 2


def test_autocast():
    module, x = torch_models.Small().eval(), images()
    run = compiled(module)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(run(x), module(x), 3e-2)
    close(run(x), module(x))


def test_threads():
    module, x = torch_models.Small().eval(), [images() for _ in range(8)]
    wanted = [module(each) for each in x]
    run = compiled(module)
    run(x[0])  # torch.compile itself breaks where threads compile one module at the same time
    failures = []

    def work(index):
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(run(x[index]), wanted[index], atol=1e-5):
                    failures.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and counters.builds == 1


# Weights.

def changed_in_place(module):
    module.fc.weight.mul_(2)


def changed_by_state(module):
    module.load_state_dict({name: value * 3 for name, value in module.state_dict().items()})


def changed_by_data(module):
    module.fc.weight.data = torch.randn(4, 8)


def changed_by_parameter(module):
    module.fc.weight = torch.nn.Parameter(torch.randn(4, 8))


@pytest.mark.parametrize("change", [changed_in_place, changed_by_state, changed_by_data, changed_by_parameter])
def test_weights_that_change(change):
    module, x = torch_models.Small().eval(), images()
    run = compiled(module)
    close(run(x), module(x))
    before = run(x)
    change(module)
    close(run(x), module(x))
    assert not torch.allclose(run(x), before)
    assert counters.builds == 2


def test_weights_that_change_at_every_call():
    module, x = torch_models.Small().eval(), images()
    run = torch.compile(module, backend="anneal")
    for _ in range(8):
        close(run(x), module(x))
        module.fc.bias.add_(1)
    assert counters.builds <= 4
    builds = counters.builds
    for _ in range(4):  # they stay: an engine again
        close(run(x), module(x))
    assert counters.builds == builds + 1


def test_weights_that_torch_does_not_count(caplog):
    with torch.inference_mode():
        module, x = torch_models.Small().eval(), images()
        run = compiled(module)
        close(run(x), module(x))
        module.fc.bias.add_(1)
        close(run(x), module(x))
    assert counters.builds == 1 and "made in inference mode" in caplog.text


def test_modules_of_one_class():
    first, second = torch_models.Small().eval(), torch_models.Small().eval()
    x = images()
    run = compiled(lambda module, x: module(x))
    for _ in range(2):
        close(run(first, x), first(x))
        close(run(second, x), second(x))
    assert counters.builds == 2


# Fallbacks.

def test_gradients(caplog):
    module, x = torch_models.Small().eval(), images()
    run = torch.compile(module, backend="anneal")
    with torch.enable_grad():
        run(x).sum().backward()
    assert module.fc.weight.grad is not None
    assert counters.fallbacks == 1 and "gradients may be wanted" in caplog.text
    close(run(x), module(x))
    assert counters.builds == 1
    module.requires_grad_(False)
    with torch.enable_grad():
        close(run(x), module(x))
    assert counters.fallbacks == 1


REFUSED = {
    "bernoulli": (lambda x: torch.bernoulli(x.sigmoid()) + x, "aten.bernoulli"),
    "dropout": (lambda x: torch.nn.functional.dropout(x, 0.5, training=True) + 1, "aten.native_dropout.default is in training"),
    "lgamma": (lambda x: torch.lgamma(x.abs() + 1), "lgamma"),
    "complex": (lambda x: torch.fft.fft(x), "complex"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_fallbacks_name_the_reason(name, caplog):
    function, reason = REFUSED[name]
    x = torch.randn(4, 5)
    run = torch.compile(function, backend="anneal")
    torch.manual_seed(1)
    got = run(x)
    torch.manual_seed(1)
    assert torch.equal(got, function(x))
    assert counters.fallbacks == 1 and reason in caplog.text
    caplog.clear()
    run(x)
    assert counters.fallbacks == 1 and not caplog.records
    torch._dynamo.reset()
    with pytest.raises(Exception, match=reason) as raised:
        compiled(function)(x)
    assert isinstance(raised.value, anneal.Error) or isinstance(raised.value.__cause__, anneal.Error)


def test_what_the_build_refuses(caplog):
    """The graph runs in eager mode, with Anneal's reason."""
    module, x = torch_models.Small().eval(), images()
    run = torch.compile(module, backend="anneal", options={"max_memory": 1})
    close(run(x), module(x))
    assert "runs in eager mode: Anneal: " in caplog.text


def test_a_run_that_fails_is_eager_in_this_call(caplog):
    module, x = torch_models.Small().eval(), images()
    run = torch.compile(module, backend="anneal", options={"fallback": True})
    close(run(x), module(x))
    with pytest.MonkeyPatch.context() as patch:
        def fail(*args, **named):
            raise anneal.OutOfMemoryError("there is no memory")
        patch.setattr(anneal.Session, "run", fail)
        close(run(x), module(x))
    assert "there is no memory" in caplog.text and counters.fallbacks == 1
    close(run(x), module(x))
    assert counters.fallbacks == 1


def test_without_onnxscript():
    program = """if True:
        import sys, torch
        sys.modules["onnxscript"] = None
        print(torch.compile(lambda x: x + 1, backend="anneal")(torch.ones(2)).tolist())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["[2.0,", "2.0]"] and "torch.onnx lacks a package" in done.stderr and "onnxscript" in done.stderr


def test_unknown_options():
    with pytest.raises(Exception, match=r'there is no option "presicion": did you mean "precision"'):
        torch.compile(torch_models.Small().eval(), backend="anneal", options={"presicion": "f16"})(images())


def test_precision():
    module, x = torch_models.Small().eval(), images()
    run = compiled(module, precision="bf16")
    close(run(x), module(x), 3e-2)
    assert counters.builds == 1
    torch._dynamo.reset()
    close(compiled(module)(x), module(x))
    assert counters.builds == 2


def test_the_log_says_a_reason_once(caplog):
    caplog.set_level(logging.INFO, "anneal.torch")
    run = torch.compile(lambda x: torch.lgamma(x), backend="anneal")
    for size in (3, 4):
        torch._dynamo.reset()
        run(torch.ones(size))
    assert all(record.name == "anneal.torch" for record in caplog.records if "eager mode" in record.getMessage())


def test_running_means_that_torch_updates_without_a_version():
    module = torch.nn.BatchNorm1d(4)
    compiled = torch.compile(module, backend="anneal")
    x = torch.randn(16, 4) * 3 + 5
    with torch.no_grad():
        for _ in range(3):
            module.eval()
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
            module.train()
            module(x)


def test_negated_views():
    x = torch.complex(torch.randn(3), torch.randn(3)).conj().imag
    assert x.is_neg()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(lambda x: x + 1, backend="anneal")(x), x + 1)


def test_integer_arguments_of_many_values(caplog):
    compiled = torch.compile(lambda x, i: x * 2 + i, backend="anneal", dynamic=True)
    counters.clear()
    with torch.no_grad():
        for i in range(3, 30):
            torch.testing.assert_close(compiled(torch.ones(3), i), torch.full((3,), 2.0 + i))
    assert counters.builds + counters.cache_hits + counters.reused <= 12


@pytest.mark.parametrize("function", [
    lambda x: torch.nn.functional.avg_pool2d(x, 2, divisor_override=1),
    lambda x: torch.logaddexp(x, x - 100),
    lambda x: torch.nn.functional.interpolate(x, size=(2, 2), mode="bilinear", antialias=True, align_corners=True),
    lambda x: torch.zeros(1, 1, 4, 4).scatter_reduce(3, torch.zeros(1, 1, 4, 4, dtype=torch.int64), x, "mean"),
])
def test_operators_that_the_exporter_translates_wrongly(function):
    x = torch.randn(1, 1, 4, 4) * 100
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(function, backend="anneal")(x), function(x))
