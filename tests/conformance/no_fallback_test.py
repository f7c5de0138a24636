#!/usr/bin/env python3
"""Builds each model for the emulated GPU with --no-fallback: every step but sizes and conditions runs on the GPU, and only inputs
and outputs of the model are copied.

    no_fallback_test.py ANNEAL MODELS
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def main(anneal, folder):
    models = sorted(Path(folder).rglob("*.onnx"))
    if not models:
        print("there are no models here")
        return 77
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for model in models:
            done = subprocess.run([anneal, "build", model, "-o", f"{scratch}/m.engine", "--target", "emulated", "--no-fallback",
                                   "--no-self-check"], capture_output=True, text=True)
            steps = re.search(r"emulated: (\d+) of (\d+) steps? run on the GPU, with (\d+) copy", done.stdout)
            others = 0  # copies of values that are no ports
            if steps:
                inspected = subprocess.run([anneal, "inspect", f"{scratch}/m.engine", "--json"], check=True, capture_output=True)
                [plan] = json.loads(inspected.stdout)["plans"]
                copies = [step["name"].rsplit("/", 1) for step in plan["steps"] if step["kernel"] == "transfer"]
                inputs = {port["name"] for port in plan["inputs"]}
                up = [name.removesuffix("/layout") for name, way in copies if way == "to_device"]
                # What a branch gives has its own name where it becomes an output.
                others = len(set(up) - inputs) + max(0, len(copies) - len(up) - len(plan["outputs"]))
            is_right = steps is not None and 0 < int(steps[1]) == int(steps[2]) and others == 0
            wrong += not is_right
            says = f"{steps[0]} steps, {others} of no inputs or outputs" if steps else done.stderr.strip()
            print(f"{'' if is_right else 'WRONG: '}{model.relative_to(folder)}: {says}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
