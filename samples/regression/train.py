#!/usr/bin/env python3
"""Fits the network 2-20-5-1 to the surface "peaks" and writes it as ONNX.

    python3 -m venv venv
    venv/bin/pip install torch onnx
    venv/bin/python samples/regression/train.py --out peaks.onnx

All random numbers come from one seed and one thread computes, so a second run on the same kind of machine gives the same
file. A run of 2,000 epochs takes half a minute of one core.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn

SEED = 20261126
SIDE = 200  # points along x, and along y
RANGE = 3.0  # the grid covers [-3, 3] in both
BATCH = 1000
PEAK_RATE = 1e-2


def peaks(x, y):
    return (3 * (1 - x) ** 2 * torch.exp(-x**2 - (y + 1) ** 2)
            - 10 * (x / 5 - x**3 - y**5) * torch.exp(-x**2 - y**2)
            - torch.exp(-(x + 1) ** 2 - y**2) / 3)


def grid():
    """All points of the grid and their heights. x runs fastest, as in main.cc."""
    axis = torch.linspace(-RANGE, RANGE, SIDE, dtype=torch.float64)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    points = torch.stack([x.flatten(), y.flatten()], dim=1)
    return points.float(), peaks(points[:, 0], points[:, 1]).unsqueeze(1).float()


def train(points, heights, epochs):
    torch.manual_seed(SEED)
    network = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 5), nn.ReLU(), nn.Linear(5, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=PEAK_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    measure = nn.MSELoss()
    for epoch in range(1, epochs + 1):
        order = torch.randperm(len(points))
        for batch in order.split(BATCH):
            loss = measure(network(points[batch]), heights[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        if epoch % 100 == 0 or epoch == epochs:
            with torch.no_grad():
                error = measure(network(points), heights).item()
            print(f"epoch {epoch} of {epochs}: mean squared error {error:.5f}", flush=True)
    return network.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "peaks.onnx",
                        help="the file to write (default: peaks.onnx beside this script)")
    parser.add_argument("--epochs", type=int, default=2000, help="default: %(default)s")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)

    points, heights = grid()
    started = time.monotonic()
    network = train(points, heights, arguments.epochs)
    print(f"trained in {time.monotonic() - started:.0f} s")
    torch.onnx.export(network, (points[:2],), arguments.out, input_names=["xy"], output_names=["z"],
                      dynamic_axes={"xy": {0: "N"}, "z": {0: "N"}}, opset_version=17, dynamo=False)
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
