"""The options of build(), calibrate() and tune()."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, Union

from anneal import _core
from anneal._reports import Calibration

Path = Union[str, "os.PathLike[str]"]
# A logger, or a function of the level (of the module logging: logging.INFO, logging.WARNING) and the text.
Log = Union[logging.Logger, Callable[[int, str], Any]]

_PRECISIONS = {"fp32": "f32", "float32": "f32", "fp16": "f16", "float16": "f16", "bfloat16": "bf16", "i8": "int8"}


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The sizes that an input may have, in elements: the smallest, those to optimize for, and the largest."""

    min: Sequence[int] | None = None
    opt: Sequence[int] | None = None
    max: Sequence[int] | None = None


ProfileShapes = Union[Sequence[int], Shapes, Mapping[str, Union[Sequence[int], Shapes]]]


class CommonOptions(TypedDict, total=False):
    """The options that anneal.torch.optimize() takes, too."""

    ranges: Calibration | str | None
    layer_precision: Mapping[str, str] | None
    weight_format: str
    max_layer_error: float
    symmetric: bool
    range_method: str
    percentile: float
    default_inputs: str | Iterable[str] | None
    states: Mapping[str, str]
    self_check: bool
    self_check_work: float | None
    exact: bool
    tf32: bool
    skip_passes: Iterable[str]
    only_passes: Iterable[str]
    skip_kernels: Iterable[str]
    allow_fallback: bool
    max_memory: int
    time_kernels: bool
    timing_cache: Path
    optimization_level: int
    time_seconds: float
    pack_weights: bool
    data_threads: int
    libraries: Iterable[Path]


class BuildOptions(CommonOptions, total=False):
    """The options that build(), calibrate() and tune() share, as BuildOptions of C++ has them (docs/python.md).

    target: "cpu", "cpu:avx2", "sm_90", several in a list or separated by commas; "reference": the CPU without passes, on the
    reference kernels. precision: "fp16", "bf16", "int8" or several, allowed beside the model's own; "best": what every
    target computes faster than f32. shapes: sizes of inputs by name, in elements: fixed (8, 3, 224, 224), or
    Shapes(min, opt, max); a list of these makes a profile of each, with a plan of its own. ranges: a Calibration, or its text.
    layer_precision: {regular expression: precision}, the first that matches. weight_format: "int8", "int4", "int4:64",
    integers for weights of products and embeddings. max_memory: bytes. threads, data_threads: 0: one per core. libraries: files with kernels of other
    operators (docs/custom_kernels.md).
    """

    target: str | Iterable[str]
    precision: str | Iterable[str] | None
    shapes: ProfileShapes | Sequence[ProfileShapes] | None
    threads: int


OPTION_NAMES = frozenset(BuildOptions.__optional_keys__)


def check_names(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """TypeError, naming the closest option, for one that there is not."""
    unknown = next((name for name in options if name not in OPTION_NAMES), None)
    if unknown is None:
        return
    own = [name for name, parameter in inspect.signature(function).parameters.items()
           if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    raise TypeError(f'{function.__name__}() has no option "{unknown}"{closest(unknown, [*own, *OPTION_NAMES])}')


def closest(unknown: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the name that is meant, or all names."""
    found = difflib.get_close_matches(unknown, sorted(names), n=1)
    return f': did you mean "{found[0]}"?' if found else f"; there are {', '.join(sorted(names))}"


def names_of(given: str | Iterable[str] | None) -> list[str]:
    return [] if given is None else [given] if isinstance(given, str) else list(given)


def _precision(name: str) -> str:
    return _PRECISIONS.get(name, name)


def _profiles(shapes: Any) -> list[Any]:
    """The shapes of each profile: a sequence of shapes, or the only ones, which may be a sequence of sizes."""
    are_several = isinstance(shapes, (list, tuple)) and len(shapes) > 0 and all(
        isinstance(each, (Shapes, Mapping, list, tuple)) for each in shapes)
    return list(shapes) if are_several else [shapes]


def _add_profile(made: _core.BuildOptions, shapes: Any) -> None:
    sides: dict[str, dict[str, Any]] = {"min": {}, "opt": {}, "max": {}}
    for name, given in (shapes if isinstance(shapes, Mapping) else {"": shapes}).items():
        given = given if isinstance(given, Shapes) else Shapes(given, given, given)
        for side, sizes in sides.items():
            if getattr(given, side) is not None:
                sizes[name] = getattr(given, side)
    made.add_profile(sides["min"], sides["opt"], sides["max"])


def core_options(options: BuildOptions, log: Log | None = None) -> _core.BuildOptions:
    """The options for anneal._core. Those that are not given keep the default of C++."""
    made = _core.BuildOptions()
    if "target" in options:
        made.targets = [each for name in names_of(options["target"]) for each in name.split(",")]
    made.set_precisions([_precision(name) for name in names_of(options.get("precision"))])
    made.set_layer_precisions([(pattern, _precision(name)) for pattern, name in (options.get("layer_precision") or {}).items()])
    if "max_layer_error" in options:
        made.set_max_layer_error(options["max_layer_error"])
    made.set_weight_format(options.get("weight_format", ""))
    made.set_symmetric(options.get("symmetric", False))
    made.set_range_method(options.get("range_method", "auto"), options.get("percentile"))
    made.set_self_check(options.get("self_check", True), options.get("self_check_work"))
    ranges, shapes = options.get("ranges"), options.get("shapes")
    if ranges is not None:
        made.set_ranges(ranges.table if isinstance(ranges, Calibration) else ranges)
    if shapes is not None:
        for profile in _profiles(shapes):
            _add_profile(made, profile)
    made.default_inputs = set(names_of(options.get("default_inputs")))
    made.states = dict(options.get("states", {}))
    made.skip_passes, made.only_passes = list(options.get("skip_passes", ())), list(options.get("only_passes", ()))
    made.skip_kernels = list(options.get("skip_kernels", ()))
    made.tf32 = options.get("tf32", False)
    made.libraries = [os.fspath(each) for each in options.get("libraries", ())]
    made.timing_cache = os.fspath(options.get("timing_cache", ""))
    for name in ("exact", "allow_fallback", "max_memory", "time_kernels", "optimization_level", "time_seconds",
                 "pack_weights", "threads", "data_threads"):
        if name in options:
            setattr(made, name, options[name])
    made.set_log(log_function(log))
    return made


def log_function(log: Log | None) -> Callable[[int, str], Any] | None:
    """What anneal._core calls with a level and a text."""
    if isinstance(log, logging.Logger):
        return lambda level, text: log.log(level, "%s", text)
    if log is not None and not callable(log):
        raise TypeError(f"log is a logging.Logger or a function of a level and a text, not {type(log).__name__}")
    return log
