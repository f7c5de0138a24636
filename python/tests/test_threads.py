"""Threads, streams, and memory that stays the same."""

import gc
import threading
import time

import anneal
import numpy as np
import pytest
from models import adding, convolution, onnx_runtime

IMAGES = np.random.default_rng(3).normal(size=(64, 3, 16, 16)).astype("float32")


def in_threads(count, work):
    errors = []

    def guarded(index):
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def resident_bytes():
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def test_64_threads_with_a_session_each():
    engine = anneal.build(convolution())
    expected = onnx_runtime(convolution(), {"image": IMAGES})["scores"]

    def work(index):
        session = engine.session(threads=1)
        for repeat in range(20):
            rows = slice(index, index + 1 + repeat % 3)
            assert np.allclose(session(IMAGES[rows]), expected[rows], atol=1e-5)

    in_threads(64, work)


def test_64_threads_with_one_session():
    session = anneal.build(convolution()).session(threads=1)
    expected = onnx_runtime(convolution(), {"image": IMAGES})["scores"]

    def work(index):
        for _ in range(20):
            assert np.allclose(session(IMAGES[index:index + 1]), expected[index:index + 1], atol=1e-5)

    in_threads(64, work)


def test_a_run_gives_the_gil_back():
    session = anneal.build(convolution(size=128, channels=64)).session(threads=1)
    images = np.zeros((256, 3, 128, 128), "float32")
    session(images)
    count = 0
    thread = threading.Thread(target=lambda: session(images))
    thread.start()
    while thread.is_alive():  # of one run, which takes 80 ms and more
        count += 1
        time.sleep(0.0005)
    assert count > 10  # 1 or 2 if the run kept the GIL


def test_stream():
    engine = anneal.build(adding())
    stream = anneal.Stream()
    sessions = [engine.session() for _ in range(4)]
    for index, session in enumerate(sessions):
        a = np.full((2, 4), index, "float32")
        session.enqueue({"a": a, "b": a}, stream)  # the session keeps the arrays
    stream.wait()
    assert all(session.is_done() for session in sessions)
    assert [session.wait()["sum"][0, 0] for session in sessions] == [0, 2, 4, 6]
    assert sessions[0].wait() == {}


def test_a_session_with_an_enqueued_run_is_busy():
    engine = anneal.build(adding())
    session = engine.session()
    a, out = np.ones((2, 4), "float32"), np.zeros((2, 4), "float32")
    session.enqueue({"a": a, "b": a}, anneal.Stream(), out={"sum": out})
    with pytest.raises(anneal.InvalidArgumentError, match="wait"):
        session.run({"a": a, "b": a})
    assert session.wait()["sum"] is out and (out == 2).all()
    session.enqueue({"a": a, "b": a}, anneal.Stream())
    del session  # waits for its run


def test_foreign_streams():
    """What has __cuda_stream__ or cuda_stream is taken as a CUDA stream, which an engine on the CPU refuses."""
    class Torch:
        cuda_stream = 0

    class Nvidia:
        def __cuda_stream__(self):
            return (0, 0)

    session, a = anneal.build(adding()).session(), np.ones((2, 4), "float32")
    for stream in (Torch(), Nvidia(), 0):
        with pytest.raises(anneal.UnsupportedError, match="a CUstream cannot take a run of an engine on x86-64"):
            session.enqueue({"a": a, "b": a}, stream)
    own = anneal.Stream()
    assert anneal.stream_of(own) is own
    with pytest.raises(TypeError):
        anneal.stream_of("cpu")
    with pytest.raises(anneal.InvalidArgumentError):
        anneal.Stream("tpu")


def test_emulated_stream():
    engine = anneal.build(adding((2, 4)), target="emulated", device="emulated")
    session, stream = engine.session(), anneal.Stream("emulated")
    a = np.ones((2, 4), "float32")
    session.enqueue({"a": a, "b": a}, stream)
    assert (session.wait()["sum"] == 2).all()


def test_1000_loads_and_10000_sessions_do_not_grow(tmp_path):
    path = anneal.build(convolution(), tmp_path / "a.engine").path
    data = open(path, "rb").read()
    image = IMAGES[:1]

    def load(count):
        for index in range(count):
            anneal.load(path if index % 2 else data).session(threads=1)(image)

    def open_sessions(engine, count):
        for _ in range(count):
            engine.session(threads=1)(image)

    load(100)
    before = resident_bytes()
    load(1000)
    assert resident_bytes() - before < 4 << 20
    engine = anneal.load(path)
    open_sessions(engine, 500)
    before = resident_bytes()
    open_sessions(engine, 10_000)
    assert resident_bytes() - before < 4 << 20


def test_runs_do_not_grow():
    session = anneal.build(convolution()).session(threads=1)
    for _ in range(200):
        session(IMAGES)
    before = resident_bytes()
    for _ in range(5000):
        session.run({"image": IMAGES[:4]})
    assert resident_bytes() - before < 4 << 20
