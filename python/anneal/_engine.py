"""Engine and Session."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from anneal import _core
from anneal._errors import ErrorCode, InvalidArgumentError
from anneal._options import Log, Path, log_function
from anneal._reports import BuildReport, Observation, Profile, StepTime


def load(source: Path | bytes, *, device: str = "auto", map: bool = True, threads: int = 0,
         libraries: Sequence[Path] = (), weights: Path | None = None, log: Log | None = None) -> Engine:
    """Loads an engine file: a path, or the bytes of one.

    device: "auto" (a GPU if the engine has a plan for one and the machine has one, else the CPU), "cpu", "cpu:avx2",
    "cuda", "cuda:1", "emulated". map: False reads the file instead of mapping it. threads: most threads that load; 0:
    one per core. libraries: files with kernels of other operators (docs/custom_kernels.md). weights: the file of weights
    of an engine that does not hold them (docs/refit.md). log: a logging.Logger, or a function of a level and a text,
    which gets what was loaded, and warnings of loading and of all runs.
    """
    return Engine(source, device=device, map=map, threads=threads, libraries=libraries, weights=weights, log=log)


def stream_of(stream: Any) -> _core.Stream:
    """A Stream: itself, or that of a CUDA stream object with `__cuda_stream__` or `cuda_stream`, or of an address."""
    if isinstance(stream, _core.Stream):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        described = stream.__cuda_stream__
        return _core.Stream.from_cuda_address(int((described() if callable(described) else described)[1]))
    if hasattr(stream, "cuda_stream"):  # torch
        return _core.Stream.from_cuda_address(int(stream.cuda_stream))
    if isinstance(stream, int):
        return _core.Stream.from_cuda_address(stream)
    raise TypeError(f"{type(stream).__name__} is no stream: give an anneal.Stream, or an object with __cuda_stream__")


class Engine:
    """A loaded engine: share one between any number of threads, and give each a session of its own.

    anneal.load() and anneal.build() make engines. An engine that was built for another machine is loaded when it is
    first used. Pickled engines and copies hold the path of their file, or without a file its bytes; they are loaded when
    they are first used, and lose their log.
    """

    def __init__(self, source: Path | bytes, *, device: str = "auto", map: bool = True, threads: int = 0,
                 libraries: Sequence[Path] = (), weights: Path | None = None, report: BuildReport | None = None,
                 log: Log | None = None,
                 is_deferred: bool = False) -> None:
        self._bytes: bytes | None = None
        self._path: str | None = None
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._bytes = bytes(source)
        else:
            self._path = os.path.abspath(os.fspath(source))
        self._options: dict[str, Any] = {"device": device, "map": map, "threads": threads,
                                         "libraries": [os.path.abspath(os.fspath(each)) for each in libraries],
                                         "weights": os.path.abspath(os.fspath(weights)) if weights else ""}
        self._report = report
        self._log = log_function(log)
        self._core: _core.Engine | None = None
        self._loading, self._process, self._is_loading = threading.RLock(), os.getpid(), False
        if not is_deferred:
            self._loaded()

    def _loaded(self) -> _core.Engine:
        if self._core is not None:
            return self._core
        if self._process != os.getpid():  # a thread of the parent process may have held the lock
            self._loading, self._process, self._is_loading = threading.RLock(), os.getpid(), False
        with self._loading:
            if self._core is None:
                if self._is_loading:
                    raise _invalid_argument("the engine is being loaded: its log must not use it")
                self._is_loading = True
                try:
                    self._core = self._load()
                finally:
                    self._is_loading = False
            return self._core

    def _load(self) -> _core.Engine:
        device, threads, libraries, weights = (self._options[name] for name in ("device", "threads", "libraries", "weights"))
        if self._bytes is not None:
            return _core.Engine.load_bytes(self._bytes, device, threads, libraries, weights, self._log)
        return _core.Engine.load_file(str(self._path), device, self._options["map"], threads, libraries, weights, self._log)

    @property
    def inputs(self) -> tuple[_core.TensorInfo, ...]:
        """Name, dtype and shape of each input, in the model's order."""
        return self._loaded().inputs

    @property
    def outputs(self) -> tuple[_core.TensorInfo, ...]:
        """Name, dtype and shape of each output, in the model's order."""
        return self._loaded().outputs

    @property
    def device(self) -> str:
        """What it runs on, for people."""
        return self._loaded().device

    @property
    def load_warnings(self) -> list[str]:
        """A sentence for each step whose planned kernel this machine lacks, with its replacement."""
        return self._loaded().load_warnings

    @property
    def report(self) -> BuildReport | None:
        """What the build decided and found; None of an engine that was loaded."""
        return self._report

    @property
    def path(self) -> str | None:
        """The engine file; None of an engine in memory."""
        return self._path

    def to_bytes(self) -> bytes:
        """The engine file."""
        if self._bytes is not None:
            return self._bytes
        assert self._path is not None
        with open(self._path, "rb") as file:
            return file.read()

    def save(self, path: Path) -> None:
        """Writes the engine file, whole or not at all."""
        target = os.path.abspath(os.fspath(path))
        partial = f"{target}.{os.getpid()}.part"
        try:
            with open(partial, "wb") as file:
                file.write(self.to_bytes())
            os.replace(partial, target)
        except BaseException:
            if os.path.exists(partial):
                os.remove(partial)
            raise

    def session(self, *, threads: int = 0, shape_cache_size: int = 8, max_memory: int = 0, spin: bool = False,
                prewarm: bool = True, micro_batch: int = 0, profile: int | None = None) -> Session:
        """Makes what runs inferences; cheap beside the engine. Make one for each thread.

        threads: most threads of one run, the caller's included; 0: one per core. shape_cache_size: number of input shapes
        that stay prepared. max_memory: most bytes of activations, workspaces and outputs; 0: no limit. spin: keep a core
        busy while a GPU runs. prewarm: prepare the shapes declared at build. micro_batch: rows at a time; 0: chosen.
        profile: index of the optimization profile; None: by the shapes of the inputs.
        """
        return Session(self, threads=threads, shape_cache_size=shape_cache_size, max_memory=max_memory, spin=spin,
                       prewarm=prewarm, micro_batch=micro_batch, profile=profile)

    def __reduce__(self) -> tuple[Any, ...]:
        return _engine_again, (self._path if self._bytes is None else self._bytes, self._options, self._report)

    def __repr__(self) -> str:
        return f"<anneal.Engine {self._path or 'in memory'}>"


def _engine_again(source: Path | bytes, options: dict[str, Any], report: BuildReport | None) -> Engine:
    return Engine(source, report=report, is_deferred=True, **options)


class Session:
    """Runs inferences, one at a time: calls from several threads wait for each other. Engine.session() makes it.

    Arrays are NumPy arrays, or objects with DLPack or the buffer protocol (torch, JAX), of the input's dtype, in host memory or
    that of the engine's GPU. They are read in place, unless strides are negative or no multiple of the element: then they are copied. bf16
    is ml_dtypes.bfloat16, DLPack's, or the bits as uint16.
    """

    __slots__ = ("_core", "_engine", "_input_names", "_options", "_output_names", "__weakref__")

    def __init__(self, engine: Engine, **options: Any) -> None:
        self._engine, self._options = engine, options
        self._core = _core.Session(engine._loaded(), **options)
        self._input_names = [info.name for info in engine.inputs if info.state_output is None]
        kept = {info.state_output for info in engine.inputs}
        self._output_names = [info.name for info in engine.outputs if info.name not in kept]

    @property
    def engine(self) -> Engine:
        """What it runs."""
        return self._engine

    @overload
    def run(self, inputs: Mapping[str, Any], /, *, out: Mapping[str, Any] | None = None) -> dict[str, Any]: ...

    @overload
    def run(self, output_names: Sequence[str] | None, inputs: Mapping[str, Any], /, *,
            out: Mapping[str, Any] | None = None) -> list[Any]: ...

    def run(self, first: Any, second: Any = None, /, *, out: Mapping[str, Any] | None = None) -> Any:
        """Runs and waits; other threads of Python run meanwhile.

        run({"image": array}) returns a dict of all outputs: new NumPy arrays of the shapes that engine.outputs describes,
        or the arrays of `out`, which results are written to. As in ONNX Runtime, run(["scores"], {"image": array})
        returns a list of the named outputs, and run(None, {...}) a list of all. Outputs that are states are not among
        them: the session keeps them for its next run.
        """
        if second is None and first is not None:
            return self._core.run(_as_dict(first), _as_dict(out) if out else {})
        names = self._output_names if first is None else list(first)
        for name in names:
            if name not in self._output_names and any(info.name == name for info in self._engine.outputs):
                raise _invalid_argument(f'output "{name}" is a state that the session keeps: states() copies it', name)
            if name not in self._output_names:
                raise _invalid_argument(f'there is no output "{name}"; there are {", ".join(self._output_names)}', name)
        outputs = self._core.run(_as_dict(second), _as_dict(out) if out else {})
        return [outputs[name] for name in names]

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Runs with inputs in the model's order, states left out, or by name; returns the only output, or a tuple of all.

        out: the array for the only output, or a tuple with an array or None for each.
        """
        if len(arrays) > len(self._input_names):
            raise TypeError(f"{len(arrays)} inputs are given, the engine has {len(self._input_names)}")
        inputs = dict(zip(self._input_names, arrays))
        for name, array in named.items():
            if name in inputs:
                raise TypeError(f'input "{name}" is given twice')
            inputs[name] = array
        bound = () if out is None else out if isinstance(out, tuple) else (out,)
        if len(bound) > len(self._output_names):
            raise TypeError(f"{len(bound)} arrays are given for {len(self._output_names)} outputs")
        given = dict(zip(self._output_names, bound))
        outputs = self._core.run(inputs, given)
        results = tuple(outputs[name] for name in self._output_names)
        return results[0] if len(results) == 1 else results

    def profile(self, inputs: Mapping[str, Any], /, *, out: Mapping[str, Any] | None = None) -> Profile:
        """As run(), with the time of each step in microseconds."""
        outputs, steps = self._core.profile(_as_dict(inputs), _as_dict(out) if out else {})
        return Profile(outputs, [StepTime(*step) for step in steps])

    def observe(self, callback: Callable[[Observation], Any] | None, *,
                names: str | Callable[[str], bool] | None = None) -> None:
        """Calls `callback` with each tensor that a step of a later run computes; None ends that.

        names: a regular expression that matches whole names of tensors, or a function that says which to observe: others
        are not copied. Values inside fused layers are not observed. An exception of the callback ends the run and is raised
        by it. For finding errors: observed runs are slower.
        """
        wants = re.compile(names).fullmatch if isinstance(names, str) else names
        for given in (callback, wants):
            if given is not None and not callable(given):
                raise TypeError(f"{type(given).__name__} is no function")
        self._core.observe(None if callback is None else lambda *fields: callback(Observation(*fields)), wants)

    def enqueue(self, inputs: Mapping[str, Any], /, stream: Any, *, out: Mapping[str, Any] | None = None) -> None:
        """Begins a run and returns: the run is work of the stream, in order.

        Until wait(), the arrays must not change, and every other call but wait() and is_done() fails. stream: an
        anneal.Stream, or a CUDA stream of torch or CuPy.
        """
        self._core.enqueue(_as_dict(inputs), stream_of(stream), _as_dict(out) if out else {})

    def wait(self) -> dict[str, Any]:
        """Waits for the enqueued run and returns its outputs by name, or raises its error. Without a run: an empty dict."""
        return self._core.wait()

    def is_done(self) -> bool:
        """Whether wait() would return at once."""
        return self._core.is_done()

    def states(self) -> dict[str, Any]:
        """Copies of the states after the last run, by the names of their inputs: another session's run takes them as inputs."""
        return self._core.states()

    def reset_states(self, shapes: Mapping[str, Sequence[int]] | None = None) -> None:
        """The next run starts from the initial states: default values of inputs, else zeros. Open sizes follow from other
        inputs, or are the smallest.

        shapes: by the name of an input, the sizes of its zeros; -1 is an open size. If a cache of GroupQueryAttention begins
        with spare rows, runs update it in place. A full cache gets more rows.
        """
        self._core.reset_states(_as_dict(shapes or {}))

    def prepare(self, shapes: Mapping[str, Sequence[int]], /) -> None:
        """Prepares runs at these shapes: infers sizes, places memory and prepares kernels."""
        self._core.prepare(_as_dict(shapes))

    @property
    def memory_bytes(self) -> int:
        """Bytes of activations, workspaces and prepared shapes."""
        return self._core.memory_bytes

    @property
    def run_warnings(self) -> list[str]:
        """Sentences on steps that a GPU's driver did not capture as a graph, and on arrays of a GPU that are copied through the host."""
        return self._core.run_warnings

    @property
    def copied_inputs(self) -> int:
        """How many inputs were copied in all runs so far, since their strides are negative or no multiple of the element."""
        return self._core.copied_inputs

    def __reduce__(self) -> tuple[Any, ...]:
        return _session_again, (self._engine, self._options)

    def __repr__(self) -> str:
        return f"<anneal.Session of {self._engine!r}>"


def _session_again(engine: Engine, options: dict[str, Any]) -> Session:
    return Session(engine, **options)


def _invalid_argument(message: str, port: str = "") -> InvalidArgumentError:
    error = InvalidArgumentError(message)
    error.code, error.port = ErrorCode.INVALID_ARGUMENT, port
    return error


def _as_dict(items: Any) -> dict[str, Any]:
    if isinstance(items, dict):
        return items
    if isinstance(items, Mapping):
        return dict(items)
    raise TypeError(f"a dict from names to arrays is expected, not {type(items).__name__}")
