"""The Python of the pages: blocks run in order, in a folder beside the samples. tests/page_test.py runs the other blocks."""

import inspect
import re

import anneal
import pytest
from anneal._options import OPTION_NAMES
from conftest import ROOT

PAGES = sorted(path for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if "```python" in path.read_text())


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page, tmp_path, monkeypatch):
    if page.name == "torch.md":
        pytest.importorskip("torch")
        pytest.importorskip("onnxscript", reason="torch.onnx needs onnxscript")
    monkeypatch.setenv("ANNEAL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    names = {"__name__": "page"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)


def test_there_are_pages():
    assert {"README.md", "python.md"} <= {page.name for page in PAGES}
    assert len(blocks(ROOT / "README.md")[0].splitlines()) == 5


def test_the_page_names_every_option():
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    options = {*OPTION_NAMES, *inspect.signature(anneal.build).parameters} - {"options"}
    missing = [name for name in options if f"`{name}`" not in page and name not in ("model", "path")]
    assert not missing
    classes = [name for name in anneal.__all__ if name.endswith("Error")]
    assert not [name for name in classes if name not in page and name != "Error"]


def names_in(page):
    """The code of a page's text: of tables that compare, the last cell, which has our names."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    if page.name.startswith("from_"):
        text = "\n".join(line.rstrip("| ").rsplit(" | ", 1)[-1] if line.startswith("|") else line for line in text.splitlines())
    return " ".join(re.findall(r"`([^`]+)`", text))


@pytest.mark.parametrize("page", sorted({*PAGES, ROOT / "docs/from_tensorrt.md"}), ids=lambda page: page.name)
def test_every_name_in_the_text_exists(page):
    code = names_in(page)
    owners = {"anneal": anneal, "engine": anneal.Engine, "session": anneal.Session, "report": anneal.BuildReport}
    missing = []
    for owner, name in re.findall(r"(?<![\w./])(anneal|engine|session|report)\.(\w+)", code):
        fields = getattr(owners[owner], "__dataclass_fields__", {})
        if name not in ("torch", "licenses", "onnx", "engine") and not hasattr(owners[owner], name) and name not in fields:
            missing.append(f"{owner}.{name}")
    functions = [anneal.build, anneal.load, anneal.tune, anneal.refit, anneal.Samples, anneal.Engine.session, anneal.Session.run,
                 anneal.Session.observe]
    options = {*OPTION_NAMES, *(name for function in functions for name in inspect.signature(function).parameters)}
    if page.name.startswith("from_"):
        missing += [name for name in re.findall(r"(?<![\w./-])([a-z_]+)=", code) if name not in options]
    assert not missing
