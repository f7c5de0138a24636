#!/usr/bin/env python3
"""Memory that `anneal bench --memory-by-batch` predicts against what contexts hold, for models with an open size.

    memory_by_batch.py ANNEAL MODELS [--target cpu,emulated] [--most 2]

MODELS is a folder; every file *.onnx in it counts. Prints a line for each model and target: the largest difference over batches
of 1, 4 and 16, in percent. Models whose sizes are all fixed are counted. Ends with status 1 if a difference is above `--most`
percent or a model fails.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def difference(anneal, model, target, folder):
    """The largest difference in percent; None: the model has fixed sizes."""
    done = subprocess.run([anneal, "bench", model, "--memory-by-batch", "--target", target, "--json", folder / "r.json"],
                          capture_output=True, text=True)
    if done.returncode == 2 and "the inputs have fixed sizes" in done.stderr:
        return None
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    batches = json.loads((folder / "r.json").read_text())["batches"]
    return max((100 * each["difference"] for each in batches), key=abs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anneal")
    parser.add_argument("models", type=Path)
    parser.add_argument("--target", default="cpu,emulated")
    parser.add_argument("--most", type=float, default=2)
    options = parser.parse_args()
    fixed, compared, failed = 0, 0, False
    with tempfile.TemporaryDirectory() as folder:
        for model in sorted(options.models.rglob("*.onnx")):
            for target in options.target.split(","):
                name = f"{model.relative_to(options.models)} for {target}"
                try:
                    percent = difference(options.anneal, model, target, Path(folder))
                except RuntimeError as error:
                    print(f"{name}: {error}", flush=True)
                    failed = True
                    continue
                if percent is None:
                    fixed += 1
                    continue
                compared += 1
                failed |= abs(percent) > options.most
                print(f"{name}: {percent:+.2f} %", flush=True)
    print(f"{compared} compared, {fixed} have fixed sizes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
