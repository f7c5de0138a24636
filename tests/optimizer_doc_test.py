#!/usr/bin/env python3
"""Checks the tables of docs/optimizer.md: every pass named exists and has golden cases, every pass of the pipeline is
named, and in each real model that a row names, one of the row's passes rewrites something.

    optimizer_doc_test.py ANNEAL [MODELS]      MODELS: the folder of real models; where it is missing, they are not built
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def rows():
    """Of the tables whose columns end with: done by, golden cases, fires in."""
    is_of_fusions = False
    for line in (ROOT / "docs/optimizer.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            is_of_fusions = False
        elif len(cells) >= 4 and cells[-3] == "done by":
            is_of_fusions = True
        elif is_of_fusions and cells[-3] != "---":
            yield cells[-4], [re.findall(r"`([a-z0-9_.]+)`", cell) for cell in cells[-3:]]


def rewrites(anneal, model, folder):
    report = Path(folder) / "report.json"
    subprocess.run([anneal, "build", model, "-q", "-o", str(Path(folder) / "m.engine"), "--report", str(report)], check=True)
    return {each["name"] for each in json.loads(report.read_text())["passes"] if each["rewrites"] > 0}


def main(anneal, models=None):
    listed = subprocess.run([anneal, "passes"], check=True, capture_output=True, text=True).stdout
    passes = {line.split()[0] for line in listed.splitlines()}
    wrong, fired, counted = [], {}, 0
    if models and not Path(models).is_dir():
        print(f"no models in {models}: only names are checked")
        models = None
    with tempfile.TemporaryDirectory() as folder:
        for fusion, (done_by, golden, fires_in) in rows():
            counted += 1
            wrong += [f"{fusion}: there is no pass {name}" for name in done_by if name not in passes]
            wrong += [f"{fusion}: no golden cases of {name}" for name in golden
                      if not (ROOT / f"tests/golden/passes/{name}.txt").is_file()]
            for model in fires_in if models else []:
                if model not in fired:
                    fired[model] = rewrites(anneal, str(Path(models) / model / "model.onnx"), folder)
                if not fired[model] & set(done_by):
                    wrong.append(f"{fusion}: none of {done_by} rewrites anything in {model}")
    if counted < 30:
        wrong.append(f"only {counted} rows were found")
    text = (ROOT / "docs/optimizer.md").read_text()
    wrong += [f"{name} is not named in docs/optimizer.md" for name in sorted(passes) if f"`{name}`" not in text]
    print("\n".join(wrong) or f"{counted} rows, {len(fired)} models")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
