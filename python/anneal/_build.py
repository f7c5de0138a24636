"""build(), calibrate(), tune() and inspect()."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anneal import _core
from anneal._engine import Engine
from anneal._options import BuildOptions, Log, Path, check_names, core_options
from anneal._reports import BuildReport, Calibration, Frontier, Progress, make_build_report

if TYPE_CHECKING:
    from typing_extensions import Unpack

# What a progress callback returns: False cancels.
ProgressCallback = Callable[[Progress], Any]

@dataclasses.dataclass(frozen=True)
class Samples:
    """Samples to calibrate, tune and judge with.

    items: an iterable of samples, or the path of a folder or file of them (docs/data.md). A sample is a dict from input
    names to arrays, or the array of the only input, each with its axis of the batch (of size 1) and of the input's dtype.
    Sequences are read item by item, also by several threads and several times; other iterables are read once and kept. A
    NumPy array is a batch: its rows are the samples. labels: the class of each, for metrics of classification. subset: some
    of them, such as "first:100", "hash:100" and "holdout:100". masks: for metrics of segmentation, the class of each pixel of
    each sample: integer arrays [height, width], in which -1 is ignored.
    """

    items: Any
    labels: Sequence[int | None] | None = None
    subset: str = ""
    masks: Sequence[Any] | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """One sample's results, for a metric. outputs, reference: arrays by name; reference is what f32 gives, if wanted. mask:
    the class of each pixel, if wanted."""

    sample: str
    label: int | None
    outputs: dict[str, Any]
    reference: dict[str, Any]
    mask: Any = None


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of your own: a function from an Answer to a number, whose mean is the score. More is better.

    name, unit: for people. wants_reference: fill Answer.reference. wants_masks: fill Answer.mask.
    """

    judge: Callable[[Answer], float]
    name: str = "metric"
    unit: str = ""
    wants_reference: bool = False
    wants_masks: bool = False


class _Rows:
    """The rows of an array, each as a batch of one."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch)

    def __getitem__(self, index: int) -> Any:
        return self._batch[index : index + 1]


def _model_source(model: Any, folder: Path | None) -> _core.ModelSource:
    if isinstance(model, (str, os.PathLike)):
        return _core.ModelSource(os.fspath(model), b"", "")
    if hasattr(model, "SerializeToString"):  # onnx.ModelProto
        model = model.SerializeToString()
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _core.ModelSource("", bytes(model), "" if folder is None else os.fspath(folder))
    raise TypeError(f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}")


def _sample_source(samples: Any) -> _core.SampleSource:
    if not isinstance(samples, Samples):
        samples = Samples(samples)
    items = samples.items
    labels = [None if label is None else int(label) for label in ([] if samples.labels is None else samples.labels)]
    if isinstance(items, (str, os.PathLike)):
        if labels or samples.masks is not None:
            raise ValueError("a folder has its own labels and masks (docs/data.md): leave labels and masks out")
        return _core.SampleSource(None, [], os.fspath(items), samples.subset, None)
    if isinstance(items, Mapping) or not isinstance(items, Iterable) and not hasattr(items, "__getitem__"):
        raise TypeError(f"samples are an iterable of samples, not {type(items).__name__}")
    if hasattr(items, "__array_interface__"):
        items = _Rows(items)
    elif not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        items = list(items)
    if labels and len(labels) != len(items):
        raise ValueError(f"{len(labels)} labels for {len(items)} samples")
    if samples.masks is not None and len(samples.masks) != len(items):
        raise ValueError(f"{len(samples.masks)} masks for {len(items)} samples")
    return _core.SampleSource(items, labels, "", samples.subset, samples.masks)


def _progress(callback: ProgressCallback | None) -> Any:
    return None if callback is None else lambda what, share, left: callback(Progress(what, share, left))


def _engine_of(data: bytes | None, path: Path | None, device: str, report: BuildReport | None, libraries: Iterable[Path],
               log: Log | None, weights: Path | None = None) -> Engine:
    source = data if path is None else path
    assert source is not None
    return Engine(source, device=device, libraries=list(libraries), weights=weights, report=report, log=log, is_deferred=True)


def build(model: Any, path: Path | None = None, *, calibrate: Any = None, folder: Path | None = None,
          device: str = "auto", progress: ProgressCallback | None = None, log: Log | None = None,
          weights: Path | None = None, **options: Unpack[BuildOptions]) -> Engine:
    """Builds an engine from an ONNX model, and writes it to `path` if that is given.

    The engine's `report` has the decisions and the findings of the self-check. It is loaded when it is first used, on
    `device`, so that engines for other machines can be built.

    model: a path, bytes, or an onnx.ModelProto. folder: of the external data of a model in memory. calibrate: samples
    for int8: Samples, an iterable of samples, or the path of a folder. progress: called with a Progress; False cancels
    (CancelledError), and Ctrl-C raises KeyboardInterrupt. Other threads of Python run meanwhile. log: a logging.Logger, or
    a function of a level and a text, which gets each step of the build and warnings. weights: a file for the weights, which
    the engine at `path` then does not hold (docs/refit.md). options: those of BuildOptions.
    """
    check_names(build, options)
    if weights is not None and path is None:
        raise ValueError("weights is a file beside the engine: give the engine a path, too")
    core = core_options(options, log)
    core.weights_path = "" if weights is None else os.fspath(weights)
    samples = None if calibrate is None else _sample_source(calibrate)
    made, report = _core.build(_model_source(model, folder), core, samples, _progress(progress),
                               "" if path is None else os.fspath(path))
    for warning in report["warnings"]:
        warnings.warn(warning, stacklevel=2)
    return _engine_of(made, path, device, make_build_report(report), options.get("libraries", ()), log, weights)


def refit(engine: Path | bytes | Engine, model: Any, path: Path | None = None, *, weights: Path | None = None,
          folder: Path | None = None, device: str = "auto", threads: int = 0, libraries: Iterable[Path] = (),
          progress: ProgressCallback | None = None, log: Log | None = None) -> Engine:
    """Builds an engine again with the weights of another model of its topology (docs/refit.md).

    The engine keeps its options, precisions, ranges and kernels: nothing is timed, calibrated or compared with f32. A
    model that does not fit is refused with its first difference (InvalidModelError).

    engine: a path, bytes, or an Engine. path: writes the new engine there, which may be the old one; then `engine` must
    be a file. Without it the new engine is in memory. weights: of an engine whose weights are in a file of their own:
    writes the new ones there. Without `path` that engine stays as it is. The engine's report has the number of weights
    that changed. model, folder, progress, log and the other options are as in build().
    """
    libraries = list(libraries)
    options = core_options({"threads": threads, "libraries": libraries}, log)
    options.weights_path = "" if weights is None else os.fspath(weights)
    source = _model_source(model, folder)
    if isinstance(engine, Engine):
        engine = engine.to_bytes() if engine.path is None else engine.path
    if not isinstance(engine, (bytes, bytearray, memoryview)):
        if path is not None or weights is not None:
            _, _, report = _core.refit_file(os.fspath(engine), source, options, _progress(progress),
                                            "" if path is None else os.fspath(path))
            return _engine_of(None, engine if path is None else path, device, make_build_report(report), libraries, log, weights)
        with open(engine, "rb") as file:
            engine = file.read()
    if path is not None:
        raise ValueError("an engine in memory is refitted in memory: leave out path, and save() the result")
    made, made_weights, report = _core.refit_bytes(bytes(engine), source, options, _progress(progress))
    if made_weights:
        if weights is None:
            raise ValueError("the weights of this engine are in a file of their own: name the new one with weights=")
        part = f"{os.fspath(weights)}.{os.getpid()}.{threading.get_ident()}.part"  # the file is whole or as it was
        try:
            with open(part, "wb") as file:
                file.write(made_weights)
            os.replace(part, weights)
        except BaseException:
            if os.path.exists(part):
                os.remove(part)
            raise
    elif weights is not None:
        raise ValueError("this engine has its weights: leave out weights")
    return _engine_of(made, None, device, make_build_report(report), libraries, log, weights)


def calibrate(model: Any, samples: Any, *, folder: Path | None = None, progress: ProgressCallback | None = None,
              log: Log | None = None, **options: Unpack[BuildOptions]) -> Calibration:
    """Measures the ranges of the model's tensors over samples, in f32 on the CPU, for the `ranges` of build().

    model, samples, progress, log and options are as in build().
    """
    check_names(calibrate, options)
    table, remarks = _core.calibrate(_model_source(model, folder), _sample_source(samples), core_options(options, log),
                                      _progress(progress))
    return Calibration(table, remarks)


def tune(model: Any, samples: Any, metric: str | Metric | Callable[[Answer], float], path: Path | None = None, *,
         budget: float = 0.5, calibrate_samples: int = 0, search_samples: int = 0, seconds: float = 0,
         modelled_times: bool = False, most_groups: int = 40, journal: Path = "", journal_key: str = "",
         output: str = "", folder: Path | None = None, device: str = "auto", progress: ProgressCallback | None = None,
         log: Log | None = None, **options: Unpack[BuildOptions]) -> tuple[Engine, Frontier]:
    """Finds the fastest mix of precisions within an accuracy budget, by measured latency and accuracy.

    Returns the engine and the frontier of all mixes that were measured.

    metric: "top1", "top5", "miou", "miou-f32", "cosine", "sqnr", "max-error"; or a Metric, or a function from an Answer
    to a number, more being better. output: the output that a named metric judges. budget: the largest drop against f32 in
    the metric's unit. calibrate_samples, search_samples: sizes of those sets; 0: 20 % and 30 %. seconds: when to stop; 0:
    no limit. journal: a file from which an interrupted call resumes. model, samples, progress, log and options are as in
    build(). precision: those to choose from.
    """
    check_names(tune, options)
    made = core_options(options, log)
    made.set_tuning(budget, calibrate_samples, search_samples, seconds, modelled_times, most_groups, os.fspath(journal),
                    journal_key)
    if isinstance(metric, str):
        source = _core.MetricSource(metric, output, None, "", False, False)
    else:
        measured = metric if isinstance(metric, Metric) else Metric(metric, getattr(metric, "__name__", "metric"))
        source = _core.MetricSource(measured.name, "", lambda *parts: float(measured.judge(Answer(*parts))), measured.unit,
                                    measured.wants_reference, measured.wants_masks)
    engine, frontier = _core.tune(_model_source(model, folder), _sample_source(samples), source, made,
                                  _progress(progress), "" if path is None else os.fspath(path))
    return _engine_of(engine, path, device, None, options.get("libraries", ()), log), Frontier(frontier)


def inspect(path: Path) -> dict[str, Any]:
    """The contents of a model or an engine file, as `anneal inspect --json` prints them (docs/cli.md).

    Of an engine: weights in bytes, and of each plan its inputs, outputs, steps with kernels, and decisions, each a list of
    dicts that suits pandas.DataFrame.
    """
    return dict(json.loads(_core.inspect(os.fspath(path))))
