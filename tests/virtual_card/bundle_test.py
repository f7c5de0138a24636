#!/usr/bin/env python3
"""The bundle for a machine with a GPU, on the virtual card: its parts run as they would there.

    bundle_test.py BUILD [--keep FOLDER] [PART...]    run it by on_virtual_card.py

Prebuilt engines and images are made by the NVRTC of the virtual card, since the card runs only functions whose PTX that has kept. The
sizes are those of --few. No part is told that the device is no card: --device is the default, cuda. Times mean nothing.
FOLDER gets the results, which bench/gpu/compare_results.py compares with those of a GPU.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/gpu"))
sys.dont_write_bytecode = True
import make_bundle  # noqa: E402

SKIPPED = 77
# NVIDIA's tools and PyTorch do not know the card.
NEED_MORE = ("torch", "tools", "compile")
# `commands` and `tuned` by name only: an ablation times kernels, which takes more than 20 minutes here.
PARTS = ("facts", "engines", "op_cases", "libraries", "kernels", "networks", *NEED_MORE)
LEAST_ITEMS = {"facts": 2, "engines": 10, "op_cases": 6, "libraries": 10, "kernels": 10, "tuned": 4, "commands": 6}
SECONDS = 5400  # on a slow core; what is looked at is whether all parts run through


def stage(root, build):
    """As make_bundle.py's main(), without packing."""
    for each in ("licenses", "models", "engines", "images"):
        (root / each).mkdir(parents=True)
    architecture = "sm_" + os.environ.get("ANNEAL_VIRTUAL_CARD_SM", "90")
    make_bundle.CACHE = Path(os.environ["ANNEAL_CACHE_DIR"])
    make_bundle.stage_programs(root, build, "", root / "licenses")
    shutil.copy(ROOT / "bench/gpu/run.py", root)
    shutil.copytree(ROOT / "bench/gpu/bundle", root / "bundle", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "bench/nets", root / "nets", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "VERSION").write_text("on the virtual card\n")
    batches = make_bundle.batches_of(build)
    (root / "batches.json").write_text(json.dumps(batches) + "\n")
    make_bundle.stage_engines(root, build, architecture)
    make_bundle.stage_images(root, SimpleNamespace(build=build, variant=[], images="2", architecture=architecture, jobs=1), batches)


def problems_of(part, out):
    path = out / f"{part}.json"
    if not path.is_file():
        return [f"there is no {part}.json"]
    value = json.loads(path.read_text())
    if part in NEED_MORE and value["status"] == "not available":
        return []
    found = [] if value["status"] == "done" else [f"{part} is {value['status']}: {value.get('why', '')}"]
    found += [f"{part}, {key}: {str(item['error'])[:800]}" for key, item in value["items"].items() if "error" in item]
    if len(value["items"]) < LEAST_ITEMS.get(part, 0):
        found.append(f"{part} has {len(value['items'])} items, {LEAST_ITEMS[part]} are the least")
    return found


def main(build, keep, parts):
    if shutil.which("patchelf") is None:
        print("patchelf is not here, which makes the bundle")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="anneal-bundle-") as folder:
        root, out = Path(folder) / "bundle", Path(folder) / "out"
        stage(root, Path(build).resolve())
        words = [word for part in parts for word in ("--part", part)]
        # A kernel may be slower here than a card's patience; a second run does what failed again.
        for where in ("--out", "--resume"):
            if subprocess.run([sys.executable, root / "run.py", where, out, "--few", "--limit", str(SECONDS), *words]).returncode == 0:
                break
        problems = [each for part in parts for each in problems_of(part, out)]
        if "facts" in parts and "Virtual card of sm_" not in (out / "facts.json").read_text():
            problems.append("the facts do not name the card")
        if keep is not None:
            shutil.copytree(out, keep, dirs_exist_ok=True)
    for problem in problems:
        print(f"failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build")
    arguments.add_argument("--keep", metavar="FOLDER")
    arguments.add_argument("parts", nargs="*", default=PARTS)
    given = arguments.parse_args()
    sys.exit(main(given.build, given.keep, given.parts))
