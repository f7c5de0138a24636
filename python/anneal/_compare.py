"""compare()."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anneal import _core
from anneal._build import build
from anneal._engine import Engine, load
from anneal._options import BuildOptions, Path, check_names
from anneal._reports import Comparison, make_comparison

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Options that the reference shares with the model that is compared with it.
_OF_THE_MODEL = ("shapes", "default_inputs", "libraries", "threads")
_FIRST_OF_AN_ENGINE = b"\x89"  # no ONNX file begins with it


def _is_engine(source: Any) -> bool:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[:1]) == _FIRST_OF_AN_ENGINE
    if isinstance(source, (str, os.PathLike)):
        with contextlib.suppress(OSError), open(source, "rb") as file:
            return file.read(1) == _FIRST_OF_AN_ENGINE
        return False  # build() says what is wrong with it
    return isinstance(source, Engine)


def _engine_of(source: Any, device: str, folder: Path | None, options: BuildOptions) -> Engine:
    if isinstance(source, Engine):
        return source
    if _is_engine(source):
        return load(source, device=device, libraries=list(options.get("libraries", ())))
    return build(source, folder=folder, device=device, **options)


def compare(a: Any, b: Any = None, inputs: Mapping[str, Any] | None = None, *, rtol: float | None = None,
            atol: float | None = None, device: str = "auto", folder: Path | None = None,
            **options: Unpack[BuildOptions]) -> Comparison:
    """Runs two engines on the same inputs and compares each tensor that both have: b is the reference.

    a, b: an Engine, an engine file (a path or bytes), or a model as in build(), which is built with the options. Without b,
    a is a model, and b is the same model without passes on the reference kernels. inputs: arrays by name; the others are
    drawn at random. An element agrees if |a - b| <= atol * max(1, largest |b| of the tensor) + rtol * |b|. Defaults of rtol
    and atol: 1e-3 and 1e-5; 1e-2 and 1e-3 if an engine has tensors of f16; 5e-2 and 1e-2 for bf16. Quantized models may
    differ more (docs/cli.md, `anneal check`). device, folder: as in build().
    """
    check_names(compare, options)
    if b is None and _is_engine(a):
        raise TypeError("a is an engine: give b, the engine or model to compare it with")
    left = _engine_of(a, device, folder, options)
    if b is None:
        same: dict[str, Any] = {name: value for name, value in options.items() if name in _OF_THE_MODEL}
        right = build(a, folder=folder, device="cpu", target="reference", **same)
    else:
        right = _engine_of(b, device, folder, options)
    return make_comparison(_core.compare(left._loaded(), right._loaded(), dict(inputs or {}),
                                         options.get("threads", 0), rtol, atol))
