"""Errors. Each is an anneal.Error with its code, and where it is about an input or output, its name and shape."""

from __future__ import annotations

import enum
from collections.abc import Sequence


class ErrorCode(enum.IntEnum):
    """What kind of error it is, as anneal::ErrorCode of C++."""

    INVALID_MODEL = 0
    UNSUPPORTED = 1
    INVALID_ARGUMENT = 2
    INCOMPATIBLE_PLAN = 3
    IO = 4
    DEVICE = 5
    INTERNAL = 6
    CANCELLED = 7
    OUT_OF_MEMORY = 8
    LIMIT = 9
    CANNOT_WRITE = 10


class Error(Exception):
    """Every error of Anneal.

    code: its kind. port: the name of the input or output that it is about, or "". dims: the shape that was given, in
    elements, or ().
    """

    code: ErrorCode = ErrorCode.INTERNAL
    port: str = ""
    dims: tuple[int, ...] = ()


class InvalidModelError(Error, ValueError):
    """The ONNX file is malformed or contradicts itself."""


class UnsupportedError(Error, NotImplementedError):
    """Well-formed, but nothing in Anneal implements it."""


class InvalidArgumentError(Error, ValueError):
    """Names, types, shapes or options do not fit."""


class IncompatiblePlanError(Error):
    """The engine file is damaged, or of another version or target."""


class ReadError(Error, OSError):
    """A file cannot be read."""


class DeviceError(Error):
    """A device or one of its libraries failed."""


class InternalError(Error):
    """A bug of Anneal."""


class CancelledError(Error):
    """A progress callback returned False. Ctrl-C raises KeyboardInterrupt instead."""


class OutOfMemoryError(Error, MemoryError):
    """An allocation failed, on the host or on a device."""


class LimitError(Error):
    """A limit that the caller set, such as max_memory, is too small."""


class CannotWriteError(Error, OSError):
    """A file cannot be written."""


_CLASSES: dict[ErrorCode, type[Error]] = {
    ErrorCode.INVALID_MODEL: InvalidModelError,
    ErrorCode.UNSUPPORTED: UnsupportedError,
    ErrorCode.INVALID_ARGUMENT: InvalidArgumentError,
    ErrorCode.INCOMPATIBLE_PLAN: IncompatiblePlanError,
    ErrorCode.IO: ReadError,
    ErrorCode.DEVICE: DeviceError,
    ErrorCode.INTERNAL: InternalError,
    ErrorCode.CANCELLED: CancelledError,
    ErrorCode.OUT_OF_MEMORY: OutOfMemoryError,
    ErrorCode.LIMIT: LimitError,
    ErrorCode.CANNOT_WRITE: CannotWriteError,
}


def make_error(code: int, message: str, port: str, dims: Sequence[int]) -> Error:
    """The exception of an anneal::Error; anneal._core calls this."""
    error = _CLASSES[ErrorCode(code)](message)
    error.code, error.port, error.dims = ErrorCode(code), port, tuple(dims)
    return error
