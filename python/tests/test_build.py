"""Building, calibrating and tuning."""

import os
import signal
import threading
import time

import anneal
import numpy as np
import onnx
import pytest
from models import adding, convolution, model_of, onnx_runtime

IMAGES = np.random.default_rng(0).normal(size=(12, 3, 16, 16)).astype("float32")


def test_from_path_bytes_and_proto(tmp_path):
    model = convolution()
    onnx.save(model, tmp_path / "model.onnx")
    built = [anneal.build(given).to_bytes() for given in
             (tmp_path / "model.onnx", str(tmp_path / "model.onnx"), model.SerializeToString(), model)]
    assert all(each == built[0] for each in built[1:])
    with pytest.raises(TypeError):
        anneal.build(3)


def test_to_a_file(tmp_path):
    engine = anneal.build(convolution(), tmp_path / "a.engine")
    assert engine.path == str(tmp_path / "a.engine")
    expected = onnx_runtime(convolution(), {"image": IMAGES})["scores"]
    in_memory = anneal.build(convolution())
    in_memory.save(tmp_path / "b.engine")
    for each in (engine, in_memory, anneal.load(tmp_path / "b.engine"), anneal.load(in_memory.to_bytes(), device="cpu"),
                 anneal.load(str(tmp_path / "a.engine"), map=False, threads=1)):
        assert np.allclose(each.session()(IMAGES), expected, atol=1e-5)
    assert sorted(os.listdir(tmp_path)) == ["a.engine", "b.engine"]
    assert anneal.load(tmp_path / "a.engine").report is None


def test_external_data(tmp_path):
    onnx.save(convolution(), tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0)
    data = (tmp_path / "model.onnx").read_bytes()
    assert anneal.build(data, folder=tmp_path).session()(IMAGES).shape == (12, 8)
    with pytest.raises(anneal.Error):
        anneal.build(data)


def test_shapes():
    fixed = anneal.build(convolution(), shapes={"image": (2, 3, 16, 16)})
    assert fixed.inputs[0].shape == (2, 3, 16, 16)
    assert anneal.build(convolution(), shapes=(2, 3, 16, 16)).inputs[0].shape == (2, 3, 16, 16)
    ranged = anneal.build(convolution(), shapes={"image": anneal.Shapes((1, 3, 16, 16), (4, 3, 16, 16), (8, 3, 16, 16))})
    assert ranged.inputs[0].max_shape[0] == 8
    with pytest.raises(anneal.InvalidArgumentError, match="the engine expects"):
        ranged.session()(IMAGES)


@pytest.mark.parametrize("sizes", [(1.5, 3, 16, 16), "1x3x16x16", 4, (2**70, 3, 16, 16), (1,) * 9])
def test_sizes_that_are_none(sizes):
    session = anneal.build(convolution()).session()
    for call in (lambda: anneal.build(convolution(), shapes={"image": sizes}), lambda: session.prepare({"image": sizes}),
                 lambda: anneal.build(convolution(), shapes={"image": anneal.Shapes(max=sizes)})):
        with pytest.raises(TypeError, match='the sizes of "image" are a sequence of at most 8 integers, not'):
            call()
    if not isinstance(sizes, tuple):
        with pytest.raises(TypeError, match="the sizes of the input are"):
            anneal.build(convolution(), shapes=sizes)
    assert anneal.build(convolution(), shapes=np.array([2, 3, 16, 16])).inputs[0].shape == (2, 3, 16, 16)


def test_a_list_of_shapes_makes_profiles():
    one, more = anneal.Shapes(opt=(1, 3, 16, 16)), {"image": anneal.Shapes((2, 3, 16, 16), (4, 3, 16, 16), (8, 3, 16, 16))}
    engine = anneal.build(convolution(), shapes=[{"image": one}, more])
    assert [plan.profile for plan in engine.report.plans] == [0, 1]
    assert engine.inputs[0].max_shape == (8, 3, 16, 16) and engine.inputs[0].shape[0] == "N"
    for shape in ((1, 3, 16, 16), (3, 3, 16, 16)):
        image = np.random.default_rng(0).random(shape, "f4")
        alone = anneal.build(convolution(), shapes={"image": shape}).session()
        assert np.allclose(engine.session()(image), alone(image), rtol=1e-5, atol=1e-5)
    with pytest.raises(anneal.Error, match="no profile 2"):
        engine.session(profile=2)
    with pytest.raises(anneal.InvalidArgumentError, match="profile is -1: give None"):
        engine.session(profile=-1)
    with pytest.raises(anneal.Error, match="image"):
        engine.session(profile=0)(np.zeros((2, 3, 16, 16), "f4"))
    fixed = anneal.build(convolution(), shapes=[1, 3, 16, 16])
    assert len(fixed.report.plans) == 1


def test_report():
    report = anneal.build(convolution(), precision="bf16", target="cpu").report
    plan, = report.plans
    assert plan.target.startswith("cpu") and plan.steps[0].kernel.startswith("cpu.")
    assert report.decisions and all(each.stage and each.text for each in report.decisions)
    assert report.self_check.is_compared and report.self_check.outcome
    assert report.engine_bytes > report.weight_bytes > 0 and report.build_milliseconds > 0
    assert any(each.name == "fuse_epilogue" for each in report.passes)
    fields = report.to_dict()
    assert fields["plans"][0]["steps"][0]["kernel"] == plan.steps[0].kernel
    assert not anneal.build(convolution(), precision="bf16", self_check=False).report.self_check.is_compared


def test_options():
    assert any("exact" in str(anneal.inspect(engine.path)) for engine in [anneal.build(convolution(), "e.engine", exact=True)])
    assert anneal.inspect("e.engine")["plans"][0]["exact"] is True
    plain = anneal.build(convolution(), skip_passes=["all"])
    assert len(plain.report.plans[0].steps) > len(anneal.build(convolution()).report.plans[0].steps)
    mixed = anneal.build(convolution(), precision=["fp16", "bf16"], layer_precision={"conv1": "f32"})
    assert mixed.session()(IMAGES).shape == (12, 8)
    weights = np.random.default_rng(1).normal(size=(64, 32)).astype("float32")
    product = model_of([("MatMul", ["x", "w"], ["y"], {})], {"x": ("float32", (4, 64))}, {"y": ("float32", (4, 32))},
                       [onnx.numpy_helper.from_array(weights, "w")])
    small = anneal.build(product, weight_format="int8:32")
    assert any("stores weights in 8 bits" in each.text for each in small.report.decisions)
    x = np.random.default_rng(2).normal(size=(4, 64)).astype("float32")
    assert np.abs(small.session()(x) - x @ weights).max() < 0.2
    for wrong in ({"precision": "int3"}, {"weight_format": "int3"}, {"target": "cpu:never"}, {"range_method": "guess"}, {"skip_passes": ["never"]}):
        with pytest.raises(anneal.InvalidArgumentError):
            anneal.build(convolution(), **wrong)
    with pytest.raises(TypeError):
        anneal.build(convolution(), precisions="bf16")


def test_for_another_machine(tmp_path):
    engine = anneal.build(adding((2, 4)), tmp_path / "two.engine", target="emulated,cpu")
    assert [plan.target for plan in engine.report.plans] == ["emulated", "cpu"] or len(engine.report.plans) == 2
    a = np.ones((2, 4), "float32")
    assert (anneal.load(engine.path, device="cpu").session()(a, a)[0] == 2).all()
    assert (anneal.load(engine.path, device="emulated").session()(a, a)[0] == 2).all()
    lonely = anneal.build(adding((2, 4)), target="emulated", device="cuda")
    with pytest.raises(anneal.Error):
        lonely.session()


def test_errors(tmp_path):
    with pytest.raises(anneal.ReadError) as caught:
        anneal.build(tmp_path / "missing.onnx")
    assert isinstance(caught.value, OSError) and caught.value.code is anneal.ErrorCode.IO
    with pytest.raises(anneal.InvalidModelError):
        anneal.build(b"no model")
    with pytest.raises(anneal.UnsupportedError, match="Nonsense"):
        anneal.build(onnx.helper.make_model(onnx.helper.make_graph(
            [onnx.helper.make_node("Nonsense", ["x"], ["y"])], "g",
            [onnx.helper.make_tensor_value_info("x", 1, [1])], [onnx.helper.make_tensor_value_info("y", 1, [1])])))
    with pytest.raises(anneal.CannotWriteError):
        anneal.build(convolution(), tmp_path / "no/folder.engine")
    with pytest.raises(anneal.IncompatiblePlanError):
        anneal.load(b"no engine")
    for error, base in ((anneal.OutOfMemoryError, MemoryError), (anneal.InvalidArgumentError, ValueError)):
        assert issubclass(error, base) and issubclass(error, anneal.Error)


# A sample is an array of the only input, or a dict; samples are a list, an iterator, an array, or a sequence of one's own.
class Lazy:
    def __init__(self):
        self.read = set()

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        self.read.add(index)
        return {"image": IMAGES[index:index + 1]}


def test_calibrate():
    rows = [{"image": image[None]} for image in IMAGES]
    lazy = Lazy()
    tables = [anneal.calibrate(convolution(), samples) for samples in
              (rows, (row for row in rows), [row["image"] for row in rows], IMAGES, lazy, anneal.Samples(rows))]
    assert all(each.table == tables[0].table for each in tables) and len(lazy.read) == len(IMAGES)
    assert anneal.calibrate(convolution(), anneal.Samples(rows, subset="first:2")).table != tables[0].table
    image = tables[0].ranges["image"]
    assert image.seen_min == IMAGES.min() and image.seen_max == IMAGES.max() and image.method
    tables[0].save("ranges.txt")
    again = anneal.Calibration.read("ranges.txt")
    assert again.ranges == tables[0].ranges
    by_table = anneal.build(convolution(), precision="int8", ranges=again)
    by_samples = anneal.build(convolution(), precision="int8", calibrate=rows)
    assert any("int8" in str(step) or "i8" in str(step) or "u8" in step.kernel for step in by_samples.report.plans[0].steps) \
        or by_samples.report.decisions
    expected = onnx_runtime(convolution(), {"image": IMAGES})["scores"]
    for engine in (by_table, by_samples):
        assert np.abs(engine.session()(IMAGES) - expected).max() < 0.1 * np.abs(expected).max()


def test_names_that_are_no_text():
    session = anneal.build(convolution()).session()
    for call in (lambda: anneal.calibrate(convolution(), [{1: IMAGES[:1]}]), lambda: session.prepare({1: (1, 3, 16, 16)}),
                 lambda: session.run({1: IMAGES[:1]})):
        with pytest.raises(TypeError, match="names of inputs and outputs are of type str"):
            call()


def test_samples_that_do_not_fit():
    for wrong in ([{"picture": IMAGES[:1]}], [IMAGES[0]], [IMAGES[:1].astype("float64")], [None]):
        with pytest.raises((anneal.Error, TypeError)):
            anneal.calibrate(convolution(), wrong)
    with pytest.raises(TypeError):
        anneal.calibrate(convolution(), 3)
    with pytest.raises(ValueError, match="labels"):
        anneal.calibrate(convolution(), anneal.Samples(IMAGES, labels=[1]))


def test_errors_of_samples_come_through():
    class Broken(Lazy):
        def __getitem__(self, index):
            raise KeyError(f"sample {index} is gone")

    with pytest.raises(KeyError, match="is gone"):
        anneal.calibrate(convolution(), Broken())
    with pytest.raises(KeyError, match="is gone"):
        anneal.build(convolution(), precision="int8", calibrate=Broken())


def test_tune():
    expected = onnx_runtime(convolution(), {"image": IMAGES})["scores"].argmax(1)
    images = np.concatenate([IMAGES] * 5)
    labels = list(np.concatenate([expected] * 5))
    shares = []
    engine, frontier = anneal.tune(convolution(), anneal.Samples(images, labels), "top1", "t.engine", budget=50, seconds=5,
                                   modelled_times=True, progress=lambda progress: shares.append(progress.share))
    assert engine.session()(IMAGES).shape == (12, 8) and os.path.exists("t.engine")
    assert frontier.chosen["name"] in {point["name"] for point in frontier.points}
    assert "<svg" in frontier.svg() and frontier.csv().count("\n") > len(frontier.points) and str(frontier)
    assert frontier.speed and shares and shares == sorted(shares) and shares[-1] == 1


def test_tune_by_a_metric_of_python():
    seen = []

    def closeness(answer):
        seen.append((answer.sample, answer.label, answer.outputs["scores"].shape, answer.reference["scores"].shape))
        return -float(np.abs(answer.outputs["scores"] - answer.reference["scores"]).max())

    engine, frontier = anneal.tune(convolution(), np.concatenate([IMAGES] * 5),
                                   anneal.Metric(closeness, "closeness", wants_reference=True), budget=10, modelled_times=True)
    assert seen[0][1:] == (None, (1, 8), (1, 8)) and int(seen[0][0]) in range(60)
    assert engine.session()(IMAGES).shape == (12, 8) and frontier.points

    def broken(answer):
        raise ZeroDivisionError("no score")

    with pytest.raises(ZeroDivisionError, match="no score"):
        anneal.tune(convolution(), np.concatenate([IMAGES] * 5), broken, modelled_times=True)


def test_progress():
    seen = []
    anneal.build(convolution(), progress=seen.append)
    assert seen[-1].share == 1 and [each.share for each in seen] == sorted(each.share for each in seen)
    assert all(isinstance(each.what, str) for each in seen)
    with pytest.raises(anneal.CancelledError):
        anneal.build(convolution(), "never.engine", progress=lambda progress: False)
    with pytest.raises(anneal.CancelledError):
        anneal.build(convolution(), progress=lambda progress: np.bool_(False))
    for result in (None, 0, np.True_, np.int64(0)):
        anneal.build(convolution(), progress=lambda progress: result)
    assert not os.path.exists("never.engine")

    def broken(progress):
        raise ZeroDivisionError("in the callback")

    with pytest.raises(ZeroDivisionError, match="in the callback"):
        anneal.build(convolution(), progress=broken)


@pytest.fixture
def control_c():
    """Ctrl-C raises KeyboardInterrupt, though a shell ignores it in what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("control_c")
def test_control_c():
    """A signal that arrives while samples are read cancels the build."""
    def press(progress):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        anneal.build(convolution(), progress=press)
    with pytest.raises(KeyboardInterrupt):
        anneal.build(convolution(), log=lambda level, text: press(None))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(10_000):  # without callbacks: the build itself asks for signals
            anneal.calibrate(convolution(), IMAGES)


def test_other_threads_run_meanwhile():
    count, is_over = 0, False

    def counting():
        nonlocal count
        while not is_over:
            count += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=counting)
    thread.start()
    begin = time.perf_counter()
    anneal.build(convolution(size=64, channels=64), precision="bf16")
    took, while_building = time.perf_counter() - begin, count
    is_over = True
    thread.join()
    assert while_building > 20 * took


def test_inspect(tmp_path):
    onnx.save(convolution(), tmp_path / "model.onnx")
    model = anneal.inspect(tmp_path / "model.onnx")
    assert model["inputs"] == [{"name": "image", "type": "f32[N,3,16,16]"}] and model["ops"]["Conv"] == 1
    engine = anneal.build(convolution(), tmp_path / "a.engine")
    plan, = anneal.inspect(engine.path)["plans"]
    assert [step["kernel"] for step in plan["steps"]] == [step.kernel for step in engine.report.plans[0].steps]
    assert len(plan["decisions"]) == len(engine.report.decisions)
    with pytest.raises(anneal.ReadError):
        anneal.inspect(tmp_path / "none.engine")


def test_libraries_of_kernels(tmp_path):
    with pytest.raises(anneal.Error, match="/no/library.so"):
        anneal.build(adding(), libraries=["/no/library.so"])
    anneal.build(adding(), tmp_path / "adding.engine")
    with pytest.raises(anneal.Error, match="/no/library.so"):
        anneal.load(tmp_path / "adding.engine", libraries=["/no/library.so"])


def test_warnings_of_a_build():
    with pytest.warns(UserWarning, match="int8 is allowed, but no layer of f32 can use it"):
        anneal.build(convolution(), precision="int8")


def test_labels_may_be_an_array():
    images = np.random.default_rng(0).random((20, 1, 3, 16, 16)).astype("float32")
    samples = anneal.Samples(list(images), labels=np.zeros(20, "int64"))
    engine, frontier = anneal.tune(convolution(), samples, "top1", budget=100, modelled_times=True, most_groups=2, seconds=1)
    assert frontier.points


def test_a_metric_must_be_a_number_for_f32():
    images = np.random.default_rng(0).random((20, 1, 3, 16, 16)).astype("float32")
    with pytest.raises(anneal.InvalidArgumentError, match="gives no number for the sample"):
        anneal.tune(convolution(), list(images), lambda answer: float("nan"), modelled_times=True)
