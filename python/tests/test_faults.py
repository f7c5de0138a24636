"""Calls that would wait for ever or end the process: errors instead."""

import os
import subprocess
import sys
import textwrap

import anneal
import numpy as np
import onnx
import pytest
from models import adding, convolution


def python(program, seconds=60, **variables):
    """Runs a program beside the tests' modules; its exit status and what it said."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=seconds,
                          env={**os.environ, "PYTHONPATH": os.path.dirname(__file__), **variables})
    return done.returncode, done.stdout + done.stderr


class UsesTheSession:
    """An array that runs the session that reads it."""

    def __init__(self, session, call):
        self.session, self.call = session, call

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        self.call(self.session)
        return np.ones((1, 4), "float32").__dlpack__()


def test_an_array_that_uses_its_own_session():
    session, one = anneal.build(adding()).session(), np.ones((1, 4), "float32")
    for call in (lambda session: session(one, one), lambda session: session.prepare({"a": (1, 4), "b": (1, 4)}),
                 lambda session: session.wait(), lambda session: session.memory_bytes):
        with pytest.raises(anneal.InvalidArgumentError, match="in a call of this thread"):
            session(UsesTheSession(session, call), one)
    seen = []
    assert (session(UsesTheSession(session, lambda session: seen.append(session.is_done())), one)[0] == 2).all()
    assert seen and not any(seen)


FORK = """
    import os, sys, threading, time
    import anneal, numpy as np  # without ONNX Runtime, whose threads hang a child's exit
    engine = anneal.build("adding.onnx")
    engine.inputs
    one = np.ones((1, 4), "float32")
    session, busy, stream = engine.session(), engine.session(), anneal.Stream()
    {before}
    child = os.fork()
    if child == 0:
        try:
            {within}
            print("RIGHT", flush=True)
        except BaseException as error:
            print("WRONG", type(error), error, flush=True)
        sys.exit(0)  # with the objects of the parent still there
    _, status = os.waitpid(child, 0)
    {after}
    sys.exit(os.waitstatus_to_exitcode(status))
"""


def forked(before, within, after="pass"):
    onnx.save(adding(), "adding.onnx")
    status, said = python(FORK.format(before=before, within=within, after=after))
    assert status == 0 and "RIGHT" in said and "WRONG" not in said, said


REFUSED = """
            try:
                {call}
            except anneal.InvalidArgumentError as error:
                assert {said!r} in str(error), error
            else:
                raise AssertionError("no error")"""


def test_a_stream_of_the_parent():
    use = "session.enqueue({'a': one, 'b': one}, stream); session.wait(); stream.wait()"
    for call in ("session.enqueue({'a': one, 'b': one}, stream)", "stream.wait()"):
        forked(use, REFUSED.format(call=call, said="its thread is in the parent process"), use)


def test_a_session_that_was_in_a_run():
    before = "busy.enqueue({'a': one, 'b': one}, stream)"
    for call in ("busy.wait()", "busy(one, one)", "busy.is_done()", "busy.memory_bytes"):
        forked(before, REFUSED.format(call=call, said="make a session in the child"), "busy.wait()")


def test_what_a_child_may_use():
    forked("session(one, one)", """
            assert (session(one, one)[0] == 2).all()
            own = engine.session()
            own.enqueue({'a': one, 'b': one}, anneal.Stream())
            assert (own.wait()['sum'] == 2).all()
            assert (anneal.build('adding.onnx').session()(one, one)[0] == 2).all()""")


def test_an_engine_that_another_thread_was_loading():
    """The child loads it by itself."""
    forked("""
    pause = 0
    lazy = anneal.build('adding.onnx', log=lambda level, text: time.sleep(pause))
    pause = 2
    thread = threading.Thread(target=lambda: lazy.inputs, daemon=True)
    thread.start()
    time.sleep(0.5)""", "assert len(lazy.inputs) == 2")


EXIT = """
    import atexit, threading, time
    import anneal, numpy as np
    from models import convolution
    session = anneal.build(convolution(size=64, channels=64)).session(threads=1)
    images = np.zeros((4, 3, 64, 64), "float32")
    atexit.register(lambda: print(session(images).shape))
    begun = threading.Event()

    def work():
        while True:
            {work}
            begun.set()

    for _ in range({threads}):
        threading.Thread(target=work, daemon=True).start()
    begun.wait()
"""


@pytest.mark.parametrize("work", ["session(images)", "anneal.build(convolution(), precision='bf16')",
                                  "anneal.calibrate(convolution(), np.zeros((20, 3, 16, 16), 'float32'))",
                                  "stream = anneal.Stream(); session.profile({'image': images}); stream.wait()"])
def test_daemon_threads_in_calls_at_exit(work):
    for _ in range(3):
        status, said = python(EXIT.format(work=work, threads=4))
        assert status == 0 and "(4, 64)" in said and "Fatal" not in said and "terminate" not in said, said


def test_a_metric_and_samples_in_a_daemon_thread_at_exit():
    status, said = python("""
        import threading, time
        import anneal, numpy as np
        from models import convolution
        session = anneal.build(convolution()).session(threads=1)
        images = [np.zeros((1, 3, 16, 16), "float32")] * 200
        begun = threading.Event()

        def judge(answer):
            begun.set()
            return float(session(images[0]).sum())

        threading.Thread(target=lambda: anneal.tune(convolution(), images, judge, modelled_times=True), daemon=True).start()
        begun.wait()
    """)
    assert status == 0 and "Fatal" not in said and "terminate" not in said, said


def test_memory_that_overlaps():
    session = anneal.build(adding()).session()
    memory = np.ones((3, 4), "float32")
    with pytest.raises(anneal.InvalidArgumentError, match='output "sum" overlaps that of input "a"') as caught:
        session.run({"a": memory[:2], "b": np.ones((2, 4), "float32")}, out={"sum": memory[1:]})
    assert caught.value.port == "sum"
    with pytest.raises(anneal.InvalidArgumentError, match='output "product" overlaps that of output "sum"'):
        session.run({"a": np.ones((2, 4), "float32"), "b": np.ones((2, 4), "float32")}, out={"sum": memory[:2], "product": memory[1:]})
    # Elements between those of the other are no overlap, nor is memory beside.
    wide = np.ones((2, 8), "float32")
    outputs = session.run({"a": wide[:, ::2], "b": np.ones((2, 4), "float32")}, out={"sum": wide[:, 1::2]})
    assert (outputs["sum"] == 2).all() and (wide[:, ::2] == 1).all()
    with pytest.raises(anneal.InvalidArgumentError, match="overlaps"):
        session.run({"a": wide[:, ::2], "b": np.ones((2, 4), "float32")}, out={"sum": wide[:, 2:6]})
    session.run({"a": memory[:1], "b": memory[:1]}, out={"sum": memory[1:2], "product": memory[2:]})
    assert (memory[1] == 2).all()


def test_an_output_that_was_given_is_unset_again():
    session, one = anneal.build(adding()).session(), np.ones((2, 4), "float32")
    given = np.zeros((2, 4), "float32")
    session.run({"a": one, "b": one}, out={"sum": given})
    given[:] = -1
    outputs = session.run({"a": one, "b": one})
    assert (outputs["sum"] == 2).all() and (given == -1).all() and outputs["sum"] is not given
