"""Reports of builds, runs and tuning, as dataclasses. Each has to_dict(); lists of rows suit pandas.DataFrame."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, TypeVar

from anneal import _core

_Part = TypeVar("_Part")


class _Report:
    def to_dict(self) -> dict[str, Any]:
        """All fields by name, with dicts in place of the dataclasses inside."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]


def _list_of(cls: type[_Part], rows: list[dict[str, Any]]) -> list[_Part]:
    return [cls(**row) for row in rows]


@dataclasses.dataclass(frozen=True)
class Progress(_Report):
    """The progress of a call that takes long.

    what: what is being done. share: of the call that is done, from 0 to 1, an estimate. seconds_left: None if unknown.
    """

    what: str
    share: float
    seconds_left: float | None


@dataclasses.dataclass(frozen=True)
class Decision(_Report):
    """A decision about a layer or value, with its reason: "fuse_epilogue", "conv1", "joined relu1"."""

    stage: str
    subject: str
    text: str


@dataclasses.dataclass(frozen=True)
class Step(_Report):
    """A layer of a plan: its name, its op ("Conv"), the kernel that runs it and the device."""

    name: str
    op: str
    kernel: str
    device: str


@dataclasses.dataclass(frozen=True)
class Pass(_Report):
    """One run of a pass of the optimizer, the number of layers afterwards, and the index of the profile."""

    name: str
    targets: str
    is_exact: bool
    has_changed: bool
    rewrites: int
    milliseconds: float
    layers: int
    profile: int


@dataclasses.dataclass(frozen=True)
class Plan(_Report):
    """The plan of an engine for a target and a profile, which is an index of the shapes that were given.

    decisions: what `anneal inspect --decisions` shows. arena_bytes: bytes of activations by device, the CPU last; empty
    if a size is open. run_bytes: bytes of activations, inputs and outputs at the sizes to optimize for; 0: not known.
    """

    target: str
    profile: int
    steps: list[Step]
    decisions: list[Decision]
    fallbacks: list[Decision]
    gpu_steps: int
    cpu_steps: int
    copy_steps: int
    arena_bytes: list[int]
    code_bytes: int
    run_bytes: int


@dataclasses.dataclass(frozen=True)
class CheckedLayer(_Report):
    """A layer that the self-check gave back to f32, and the reason."""

    name: str
    why: str


@dataclasses.dataclass(frozen=True)
class SelfCheck(_Report):
    """What comparing with f32 found.

    outcome: inputs compared, or why none. warning: the loss that remains beyond the precision, with its layer, or "".
    """

    is_compared: bool
    outcome: str
    warning: str
    back_to_f32: list[CheckedLayer]
    milliseconds: float


@dataclasses.dataclass(frozen=True)
class BuildReport(_Report):
    """What a build did: a plan for each target, the passes, sizes in bytes, times in milliseconds, warnings.

    Of refit(): the number of stored weights, how many changed, and how many scalars within programs of the plan did.
    """

    plans: list[Plan]
    passes: list[Pass]
    imported_layers: int
    weight_bytes: int
    engine_bytes: int
    import_milliseconds: float
    build_milliseconds: float
    self_check: SelfCheck
    warnings: list[str]
    weights: int = 0
    changed_weights: int = 0
    changed_literals: int = 0

    @property
    def decisions(self) -> list[Decision]:
        """The decisions of all plans."""
        return [decision for plan in self.plans for decision in plan.decisions]


def make_build_report(fields: dict[str, Any]) -> BuildReport:
    plans = [Plan(**{**plan, "steps": _list_of(Step, plan["steps"]), "decisions": _list_of(Decision, plan["decisions"]),
                     "fallbacks": _list_of(Decision, plan["fallbacks"])}) for plan in fields["plans"]]
    check = fields["self_check"]
    checked = SelfCheck(**{**check, "back_to_f32": _list_of(CheckedLayer, check["back_to_f32"])})
    return BuildReport(**{**fields, "plans": plans, "passes": _list_of(Pass, fields["passes"]), "self_check": checked})


@dataclasses.dataclass(frozen=True)
class StepTime(_Report):
    """The time of a step in one run, in microseconds, and how often it ran."""

    step: str
    kernel: str
    microseconds: float
    times: int


@dataclasses.dataclass(frozen=True)
class Profile(_Report):
    """A run with the time of each step. outputs: arrays by name."""

    outputs: dict[str, Any]
    steps: list[StepTime]

    @property
    def microseconds(self) -> float:
        """Of all steps together."""
        return sum(step.microseconds for step in self.steps)

    def to_rows(self) -> list[dict[str, Any]]:
        """A dict for each step, for pandas.DataFrame(profile.to_rows())."""
        return [step.to_dict() for step in self.steps]


@dataclasses.dataclass(frozen=True)
class Observation(_Report):
    """A tensor of a run, right after the step that computed it.

    name: of the value in the model. step, kernel: empty for inputs of a body. value: a copy, as a NumPy array. iterations:
    for a tensor in a loop, the name of each loop around it and the number of its iteration, from 0, the outermost first.
    """

    name: str
    step: str
    kernel: str
    value: Any
    iterations: tuple[tuple[str, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class ComparedTensor(_Report):
    """A tensor that two engines have.

    time: counts the tensors of this name, from 1, in a loop. type: dtype and shape, "f32[1,8]". is_output: of the model.
    agrees: within the tolerance; reason: why not. max_abs_error, max_rel_error: the largest of an element; infinite: NaN,
    or another shape. sqnr_db: signal to quantization noise in dB, infinite if all elements are equal. agrees_alone: whether
    A's step agrees if it is given B's tensors, so that the difference comes from its inputs; None: not asked.
    """

    name: str
    time: int
    type: str
    is_output: bool
    step_a: str
    kernel_a: str
    step_b: str
    kernel_b: str
    agrees: bool
    reason: str
    max_abs_error: float
    max_rel_error: float
    sqnr_db: float
    cosine: float
    agrees_alone: bool | None


@dataclasses.dataclass(frozen=True)
class Comparison(_Report):
    """Two engines on the same inputs. tensors: those that both have, in the order in which A computes them.

    only_in_a, only_in_b: number of tensors that the other one fused or left out.
    """

    tensors: list[ComparedTensor]
    only_in_a: int
    only_in_b: int

    @property
    def agrees(self) -> bool:
        """Whether all tensors agree."""
        return all(tensor.agrees for tensor in self.tensors)

    @property
    def outputs(self) -> list[ComparedTensor]:
        """The outputs of the model."""
        return [tensor for tensor in self.tensors if tensor.is_output]

    @property
    def first_difference(self) -> ComparedTensor | None:
        """The first tensor that differs."""
        return next((tensor for tensor in self.tensors if not tensor.agrees), None)

    def to_rows(self) -> list[dict[str, Any]]:
        """A dict for each tensor, for pandas.DataFrame(comparison.to_rows())."""
        return [tensor.to_dict() for tensor in self.tensors]

    def __str__(self) -> str:
        differing = [tensor for tensor in self.tensors if not tensor.agrees]
        shown = sorted(self.tensors, key=lambda tensor: (tensor.agrees, -tensor.max_abs_error))[:10]
        rows = [("", "tensor", "type", "kernel of A", "max abs", "max rel", "SQNR dB")]
        for tensor in shown:
            verdict = "ok" if tensor.agrees else "inherits" if tensor.agrees_alone else "DIFFERS"
            rows.append((verdict, tensor.name + (f" (time {tensor.time})" if tensor.time > 1 else ""), tensor.type,
                         tensor.kernel_a, f"{tensor.max_abs_error:.3g}", f"{tensor.max_rel_error:.3g}",
                         f"{tensor.sqnr_db:.1f}"))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        verdict = f"{len(differing)} of {len(self.tensors)} tensors differ" if differing else \
            f"all {len(self.tensors)} tensors agree"
        first = self.first_difference
        return "\n".join([*lines, verdict + (f"; the first is {first.name}: {first.reason}" if first else "")])


def make_comparison(text: str) -> Comparison:
    fields = json.loads(text)

    def compared(row: dict[str, Any]) -> ComparedTensor:
        values = {"reason": "", "agrees_alone": None, **row}
        for name in ("max_abs_error", "max_rel_error", "sqnr_db", "cosine"):
            values[name] = float("inf" if values[name] is None else values[name])  # JSON has no infinity, and NaN as text
        return ComparedTensor(**{field.name: values[field.name] for field in dataclasses.fields(ComparedTensor)})

    return Comparison([compared(row) for row in fields["tensors"]], fields["only_in_a"], fields["only_in_b"])


@dataclasses.dataclass(frozen=True)
class Range(_Report):
    """The range of a tensor: values outside min to max are clamped; the samples' values were seen_min to seen_max."""

    min: float
    max: float
    seen_min: float
    seen_max: float
    method: str


@dataclasses.dataclass(frozen=True)
class Calibration(_Report):
    """The ranges of a model's tensors. table: text to read, compare and edit, which anneal.build() takes."""

    table: str
    warnings: list[str]

    @property
    def ranges(self) -> dict[str, Range]:
        """By the tensor's name in the model."""
        return {name: Range(**fields) for name, fields in _core.ranges(self.table).items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the table, for `anneal build --calibration` and Calibration.read()."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.table)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Calibration:
        """A table that save() or `anneal calibrate` wrote."""
        with open(path, encoding="utf-8") as file:
            return Calibration(file.read(), [])


@dataclasses.dataclass(frozen=True)
class Frontier(_Report):
    """Accuracy against latency of mixes of precisions. json: every field, as `anneal tune` writes them."""

    json: str

    @property
    def points(self) -> list[dict[str, Any]]:
        """A dict for each mix, for pandas.DataFrame: name, milliseconds, scores, bytes."""
        return list(json.loads(self.json)["points"])

    @property
    def chosen(self) -> dict[str, Any]:
        """The point that the engine is built from."""
        return dict(self.points[json.loads(self.json)["chosen"]])

    @property
    def speed(self) -> str:
        """A phrase: "mix-3: 2.1x as fast as f32"."""
        return _core.frontier_summary(self.json)[0]

    @property
    def loss(self) -> str:
        """A phrase: "loses 0.4 points (95 %: -0.8 to 1.6)"."""
        return _core.frontier_summary(self.json)[1]

    def svg(self) -> str:
        """A picture: latency in milliseconds across, the score up."""
        return _core.frontier_text(self.json, "svg")

    def csv(self) -> str:
        """A table for spreadsheets."""
        return _core.frontier_text(self.json, "csv")

    def __str__(self) -> str:
        return _core.frontier_text(self.json, "table")
