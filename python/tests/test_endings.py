"""What outlives what: interpreters, cycles of objects, copies."""

import copy
import gc
import pickle
import sys
import weakref

import anneal
import numpy as np
import onnx
import pytest
from models import adding
from test_faults import python

ONE = np.ones((1, 4), "float32")


@pytest.mark.parametrize("observed", [True, False])
def test_an_enqueued_run_at_exit(observed):
    """The exit waits for the run, whose observer needs the interpreter."""
    status, said = python(f"""
        import anneal, numpy as np
        from models import convolution
        session = anneal.build(convolution(size=256, channels=64)).session(threads=1)
        if {observed}:
            session.observe(lambda tensor: print(tensor.name, flush=True))
        stream = anneal.Stream()
        session.enqueue({{"image": np.zeros((8, 3, 256, 256), "float32")}}, stream)
    """)
    assert status == 0 and ("scores" in said) == observed and "terminate" not in said, said


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the module has another name")
@pytest.mark.parametrize("isolated", [True, False])
def test_subinterpreters_are_refused(isolated):
    onnx.save(adding(), "adding.onnx")
    status, said = python(f"""
        import _xxsubinterpreters as interpreters
        each = interpreters.create(isolated={isolated})
        try:
            interpreters.run_string(each, "import anneal")
        except interpreters.RunFailedError as error:
            print(error)
        interpreters.destroy(each)
        import anneal
        print(anneal.build("adding.onnx").inputs)
    """)
    # NumPy, or Python itself, may be the first to refuse an isolated one.
    assert status == 0 and "ImportError" in said and "TensorInfo a" in said, said
    assert isolated or "main interpreter" in said, said


def test_a_second_import_is_refused():
    status, said = python("""
        import anneal, sys
        for name in [name for name in sys.modules if name.startswith("anneal")]:
            del sys.modules[name]
        try:
            import anneal
        except ImportError as error:
            print("REFUSED:", error)
    """)
    assert status == 0 and "REFUSED: anneal is imported a second time" in said, said


class Owner:
    """Has what calls it."""

    def __init__(self, with_log):
        self.engine = anneal.build(adding(), log=self.heard if with_log else None)
        self.session = self.engine.session()
        if not with_log:
            self.session.observe(self.seen, names=self.wants)

    def heard(self, level, text):
        pass

    def seen(self, tensor):
        pass

    def wants(self, name):
        return True


@pytest.mark.parametrize("with_log", [True, False])
def test_cycles_through_callbacks_are_collected(with_log):
    owner = Owner(with_log)
    owner.session(ONE, ONE)
    gc.collect()
    owner.session(ONE, ONE)  # which nobody took away
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_a_session_keeps_its_engine():
    engine = anneal.build(adding())
    session, (a, b) = engine.session(), engine.inputs
    del engine
    gc.collect()
    assert (session(ONE, ONE)[0] == 2).all()
    del session
    gc.collect()
    assert a.shape == b.shape == ("N", 4)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_copies(again):
    engine = anneal.build(adding())
    assert (again(engine).session()(ONE, ONE)[0] == 2).all()
    assert (again(engine.session(threads=1))(ONE, ONE)[0] == 2).all()
    # An engine of another machine is not loaded.
    elsewhere = again(anneal.build(adding((1, 4)), target="sm_90"))
    assert elsewhere.to_bytes()
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(anneal.Stream())
