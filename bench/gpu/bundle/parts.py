"""The parts of a run, in order of value, and how long each may take."""

import time
from dataclasses import dataclass
from typing import Callable

import bundle.engines as engines
import bundle.facts as facts
import bundle.kernels as kernels
import bundle.networks as networks
import bundle.op_cases as op_cases
import bundle.tools as tools
import bundle.torch_layers as torch_layers


class Deadline:
    """The end of a part."""

    def __init__(self, setting, seconds):
        self.setting, self.end, self.was_reached = setting, time.monotonic() + seconds, False

    def left(self):
        """Seconds; 0 once it was reached or the run is told to end, and then the part is cut."""
        left = self.end - time.monotonic()
        if left <= 0 or self.setting.ending.is_set():
            self.was_reached = True
            return 0.0
        return left


@dataclass
class Part:
    """run(setting, record, deadline) gives None, or why the part is not available."""
    name: str
    seconds: float          # on a card
    emulated_seconds: float
    run: Callable
    programs: tuple = ()    # what its results depend on
    modules: tuple = ()
    is_default: bool = True

    def limit(self, setting):
        return self.emulated_seconds if setting.emulated else self.seconds

    def code(self, setting):
        return setting.code(self.programs, self.modules)


PARTS = (
    Part("facts", 45, 30, facts.run, (), ("facts", "torch_ceilings")),
    Part("engines", 70, 120, engines.run, ("anneal", "gpu_test"), ("engines",)),
    Part("op_cases", 120, 120, op_cases.run, ("cuda_op_suite_test",), ("op_cases",)),
    Part("kernels", 110, 120, kernels.run, ("anneal_gpu_times",), ("kernels", "shapes")),
    Part("torch", 80, 30, torch_layers.run, (), ("torch_layers", "torch_shapes", "torch_timing", "shapes")),
    Part("networks", 150, 120, networks.run, ("anneal",), ("networks", "torch_networks", "torch_timing")),
    Part("tools", 90, 60, tools.run, ("cuda_op_suite_test", "anneal_gpu_times"), ("tools", "shapes")),
    Part("compile", 540, 30, networks.run_compiled, (), ("networks", "torch_networks", "torch_timing"),
         is_default=False),
)
