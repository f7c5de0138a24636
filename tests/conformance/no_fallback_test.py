#!/usr/bin/env python3
"""Builds each model for the emulated GPU with --no-fallback: every step but sizes and conditions runs on the GPU.

    no_fallback_test.py ANNEAL MODELS
"""

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
            steps = re.search(r"emulated: (\d+) of (\d+) steps? run on the GPU", done.stdout)
            is_right = done.returncode == 0 and steps is not None and 0 < int(steps[1]) == int(steps[2])
            wrong += not is_right
            print(f"{'' if is_right else 'WRONG: '}{model.relative_to(folder)}: {steps[0] if steps else done.stderr.strip()}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
