#!/usr/bin/env python3
"""Draws a JSON file of matmul_travel, of this machine or another one.

    draw.py FILE.json

Writes FILE.svg, and by rsvg-convert (Debian: librsvg2-bin) FILE.png. Times become speeds and shares of the roofline over
the size; counts of the emulated device become bars of bytes.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

from svg import FAINT, GROUND, INK, LINES, Axes, line, number_text, text

KERNELS = {"cpu": ("#57606a", "CPU"), "naive": ("#c4562e", "naive"), "tiled": ("#d99a17", "tiled"),
           "anneal": ("#2f6db5", "Anneal's plan"), "library": ("#2f9e7a", "cuBLASLt")}
LEVELS = {"copied": ("#57606a", "host to GPU and back, if copied"), "global": ("#2f6db5", "global memory, loads and stores"),
          "shared": ("#e08a1e", "shared memory")}
WIDTH, LEFT, PANEL, GAP = 1060, 70, 420, 90
SPEED_HEIGHT, SHARE_HEIGHT = 300, 150


def series_of(report, kind):
    """{(kernel, data): [measurement by size]} of a type; the CPU is a kernel of its own."""
    found = {}
    for each in report["measurements"]:
        if each["type"] == kind:
            kernel = "cpu" if each["device"] == "cpu" else each["kernel"]
            found.setdefault((kernel, each["data"]), []).append(each)
    return {key: sorted(each, key=lambda one: one["size"]) for key, each in found.items()}


def drawn_of(series):
    """What one panel shows: data that stays, for each kernel; data that is copied, for Anneal's plan alone."""
    order = list(KERNELS)
    return {key: series[key] for key in sorted(series, key=lambda key: (order.index(key[0]), key[1]))
            if key[1] != "copied" or key[0] == "anneal"}


def sizes_of(report):
    return sorted({each["size"] for each in report["measurements"] + report["counts"]})


def decades(least, most):
    """Ticks around the numbers: powers of ten, or with 2 and 5 where these are few."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    if len(powers) > 3:
        return [10.0 ** i for i in powers]
    finer = [factor * 10.0 ** i for i in powers for factor in (1, 2, 5)]
    first = max(i for i, tick in enumerate(finer) if tick <= least)
    return finer[first:1 + min(i for i, tick in enumerate(finer) if tick >= most)]


def crossover(report, kind, data):
    for each in report["crossovers"]:
        if (each["type"], each["kernel"], each["data"]) == (kind, "anneal", data):
            return each["size"]
    return None


def crossover_marks(report, kind, axes):
    """Where the GPU overtakes the CPU, with Anneal's plan: a line for each place of the data, and words below the axis."""
    bottom, found = axes.y + axes.height, []
    for data, dash, aside in (("stays", None, -2), ("copied", "6 4", 2)):  # both may be at one size
        size = crossover(report, kind, data)
        if size is not None:
            at = axes.x_of(size) + aside
            yield line(at, axes.y, at, bottom, KERNELS["anneal"][0], 1, dash)
            found.append(f"from {size} on (data {data})")
    if found:
        yield text(axes.x, bottom + 35, "GPU faster: " + ", ".join(found), 12, KERNELS["anneal"][0])


def speed_panel(report, kind, x, y, ticks):
    """TFLOP/s over the size."""
    series, sizes = series_of(report, kind), sizes_of(report)
    axes = Axes(x, y, PANEL, SPEED_HEIGHT, sizes, ticks, logarithmic=True)
    yield from axes.grid([str(size) for size in sizes], [number_text(tick) for tick in ticks])
    yield text(x, y - 10, f"{kind}: TFLOP/s", 13, INK, weight="bold")
    roof = report["ceilings"].get("gpu", report["ceilings"].get("cpu"))
    item = {"f32": 4, "f16": 2}[kind]
    points = [(size, min(roof["tflops"][kind], roof["gigabytes_per_second"] / 1000 * 2 * size / (3 * item)))
              for size in sizes]
    yield axes.curve(points, FAINT, dash="2 3", marks=False)
    for (kernel, data), measured in drawn_of(series).items():
        yield axes.curve([(each["size"], each["tflops"]) for each in measured], KERNELS[kernel][0],
                         dash="6 4" if data == "copied" else None)
    yield from crossover_marks(report, kind, axes)



def share_panel(report, kind, x, y):
    """Shares of the device's roofline, data staying."""
    series, sizes = series_of(report, kind), sizes_of(report)
    axes = Axes(x, y, PANEL, SHARE_HEIGHT, sizes, [0, 0.25, 0.5, 0.75, 1], logarithmic=False)
    yield from axes.grid([str(size) for size in sizes], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    yield text(x, y - 10, f"{kind}: share of the device's roofline", 13, INK, weight="bold")
    for (kernel, data), measured in drawn_of(series).items():
        if data != "copied":
            yield axes.curve([(each["size"], each["roofline_share"]) for each in measured], KERNELS[kernel][0])


def legend(entries, y):
    x = LEFT
    for colour, words, dash in entries:
        yield line(x, y - 4, x + 24, y - 4, colour, 2.5, dash)
        yield text(x + 30, y, words, 12)
        x += 54 + 6.6 * len(words)


def picture_of_times(report):
    kinds = sorted({each["type"] for each in report["measurements"]}, reverse=True)
    top = 132 + 17 * len(report["machines"])
    speeds = [each["tflops"] for each in report["measurements"]]
    ticks = decades(min(speeds), max(speeds))
    kernels = [kernel for kernel in KERNELS if any(key[0] == kernel for kind in kinds for key in series_of(report, kind))]
    entries = [(KERNELS[kernel][0], KERNELS[kernel][1], None) for kernel in kernels]
    parts = [text(LEFT, 34, "One matrix product of N x N: speed by size N", 18, INK, weight="bold"),
             text(LEFT, 54, f"Anneal {report['anneal']}, {report['date'][:10]}", 12, FAINT),
             *(text(LEFT, 71 + 17 * i, f"{device.upper()}: {report['machines'][device]}", 12, FAINT)
               for i, device in enumerate(device for device in ("cpu", "gpu") if device in report["machines"]))]
    if any(each["device"] == "gpu" for each in report["measurements"]):
        entries.append((KERNELS["anneal"][0], "Anneal's plan, data copied", "6 4"))
    entries.append((FAINT, "roofline of the GPU" if "gpu" in report["ceilings"] else "roofline of the CPU", "2 3"))
    parts += legend(entries, top - 38)
    for i, kind in enumerate(kinds):
        x = LEFT + i * (PANEL + GAP)
        parts += speed_panel(report, kind, x, top, ticks)
        parts += share_panel(report, kind, x, top + SPEED_HEIGHT + 70)
    return parts, top + SPEED_HEIGHT + 70 + SHARE_HEIGHT + 50


def bytes_text(count):
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.3g} {unit}"
        count /= 1000


def bars_panel(report, kind, x, y, height, ticks):
    """For each size and kernel one bar of each level."""
    counts = [each for each in report["counts"] if each["type"] == kind]
    axes = Axes(x, y, PANEL, height, list(range(len(counts) + 1)), ticks, logarithmic=True, even=True)
    yield from axes.grid([], [bytes_text(tick) for tick in ticks])
    yield text(x, y - 10, f"{kind}: bytes of one product", 13, INK, weight="bold")
    group = PANEL / len(counts)
    width = min(24.0, group / 4)
    for i, each in enumerate(counts):
        amounts = {"copied": each["bytes"]["copied"], "global": each["bytes"]["global_load"] + each["bytes"]["global_store"],
                   "shared": each["bytes"]["shared"]}
        for k, (level, amount) in enumerate(amounts.items()):
            if amount:
                at = x + group * (i + 0.5) + (k - 1.5) * width
                top = axes.y_of(amount)
                yield (f'<rect x="{at:.1f}" y="{top:.1f}" width="{width - 2:.1f}" height="{y + height - top:.1f}" '
                       f'fill="{LEVELS[level][0]}" rx="1.5"/>')
                yield (f'<text transform="translate({at + width / 2 + 3:.1f} {top - 4:.1f}) rotate(-90)" font-size="10" '
                       f'fill="{INK}">{bytes_text(amount)}</text>')
        names = {"naive": "naive", "tiled": "tiled", "anneal": "Anneal"}
        yield text(x + group * (i + 0.5), y + height + 16, names[each["kernel"]], 11, INK, "middle")
        yield text(x + group * (i + 0.5), y + height + 31, f"N = {each['size']}", 10, FAINT, "middle")


def picture_of_counts(report):
    kinds = sorted({each["type"] for each in report["counts"]}, reverse=True)
    amounts = [amount for each in report["counts"] for amount in each["bytes"].values() if amount]
    ticks = decades(min(amounts) / 2, max(amounts) * 4)
    parts = [text(LEFT, 34, "One matrix product of N x N: bytes moved at each level of memory", 18, INK, weight="bold"),
             text(LEFT, 54, "Counted on the emulated device, which measures no time. Caches are not counted. "
                  f"Anneal {report['anneal']}, {report['date'][:10]}", 12, FAINT),
             *legend([(*LEVELS[level], None) for level in LEVELS], 82)]
    for i, kind in enumerate(kinds):
        parts += bars_panel(report, kind, LEFT + i * (PANEL + GAP), 120, 320, ticks)
    return parts, 120 + 320 + 50


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    path = Path(sys.argv[1])
    report = json.loads(path.read_text())
    if not report["counts"] and not report["measurements"]:
        print(f"{path} has no results")
        return 1
    parts, height = picture_of_counts(report) if report["counts"] else picture_of_times(report)
    drawing = path.with_suffix(".svg")
    drawing.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
                       f'height="{height}" font-family="sans-serif">\n'
                       f'<rect width="{WIDTH}" height="{height}" fill="{GROUND}"/>\n' + "\n".join(parts) + "\n</svg>\n")
    subprocess.run(["rsvg-convert", "--zoom", "2", "--output", path.with_suffix(".png"), drawing], check=True)
    print(f"{drawing} and {path.with_suffix('.png')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
