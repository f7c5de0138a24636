import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent.parent

# The package under test is the installed one, never that of the sources.
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() not in (ROOT, ROOT / "python")]


@pytest.fixture(autouse=True)
def in_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def glyphs():
    return str(ROOT / "samples/glyphs/glyphs.onnx")


def shared_models():
    """Folders with model.onnx, of the data that sessions share; none where it is missing."""
    folder = Path(os.environ.get("ANNEAL_SHARED_MODELS", ROOT.parent / "shared/data/models"))
    return sorted(folder.iterdir()) if folder.exists() else []
