"""Anneal compiles ONNX models into engine files that run fast, and checks every reduced precision against f32.

    import anneal, numpy
    engine = anneal.build("model.onnx", precision="bf16")
    session = engine.session()
    outputs = session.run({"image": numpy.zeros((1, 3, 224, 224), "float32")})
"""

from anneal import _core
from anneal._build import Answer, Metric, Samples, build, calibrate, inspect, refit, tune
from anneal._compare import compare
from anneal._core import Stream, TensorInfo
from anneal._engine import Engine, Session, load, stream_of
from anneal._errors import (
    CancelledError,
    CannotWriteError,
    DeviceError,
    Error,
    ErrorCode,
    IncompatiblePlanError,
    InternalError,
    InvalidArgumentError,
    InvalidModelError,
    LimitError,
    OutOfMemoryError,
    ReadError,
    UnsupportedError,
)
from anneal._options import BuildOptions, Shapes
from anneal._reports import (
    BuildReport,
    Calibration,
    ComparedTensor,
    Comparison,
    Decision,
    Frontier,
    Observation,
    Pass,
    Plan,
    Profile,
    Progress,
    Range,
    SelfCheck,
    Step,
    StepTime,
)

__version__ = _core.version()

__all__ = [
    "Answer",
    "BuildOptions",
    "BuildReport",
    "Calibration",
    "CancelledError",
    "CannotWriteError",
    "ComparedTensor",
    "Comparison",
    "Decision",
    "DeviceError",
    "Engine",
    "Error",
    "ErrorCode",
    "Frontier",
    "IncompatiblePlanError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidModelError",
    "LimitError",
    "Metric",
    "Observation",
    "OutOfMemoryError",
    "Pass",
    "Plan",
    "Profile",
    "Progress",
    "Range",
    "ReadError",
    "Samples",
    "SelfCheck",
    "Session",
    "Shapes",
    "Step",
    "StepTime",
    "Stream",
    "TensorInfo",
    "UnsupportedError",
    "__version__",
    "build",
    "calibrate",
    "compare",
    "inspect",
    "load",
    "refit",
    "stream_of",
    "tune",
]
