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
            ports = 0
            if steps:
                facts = json.loads(subprocess.run([anneal, "inspect", f"{scratch}/m.engine", "--json"], check=True, capture_output=True).stdout)
                ports = len(facts["plans"][0]["inputs"]) + len(facts["plans"][0]["outputs"])
            is_right = steps is not None and 0 < int(steps[1]) == int(steps[2]) and int(steps[3]) <= ports
            wrong += not is_right
            says = f"{steps[0]} steps, {ports} inputs and outputs" if steps else done.stderr.strip()
            print(f"{'' if is_right else 'WRONG: '}{model.relative_to(folder)}: {says}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
