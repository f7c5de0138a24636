"""Options of the backend and of optimize()."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from anneal._build import ProgressCallback
from anneal._options import OPTION_NAMES, CommonOptions, Log, closest, names_of

_OWN = ("fallback", "cache", "threads")
_BUILD = {*OPTION_NAMES, "device", "progress", "log", "calibrate"} - {"shapes", "threads"}


class OptimizeOptions(CommonOptions, total=False):
    """The options of anneal.build() that optimize() takes."""

    device: str
    progress: ProgressCallback | None
    log: Log | None


@dataclasses.dataclass(frozen=True)
class Settings:
    """fallback: eager mode where Anneal cannot. cache: keep engines in the folder of the cache. threads: most threads of
    a run; 0: torch.get_num_threads(). build: options of anneal.build()."""

    fallback: bool = True
    cache: bool = True
    threads: int = 0
    build: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def settings_of(options: Mapping[str, Any] | None) -> Settings:
    """Checks the names of options."""
    given = dict(options or {})
    own = {name: given.pop(name) for name in _OWN if name in given}
    unknown = next((name for name in given if name not in _BUILD), None)
    if unknown is not None:
        raise TypeError(f'there is no option "{unknown}"{closest(unknown, {*_OWN, *_BUILD})}')
    wanted = {*names_of(given.get("precision")), *(given.get("layer_precision") or {}).values()}
    if "int8" in wanted and given.get("calibrate") is None and given.get("ranges") is None:
        raise ValueError('precision="int8" needs samples, to measure ranges of tensors: give calibrate=[...], each sample the '
                         "arguments of a call")
    if given.get("calibrate") is not None:
        given["calibrate"] = list(given["calibrate"])  # each graph reads them
    return Settings(**own, build=given)
