#!/usr/bin/env python3
"""The share of a card's dense f16 rate that `mma.sync` reaches, by NVIDIA's own model of products.

    python3 -m venv VENV && VENV/bin/pip install nvidia-matmul-heuristics==0.1.0.27
    VENV/bin/python bench/gpu/tensor_rates.py

No GPU is needed. Each line is a card of kernels/cuda/cost/device_specs.cc: its flops and share as the cost model has them, and the
share by the tool: the time of the arithmetic alone of a product of 8192^3, in tiles of 128x128x32 by 8 warps and instructions of
m16n8k16. Ends with 1 if a share of the cost model is off by more than a tenth, other than on a GeForce: the tool counts with f16
sums there, whose rate is twice that of the f32 sums of our kernels.
"""

import ctypes
import re
import sys
from pathlib import Path

from nvMatmulHeuristics.nvMatmulHeuristics import (NvMatmulHeuristicsInterface, NvMatmulHeuristicsInterfaceEx,
                                                   NvMatmulHeuristicsMatmulLayout, NvMatmulHeuristicsNvidiaGpu,
                                                   NvMatmulHeuristicsSiliconMetric, NvMatmulHeuristicsTarget)

SPECS = Path(__file__).resolve().parents[2] / "kernels/cuda/cost/device_specs.cc"
CARDS = {80: "A100_SXM_80GB", 86: "A10_PCIE", 89: "L4", 90: "H100_SXM", 100: "B200", 120: "RTX_5090"}
GEFORCE = {120}
SIZE = 8192
LARGEST_DIFFERENCE = 0.1


def known_cards():
    """(architecture, name, flops, share of mma.sync) of each card of the cost model."""
    text = " ".join(SPECS.read_text().split())
    row = r'\{(\d+), "([^"]+)",[^}]*?([\d.]+) \* kTera, ([\d.]+), kLaunch\}'
    return [(int(sm), name, float(tera) * 1e12, float(share)) for sm, name, tera, share in re.findall(row, text)]


def arithmetic_seconds(card):
    tool = NvMatmulHeuristicsInterfaceEx(gpu=NvMatmulHeuristicsNvidiaGpu[card], load_discovery_implicitly=False)
    backend = tool.createBackend(NvMatmulHeuristicsTarget.CUTLASS)
    problem = tool.makeNvMatmulHeuristicsProblem(SIZE, SIZE, SIZE, NvMatmulHeuristicsMatmulLayout.NN_ROW_MAJOR)
    kernel = NvMatmulHeuristicsInterface.nvmmhKernelConfiguration(splitK=1, loadStages=3, gridSwizzle=1)
    kernel.cta[:], kernel.warp[:], kernel.instr[:], kernel.cluster[:] = (128, 128, 32), (64, 32, 32), (16, 8, 16), (1, 1)
    # The package's method of this name gives a number where the library wants the backend.
    return tool.nvMatmulHeuristicsEstimateSiliconMetricEx(
        tool.handle, b"HSS", backend, ctypes.byref(problem), ctypes.byref(kernel),
        ctypes.c_int(NvMatmulHeuristicsSiliconMetric.COMPUTE_S), tool.hardware_descriptor)


def main():
    differs = False
    print("card              TFLOP/s  share here  share by NVIDIA")
    for architecture, name, flops, share in known_cards():
        by_nvidia = 2 * SIZE**3 / arithmetic_seconds(CARDS[architecture]) / flops
        differs |= architecture not in GEFORCE and abs(by_nvidia - share) > LARGEST_DIFFERENCE * share
        print(f"{name:16} {flops / 1e12:8.1f} {share:11.2f} {by_nvidia:16.2f}")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
