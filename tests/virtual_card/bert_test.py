#!/usr/bin/env python3
"""Two layers of BERT-base on the virtual card against the CPU, step by step: 128 tokens of 768 channels, 12 heads.

    bert_test.py ANNEAL    run it by on_virtual_card.py

In f32, f16 and bf16, and in 8 bits with made-up scales. The weights are random (bench/nets).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from networks_test import SKIPPED, check, check_all

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = "/usr/bin/python3"  # Debian's, which has onnx and numpy
SHAPES = ("--shapes", "hidden:1x128x768,mask:1x1x1x128")
WAYS = {"bert_f32": ((), ("--fp16",), ("--bf16",)), "bert_int8": ((),)}


def main(anneal):
    if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", "import onnx, numpy"], capture_output=True).returncode != 0:
        print(f"{PYTHON} has no onnx and numpy, which write the network")
        return SKIPPED
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench"), "PYTHONDONTWRITEBYTECODE": "1"}
    worst = 0
    with tempfile.TemporaryDirectory(prefix="anneal-bert-") as scratch:
        for name, ways in WAYS.items():
            folder = Path(scratch) / name
            folder.mkdir()
            flags = ["--shallow", *(["--int8"] if name.endswith("int8") else [])]
            subprocess.run([PYTHON, ROOT / "bench/gpu/bundle/made_networks.py", "bert_base", folder / f"{name}.onnx", *flags],
                           check=True, env=environment)
            worst = max(worst, check_all(anneal, [folder], [(*SHAPES, *way) for way in ways], check))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
