#!/usr/bin/env python3
"""Whole networks on the virtual card against the CPU, step by step.

    networks_test.py ANNEAL FOLDER...    with the models; run it by on_virtual_card.py

Each model is built for the CPU and for the card's architecture, in its own precision, with --fp16 and with --bf16.
`anneal compare` judges every tensor of the two plans: integers to the bit, floats by its tolerances. Prints a line for each network; a
network with layers that stay on the CPU says how many.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SKIPPED = 77
# Rounding that grows from step to step is no fault of a step.
INHERITED = "given B's tensors, each step of A agrees"
WAYS = ((), ("--fp16",), ("--bf16",))
# A GPU leaves a model in f16 as it is with --bf16, and the CPU rounds it to bf16.
F16 = "fp16"  # in the name of its folder


def call(*command):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def check(anneal, model, way, scratch):
    """A line of the report, and whether it is right; None if it is left out."""
    if "--bf16" in way and F16 in model.parent.name:
        return f"{model.parent.name} --bf16: it is in f16", None
    architecture = os.environ.get("ANNEAL_VIRTUAL_CARD_SM", "90")
    engine = f"{scratch}/network.engine"
    name = " ".join((model.parent.name if model.stem == "model" else model.stem, *way))
    status, printed = call(anneal, "build", str(model), "-o", engine, "--target", f"cpu,sm_{architecture}", "--no-self-check", *way)
    if status != 0:
        return f"{name}: cannot be built: {printed.strip().splitlines()[-1]}", False
    steps = re.search(r"(\d+) of (\d+) steps run on the GPU", printed)
    start = time.monotonic()
    status, compared = call(anneal, "compare", engine, engine, "--target-a", "cuda", "--target-b", "cpu")
    seconds = time.monotonic() - start
    verdict = compared.strip().splitlines()[-1] if compared.strip() else ""
    on_card = f"{steps.group(1)} of {steps.group(2)} steps on the card" if steps else "no step on the card"
    is_right = steps is not None and int(steps.group(1)) > 0 and (status == 0 or INHERITED in verdict)
    return f"{name}: {on_card}, {verdict}, {seconds:.1f} s", is_right


def check_all(anneal, folders, ways, check):
    """Prints the line that check(anneal, model, way, scratch) gives of each model in each way; the exit status.

    check() also gives whether the model is right, or None if it is left out. At least one must not be.
    """
    models = sorted(path for folder in folders if os.path.isdir(folder) for path in Path(folder).glob("**/*.onnx"))
    if not models:
        print("there are no models here")
        return SKIPPED
    right = wrong = 0
    with tempfile.TemporaryDirectory(prefix="anneal-virtual-") as scratch:
        for model in models:
            for way in ways:
                line, is_right = check(anneal, model, way, scratch)
                print(("WRONG: " if is_right is False else "") + line, flush=True)
                right += is_right is True
                wrong += is_right is False
    print(f"{right} are right, {wrong} are wrong")
    return 0 if right and not wrong else 1


if __name__ == "__main__":
    sys.exit(check_all(sys.argv[1], sys.argv[2:], WAYS, check))
