"""Why a graph is left to eager mode: the exception, its text, and the log."""

from __future__ import annotations

import dataclasses
import logging
import re
import threading

import anneal

log = logging.getLogger("anneal.torch")


class Refused(Exception):
    """A graph that Anneal does not run, or one call of it; the text is the reason."""

    def __init__(self, reason: str, *, is_of_call: bool = False) -> None:
        super().__init__(reason)
        self.is_of_call = is_of_call


@dataclasses.dataclass
class Counters:
    """What happened in this process since it began, or since the last clear().

    builds: engines that were built. cache_hits: engines of the folder of the cache. reused: engines that were in memory
    already. fallbacks: graphs, and calls of a graph, that were left to eager mode.
    """

    builds: int = 0
    cache_hits: int = 0
    reused: int = 0
    fallbacks: int = 0

    def add(self, name: str) -> None:
        """Counts one more."""
        with _lock:
            setattr(self, name, getattr(self, name) + 1)

    def clear(self) -> None:
        """Sets all to 0."""
        with _lock:
            for field in dataclasses.fields(self):
                setattr(self, field.name, 0)


_lock = threading.Lock()
counters = Counters()
_said: set[str] = set()


def say_once(text: str) -> None:
    """A warning in the log; the same text is logged once."""
    with _lock:
        if text in _said:
            return
        _said.add(text)
    log.warning("%s", text)


def say_fallback(graph: str, reason: str) -> None:
    """Counts a fallback and logs its reason once."""
    counters.add("fallbacks")
    say_once(f"{graph} runs in eager mode: {reason}")


def _chain(error: BaseException) -> list[BaseException]:
    errors: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in errors:
        errors.append(at)
        at = at.__cause__ or at.__context__
    return errors


def reason_of(error: BaseException) -> str:
    """The reason in one line, with the operator that it is about."""
    if isinstance(error, anneal.Error):
        return f"Anneal: {' '.join(str(error).split())}"
    chain = _chain(error)
    text = "\n".join(str(each) for each in chain)
    if isinstance(error, ImportError):
        return f"torch.onnx lacks a package: {error}"
    found = re.search(r"No ONNX function found for <OpOverload\(op='([\w.:]+)', overload='(\w+)'\)>", text)
    if found is None:
        found = re.search(r"No ONNX function found for .*?op='?([\w.:]+)()", text)
    if found is not None:
        return f"torch.onnx has no translation of {'.'.join(part for part in found.groups() if part)}"
    last = chain[-1]
    lines = str(last).splitlines() or [""]
    where = re.search(r"While executing .*?target=(?:torch\.ops\.)?([\w.]+)", text)
    return f"torch.onnx: {type(last).__name__}: {lines[0]}" + (f" (at {where.group(1)})" if where else "")
