"""The installed package: pickling, the command, types, and other packages beside it."""

import importlib.util
import itertools
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import anneal
import numpy as np
import pytest
from conftest import ROOT, TESTS
from models import adding, convolution

PACKAGE = Path(anneal.__file__).parent


def test_it_is_the_installed_one():
    assert ROOT not in PACKAGE.parents or ROOT / "build" in PACKAGE.parents


@pytest.mark.parametrize("with_file", [True, False])
def test_pickle(tmp_path, with_file):
    engine = anneal.build(adding(), tmp_path / "a.engine" if with_file else None)
    session = engine.session(threads=1)
    a = np.ones((1, 4), "float32")
    for again in (pickle.loads(pickle.dumps(engine)).session(), pickle.loads(pickle.dumps(session))):
        assert (again(a, a)[0] == 2).all()
    assert pickle.loads(pickle.dumps(engine)).report == engine.report
    if with_file:
        assert len(pickle.dumps(anneal.load(engine.path))) < 500


def call(session, a):
    return session(a, a)[0]


def test_another_process(tmp_path):
    session = anneal.build(adding(), tmp_path / "a.engine").session(threads=1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert (pool.apply(call, (session, np.ones((1, 4), "float32"))) == 2).all()


def test_error_pickles():
    with pytest.raises(anneal.Error) as caught:
        anneal.build(adding()).session().run({"c": np.ones(1)})
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and again.code == caught.value.code and again.port == "c"


@pytest.mark.parametrize("command", [[sys.executable, "-m", "anneal"], [str(Path(sys.executable).parent / "anneal")]])
def test_command(command, glyphs):
    done = subprocess.run([*command, "inspect", glyphs], capture_output=True, text=True)
    assert done.returncode == 0 and "image" in done.stdout
    subprocess.run([*command, "build", glyphs, "-o", "g.engine", "-q"], check=True)
    assert anneal.load("g.engine").session()(np.zeros((1, 1, 32, 32), "float32")).shape == (1, 47)
    assert subprocess.run([*command, "run", "missing.engine"], capture_output=True).returncode == 2


def test_types(tmp_path):
    """The package and a user's program are right in strict mode, and a wrong program is not."""
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", f"--cache-dir={tmp_path}/cache"]
    without = [] if importlib.util.find_spec("torch") else ["--exclude", "/anneal/torch/"]
    for what in ([str(TESTS / "typed_program.py")], ["-p", "anneal", *without]):
        done = subprocess.run([*mypy, *what], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import anneal\nanneal.load(3)\nanneal.build('m').session().run({}).scores\n")
    done = subprocess.run([*mypy, str(wrong)], capture_output=True, text=True)
    assert done.stdout.count("error:") == 2, done.stdout


def test_everything_has_a_docstring():
    for name in anneal.__all__:
        thing = getattr(anneal, name)
        assert name == "__version__" or thing.__doc__, name
    for owner in (anneal.Engine, anneal.Session, anneal.Stream, anneal.TensorInfo):
        for name, thing in vars(owner).items():
            if not name.startswith("_") and name not in ("name",):
                assert getattr(thing, "__doc__", None), f"{owner.__name__}.{name}"


WORK = {
    "onnx": "import onnx; onnx.checker.check_model(onnx.load(MODEL)); onnx.shape_inference.infer_shapes(onnx.load(MODEL))",
    "onnxruntime": "import onnxruntime; onnxruntime.InferenceSession(MODEL)",
    "torch": "import torch; torch.nn.Conv2d(1, 2, 3)(torch.zeros(1, 1, 8, 8))",
    "anneal": "import anneal, numpy; e = anneal.build(MODEL, precision='bf16'); "
              "assert e.session()(numpy.zeros((1, 1, 32, 32), 'float32')).shape == (1, 47)",
}


def has(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode == 0


def test_beside_other_packages(glyphs):
    """Protobuf and oneDNN are in several packages: in every order of imports and of work all of them work."""
    present = [name for name in WORK if has(name)]
    for order in itertools.permutations(present):
        lines = [f"MODEL = {glyphs!r}", f"import {', '.join(order)}", *(WORK[name] for name in (*order, *order))]
        done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
        assert done.returncode == 0, f"{order}: {done.stderr[-2000:]}"


def test_beside_libraries_that_all_see(glyphs):
    """The same where the other packages' names are visible to every library."""
    others = [name for name in WORK if has(name) and name != "anneal"]
    lines = ["import os, sys", f"MODEL = {glyphs!r}", "sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)",
             *(WORK[name] for name in (*others, "anneal", *others))]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def libraries():
    return [path for folder in (PACKAGE, PACKAGE.parent / "anneal.libs") for path in folder.rglob("*.so*")]


def test_no_name_of_protobuf_is_visible():
    """Nothing of Protobuf or oneDNN is exported by our libraries, nor left for others to define."""
    for library in libraries():
        if not library.name.startswith(("lib", "_core")) or library.parent.name == "anneal.libs":
            continue
        names = subprocess.run(["nm", "-D", "-C", str(library)], capture_output=True, text=True, check=True).stdout
        visible = [line for line in names.splitlines() if "google::protobuf" in line or "dnnl" in line]
        defined = [line for line in visible if " U " not in line]
        assert not defined, f"{library}: {defined[:3]}"


def test_no_library_of_nvidia():
    assert not [path for path in libraries() if any(word in path.name for word in ("cuda", "nvrtc", "cublas", "cudnn"))]


def test_stripped_and_with_licences():
    for file in (*libraries(), PACKAGE / "bin/anneal"):
        sections = subprocess.run(["readelf", "-S", "-W", str(file)], capture_output=True, text=True, check=True).stdout
        assert " .symtab " not in sections and " .debug_info " not in sections, file
    assert {"libprotobuf-dev.txt", "libjpeg62-turbo-dev.txt", "libpng-dev.txt"} <= {
        path.name for path in (PACKAGE / "licenses").iterdir()}
