#!/usr/bin/env python3
"""Quantized models give the same integers on every kernel: those of all instruction sets, with and without oneDNN, the
reference kernels and the emulated GPU, each against the CPU's fastest.

    integer_bits_test.py ANNEAL MODELS [quick]      quick: on the emulated GPU only the small models

An integer tensor may differ only behind a layer that computes in floats (a softmax, a resize), and given equal inputs a
layer that does not is equal to the bit. Instruction sets that this machine lacks, or that ANNEAL_MAX_ISA forbids, are
left out, and the output names them. Exit status 77 where the folder MODELS is not there.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Kernels whose sums or functions of floats may be rounded in another order.
FLOAT_KERNELS = ("softmax", "resize", "normalize", "attention")
SMALL = ("kws", "resnet8", "mobilenet_v1")
SIDES = [("cpu:baseline", {}), ("cpu:avx2", {}), ("cpu:avx512", {}), ("cpu", {"ANNEAL_ONEDNN": "0"}),
         ("reference-kernels", {}), ("emulated", {})]
INSTRUCTION_SETS = ("baseline", "avx2", "avx512", "full")


def sides_of_this_machine(anneal, folder):
    """The sides that this machine can run, and the targets that it cannot."""
    report = Path(folder) / "devices.json"
    subprocess.run([anneal, "devices", "--json", str(report)], check=True, capture_output=True)
    cpu = json.loads(report.read_text())["devices"]["cpu"]["what"]
    highest = INSTRUCTION_SETS.index(re.search(r"(\w+) instructions", cpu).group(1))
    too_high = ["cpu:" + name for name in INSTRUCTION_SETS[highest + 1:]]
    return [side for side in SIDES if side[0] not in too_high], [t for t, _ in SIDES if t in too_high]


def is_float_step(tensor):
    return any(name in tensor["kernel_a"] or name in tensor["kernel_b"] for name in FLOAT_KERNELS)


def wrong_tensors(comparison):
    """Names of the integer tensors that differ though they may not."""
    wrong, behind_floats = [], False
    for tensor in comparison["tensors"]:
        behind_floats |= is_float_step(tensor)
        integers = not tensor["type"].startswith(("f", "bf"))
        if not integers or is_float_step(tensor):
            continue
        if tensor["max_abs_error"] != 0 and not behind_floats:
            wrong.append(f"{tensor['name']} on {tensor['kernel_a']} and {tensor['kernel_b']} differs")
        elif tensor.get("max_abs_error_alone"):
            wrong.append(f"{tensor['name']} on {tensor['kernel_a']} differs given equal inputs")
    return wrong


def main(anneal, models, mode=""):
    if not Path(models).is_dir():
        print(f"no models in {models}")
        return 77
    failures, compared, integers = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        sides, left_out = sides_of_this_machine(anneal, folder)
        for target in left_out:
            print(f"left out: {target}, which this machine does not run")
        for model in sorted(Path(models).glob("*qdq*")):
            for target, environment in sides:
                if target == "emulated" and mode == "quick" and not model.name.startswith(SMALL):
                    continue
                report = Path(folder) / "c.json"
                path = str(model / "model.onnx")
                done = subprocess.run(
                    [anneal, "compare", path, path, "--target-a", target, "--target-b", "cpu", "--rtol", "0", "--atol", "0",
                     "--top", "0", "--json", str(report)], capture_output=True, text=True, env={**os.environ, **environment})
                if done.returncode not in (0, 1):
                    failures.append(f"{model.name} on {target}: {done.stderr}")
                    continue
                comparison = json.loads(report.read_text())
                compared += 1
                found = sum(not t["type"].startswith(("f", "bf")) for t in comparison["tensors"])
                integers += found
                if found < 5:
                    failures.append(f"{model.name} on {target}: only {found} integer tensors")
                failures += [f"{model.name} on {target} {environment}: {each}" for each in wrong_tensors(comparison)]
    print("\n".join(failures) or f"{compared} comparisons, {integers} tensors of integers, all equal")
    return 1 if failures or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
