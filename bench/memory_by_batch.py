#!/usr/bin/env python3
"""Memory that `anneal bench --memory-by-batch` predicts against what contexts hold, for models with a batch, open or fixed.

    memory_by_batch.py ANNEAL MODELS [--target cpu,emulated] [--most 2]

MODELS is a folder; every file *.onnx in it counts. Prints a line for each model and target: the largest difference over batches
of 1, 4 and 16, in percent, and whether workspaces and staging have formulas. A model whose fixed batch cannot be opened gets a line
with the reason. Ends with status 1 if a difference is above `--most` percent or a model fails.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


class NotOpened(Exception):
    """The fixed batch of the model cannot be opened."""


def difference(anneal, model, target, folder):
    """The largest difference in percent, and the formulas that there are."""
    done = subprocess.run([anneal, "bench", model, "--memory-by-batch", "--target", target, "--json", folder / "r.json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1]
        refused = re.search(r"while opening the batch of .*", last)
        raise NotOpened(refused[0]) if refused else RuntimeError(last)
    report = json.loads((folder / "r.json").read_text())
    formulas = [name for name, formula in (("staging", report["formula"]["staging"]), ("workspaces", report["workspaces"])) if formula]
    return max((100 * each["difference"] for each in report["batches"]), key=abs), formulas


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anneal")
    parser.add_argument("models", type=Path)
    parser.add_argument("--target", default="cpu,emulated")
    parser.add_argument("--most", type=float, default=2)
    options = parser.parse_args()
    refused, compared, failed = 0, 0, False
    with tempfile.TemporaryDirectory() as folder:
        for model in sorted(options.models.rglob("*.onnx")):
            for target in options.target.split(","):
                name = f"{model.relative_to(options.models)} for {target}"
                try:
                    percent, formulas = difference(options.anneal, model, target, Path(folder))
                except NotOpened as why:
                    print(f"{name}: {why}", flush=True)
                    refused += 1
                    continue
                except RuntimeError as error:
                    print(f"{name}: {error}", flush=True)
                    failed = True
                    continue
                compared += 1
                failed |= abs(percent) > options.most
                print(f"{name}: {percent:+.2f} %, formulas of {' and '.join(formulas) or 'neither'}", flush=True)
    print(f"{compared} compared, {refused} cannot be opened")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
