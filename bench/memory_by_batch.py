#!/usr/bin/env python3
"""Memory that `anneal bench --memory-by-batch` predicts against what contexts hold, for models with a batch, open or fixed.

    memory_by_batch.py ANNEAL FOLDER... [--target cpu,emulated] [--most 2]

Every file *.onnx in the folders counts; a folder that is not there has none. Prints a line for each model and target: the largest
difference over batches of 1, 4 and 16, in percent, and which of arenas, workspaces and staging have exact formulas of the batch. A
model whose fixed batch cannot be opened gets a line with the reason. Ends with status 1 if a difference is above `--most` percent or a
model fails. The emulated device runs no kernel (`ANNEAL_EMULATED_KERNELS=skip`): results matter to memory only where they decide sizes.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


class NotOpened(Exception):
    """The fixed batch of the model cannot be opened."""


def difference(anneal, model, target, folder):
    """The largest difference in percent, and the parts with exact formulas."""
    done = subprocess.run([anneal, "bench", model, "--memory-by-batch", "--target", target, "--json", folder / "r.json"],
                          capture_output=True, text=True, env=os.environ | {"ANNEAL_EMULATED_KERNELS": "skip"})
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1]
        refused = re.search(r"while opening the batch of .*", last)
        raise NotOpened(refused[0]) if refused else RuntimeError(last)
    report = json.loads((folder / "r.json").read_text())
    formulas = [name for name, formula in report["by_batch"].items() if formula and formula["is_exact"]]
    formulas += ["staging"] if report["formula"]["staging"] else []
    return max((100 * each["difference"] for each in report["batches"]), key=abs), formulas


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anneal")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--target", default="cpu,emulated")
    parser.add_argument("--most", type=float, default=2)
    options = parser.parse_args()
    refused, compared, failed = 0, 0, False
    with tempfile.TemporaryDirectory() as folder:
        models = [(model.relative_to(models), model) for models in options.folders for model in sorted(models.rglob("*.onnx"))]
        for short, model in models:
            for target in options.target.split(","):
                name = f"{short} for {target}"
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
                print(f"{name}: {percent:+.2f} %, exact formulas of {', '.join(formulas) or 'none'}", flush=True)
    print(f"{compared} compared, {refused} cannot be opened")
    return 1 if failed or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
