"""Engines by content: in memory, and in a folder. See docs/torch.md."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import platform
import tempfile
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import anneal
from anneal._reports import make_build_report
from anneal.torch._reasons import counters, log

# Above this size the files that were not used for longest are deleted.
MOST_BYTES = 16 << 30

# A model whose weights are larger goes through a file: protobuf ends at 2 GB.
_MOST_IN_MEMORY = 1 << 30

_engines: weakref.WeakValueDictionary[str, anneal.Engine] = weakref.WeakValueDictionary()
_locks: dict[str, threading.Lock] = {}
_guard = threading.Lock()


def cache_folder() -> pathlib.Path | None:
    """The folder of engines: `torch` in ANNEAL_CACHE_DIR, else in $XDG_CACHE_HOME/anneal or ~/.cache/anneal.

    None if ANNEAL_CACHE_DIR is empty: no cache.
    """
    chosen = os.environ.get("ANNEAL_CACHE_DIR")
    if chosen is not None:
        return pathlib.Path(chosen) / "torch" if chosen else None
    home = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(home) if home else pathlib.Path.home() / ".cache") / "anneal" / "torch"


@functools.cache
def _machine() -> str:
    """What the choice of kernels depends on: the processor and its features."""
    wanted = ("model name", "flags", "Features")
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        first = file.read().split("\n\n", 1)[0]
        return "\n".join(line for line in first.splitlines() if line.split(":")[0].strip() in wanted)
    return platform.processor() or platform.machine()


class _Digest:
    """A hash of a model's content: operators, attributes, types and weights; no names, no metadata."""

    def __init__(self, with_names: bool) -> None:
        self._hash = hashlib.sha256()
        self._numbers: dict[int, int] = {}
        self._with_names = with_names

    def text(self, *parts: object) -> None:
        for part in parts:
            encoded = str(part).encode()
            self._hash.update(b"%d:" % len(encoded))
            self._hash.update(encoded)

    def tensor(self, tensor: Any) -> None:
        self.text("tensor", tensor.dtype, tensor.shape)
        self._hash.update(tensor.tobytes())

    def value(self, value: Any) -> None:
        if value is None:
            self.text("none")
            return
        self.text(self._numbers.setdefault(id(value), len(self._numbers)))

    def declare(self, value: Any) -> None:
        self.value(value)
        self.text(value.type, value.shape)

    def attribute(self, attribute: Any) -> None:
        self.text(attribute.name, attribute.type)
        kind, value = attribute.type.name, attribute.value
        if kind == "GRAPH":
            self.graph(value)
        elif kind == "GRAPHS":
            for each in value:
                self.graph(each)
        elif kind == "TENSOR":
            self.tensor(value)
        elif kind == "TENSORS":
            for each in value:
                self.tensor(each)
        else:
            self.text(value)

    def graph(self, graph: Any) -> None:
        self.text("graph")
        for value in graph.inputs:
            self.declare(value)
        for name in sorted(getattr(graph, "initializers", {})):
            initializer = graph.initializers[name]
            if initializer.uses() or initializer in graph.outputs:
                self.value(initializer)
                self.tensor(initializer.const_value)
        for node in graph:
            self.text(node.domain, node.op_type, node.overload, node.name if self._with_names else "")
            for value in node.inputs:
                self.value(value)
            self.text("->")
            for value in node.outputs:
                self.value(value)
            for name in sorted(node.attributes):
                self.attribute(node.attributes[name])
        for value in graph.outputs:
            self.declare(value)

    def key(self) -> str:
        return self._hash.hexdigest()


def key_of(model: Any, shapes: Mapping[str, anneal.Shapes], options: Mapping[str, Any]) -> str:
    """The name of an engine in the cache.

    It is a hash of the model without names, the options, the version, the processor, and the environment.
    """
    digest = _Digest(with_names=bool(options.get("layer_precision") or options.get("ranges")))
    for key, value in sorted(model.opset_imports.items()):
        digest.text(key, value)
    for function in model.functions.values():
        digest.text(function.domain, function.name, function.overload)
        digest.graph(function)
    digest.graph(model.graph)
    for value in model.graph.inputs:
        digest.text(shapes.get(value.name))
    for name in sorted(options):
        value = options[name]
        digest.text(name, value.table if isinstance(value, anneal.Calibration) else repr(value))
    digest.text(anneal.__version__, _machine())
    digest.text(*(f"{name}={os.environ.get(name)}" for name in ("ANNEAL_MAX_ISA", "ANNEAL_ONEDNN", "ANNEAL_CUDA")))
    return digest.key()


def _source(model: Any, folder: str) -> Any:
    """The model for anneal.build(): its bytes, or a path in the folder."""
    import onnx_ir

    weights = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    if weights <= _MOST_IN_MEMORY:
        return onnx_ir.to_proto(model).SerializeToString()
    path = os.path.join(folder, "model.onnx")
    onnx_ir.save(model, path, external_data="weights")
    return path


def _build(model: Any, shapes: Mapping[str, anneal.Shapes], options: Mapping[str, Any], path: pathlib.Path | None) -> anneal.Engine:
    counters.add("builds")
    with tempfile.TemporaryDirectory(prefix="anneal-torch-") as folder:
        engine = anneal.build(_source(model, folder), shapes=dict(shapes) or None, **options)
    if path is None:
        return engine
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        assert engine.report is not None
        report = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
        report.write_text(json.dumps(engine.report.to_dict()), encoding="utf-8")
        os.replace(report, path.with_suffix(".json"))
        engine.save(path)  # last: what has an engine has its report
        _trim(path.parent)
        # Mapped from the file: the bytes of the build are given back.
        return anneal.Engine(path, device=str(options.get("device", "auto")), report=engine.report, is_deferred=True)
    except OSError as error:
        log.warning("the engine cannot be kept in %s: %s", path.parent, error)
    return engine


def _trim(folder: pathlib.Path) -> None:
    files = []
    for path in folder.glob("*.engine"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            files.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files)[:-1]:
        if total <= MOST_BYTES:
            break
        total -= size
        for each in (path, path.with_suffix(".json")):
            with contextlib.suppress(OSError):
                each.unlink()


def _load(path: pathlib.Path, device: str) -> anneal.Engine | None:
    if not path.exists():
        return None
    try:
        engine = anneal.load(path, device=device)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            engine._report = make_build_report(json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))
        with contextlib.suppress(OSError):
            os.utime(path)  # used now: deleted last
    except anneal.Error as error:
        log.warning("%s is built again: %s", path, error)
        return None
    counters.add("cache_hits")
    return engine


def engine_for(model: Any, shapes: Mapping[str, anneal.Shapes], options: Mapping[str, Any], *, cache: bool,
               extra_key: str = "") -> anneal.Engine:
    """The engine of a model: the one in memory, the file in the cache, or a new one.

    extra_key: what else the engine depends on. Raises anneal.Error.
    """
    named = {name: value for name, value in options.items() if name not in ("calibrate", "progress", "log")}
    key = hashlib.sha256((key_of(model, shapes, named) + extra_key).encode()).hexdigest()
    folder = cache_folder() if cache else None
    with _guard:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        engine = _engines.get(key)
        if engine is not None:
            counters.add("reused")
            return engine
        path = None if folder is None else folder / f"{key}.engine"
        engine = None if path is None else _load(path, str(options.get("device", "auto")))
        if engine is None:
            engine = _build(model, shapes, options, path)
        _engines[key] = engine
        return engine
