"""The parts of a run, in order of value, and how long each may take."""

from dataclasses import dataclass
from typing import Callable

import bundle.engines as engines
import bundle.facts as facts
import bundle.kernels as kernels
import bundle.networks as networks
import bundle.op_cases as op_cases
import bundle.tools as tools
import bundle.torch_layers as torch_layers


@dataclass
class Part:
    """run(setting, record, deadline) gives None, or why the part is not available."""
    name: str
    seconds: float          # on a card, of a run of nine minutes
    emulated_seconds: float
    run: Callable
    programs: tuple = ()    # what its results depend on
    modules: tuple = ()
    is_default: bool = True

    def weight(self, setting):
        return self.emulated_seconds if setting.emulated else self.seconds

    def code(self, setting):
        return setting.code(self.programs, self.modules)


def limit_of(part, later, setting, left):
    """The share of the time that is left which the first of several parts may take; what it leaves goes to the later."""
    mine = part.weight(setting)
    return left * mine / (mine + sum(each.weight(setting) for each in later))


# Seconds of parts that run by default make up 540: each is sure of as much, for those before it end by then.
PARTS = (
    Part("facts", 45, 30, facts.run, (), ("facts", "torch_ceilings")),
    Part("engines", 65, 120, engines.run, ("anneal", "gpu_test"), ("engines",)),
    Part("op_cases", 115, 120, op_cases.run, ("cuda_op_suite_test",), ("op_cases",)),
    Part("kernels", 85, 120, kernels.run, ("anneal_gpu_times",), ("kernels", "shapes")),
    Part("torch", 60, 30, torch_layers.run, (), ("torch_layers", "torch_shapes", "torch_timing", "shapes")),
    Part("networks", 115, 120, networks.run, ("anneal",),
         ("networks", "made_networks", "torch_networks", "torch_timing")),
    Part("tools", 55, 60, tools.run, ("cuda_op_suite_test", "anneal_gpu_times"),
         ("tools", "op_cases", "kernels", "shapes")),
    Part("compile", 540, 30, networks.run_compiled, (), ("networks", "torch_networks", "torch_timing"),
         is_default=False),
)
