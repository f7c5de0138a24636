"""The parts of a run, in order of value, and how long each may take."""

from dataclasses import dataclass
from typing import Callable

import bundle.commands as commands
import bundle.engines as engines
import bundle.facts as facts
import bundle.kernels as kernels
import bundle.libraries as libraries
import bundle.networks as networks
import bundle.op_cases as op_cases
import bundle.tools as tools
import bundle.torch_layers as torch_layers
import bundle.tuned as tuned


@dataclass
class Part:
    """run(setting, record, deadline) gives None, or why the part is not available."""
    name: str
    seconds: float          # on a card, of a run of nine minutes
    emulated_seconds: float
    unprepared_seconds: float  # as seconds, of a bundle without images
    run: Callable
    programs: tuple = ()    # what its results depend on
    modules: tuple = ()
    is_default: bool = True

    def weight(self, setting):
        if setting.emulated:
            return self.emulated_seconds
        return self.unprepared_seconds if setting.is_unprepared() else self.seconds

    def code(self, setting):
        return setting.code(self.programs, self.modules)


def limit_of(part, later, setting, left):
    """The share of the time that is left which the first of several parts may take; what it leaves goes to the later."""
    mine = part.weight(setting)
    return left * mine / (mine + sum(each.weight(setting) for each in later))


# Seconds of parts that run by default make up 540, with images and without: each is sure of as much, for those before it
# end by then.
PARTS = (
    Part("facts", 45, 30, 45, facts.run, (), ("facts", "torch_ceilings")),
    Part("engines", 65, 120, 95, engines.run, ("anneal", "gpu_test"), ("engines",)),
    Part("op_cases", 100, 120, 70, op_cases.run, ("cuda_op_suite_test",), ("op_cases", "bits")),
    Part("libraries", 40, 30, 40, libraries.run, ("cuda_op_suite_test", "cublas_lt_test", "cudnn_engine_test"),
         ("libraries", "op_cases", "bits", "engines")),
    Part("kernels", 85, 120, 65, kernels.run, ("anneal_gpu_times",), ("kernels", "shapes")),
    Part("torch", 50, 30, 30, torch_layers.run, (), ("torch_layers", "torch_shapes", "torch_timing", "shapes")),
    Part("networks", 105, 120, 170, networks.run, ("anneal",),
         ("networks", "made_networks", "torch_networks", "torch_timing")),
    Part("tools", 50, 60, 25, tools.run, ("cuda_op_suite_test", "anneal_gpu_times"),
         ("tools", "op_cases", "kernels", "shapes")),
    Part("compile", 540, 30, 540, networks.run_compiled, (), ("networks", "torch_networks", "torch_timing"),
         is_default=False),
    Part("commands", 120, 30, 120, commands.run, ("anneal", "pipeline"), ("commands", "networks", "made_networks"), is_default=False),
    Part("tuned", 540, 30, 540, tuned.run, ("anneal",), ("tuned", "networks", "made_networks"), is_default=False),
)
FIRST_WITHOUT_IMAGES = ("facts", "engines", "networks", "libraries")


def ordered(chosen, setting):
    """In order of value. Without images op cases compile for minutes, and what a network computes and takes says most."""
    if setting.emulated or not setting.is_unprepared():
        return list(chosen)
    first = [part for name in FIRST_WITHOUT_IMAGES for part in chosen if part.name == name]
    return first + [part for part in chosen if part not in first]
