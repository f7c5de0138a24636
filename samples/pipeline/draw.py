#!/usr/bin/env python3
"""Draws the results of `pipeline`: what each thread did and when, and the use of cores and GPU below it.

    samples/pipeline/draw.py pipeline.json pipeline.svg [--monitor use.csv]
    svg_to_png pipeline.svg pipeline.png

use.csv is of `anneal monitor --csv use.csv`, which ran beside the program. Needs Python alone.
"""

import argparse
import csv
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "matmul_travel"))
from svg import FAINT, GROUND, INK, LINES, line, number_text, text  # noqa: E402

# Told apart by most colour-blind eyes, too.
COLOURS = {"decode": "#c65d00", "copy": "#7a3e9d", "compute": "#2f6db5"}
WORDS = {"decode": "read and decode", "copy": "copy", "compute": "compute"}
CORES, MACHINE, GPU = "#2f9e7a", "#59616b", "#b2182b"
WIDTH, MARGIN, LEFT = 1080, 24, 120
LANE, GAP, USE = 16, 4, 56
TITLE = 78  # of a mode: its name, its line and some air


def ticks_of(seconds):
    """Round times, at most eight, up to `seconds`."""
    step = 1e-3
    while seconds / step > 8:
        step *= 2 if number_text(step).strip("0.").startswith("1") else 2.5 if number_text(step).strip("0.").startswith("2") else 2
    return [i * step for i in range(int(seconds / step) + 1)]


def monitored(path):
    """Unix time, and shares of CPU and GPU (None: not known), of the lines of `anneal monitor`; of several GPUs the busiest."""
    samples = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file, skipinitialspace=True):
            if not row.get("timestamp"):
                raise ValueError(f"{path}: no line of `anneal monitor` with a timestamp: {','.join(map(str, row.values()))}")
            at, milliseconds = row["timestamp"].split(".")
            when = time.mktime(time.strptime(at, "%Y/%m/%d %H:%M:%S")) + int(milliseconds) / 1000
            shares = []
            for name in ("utilization.cpu [%]", "utilization.gpu [%]"):
                value = (row.get(name) or "[N/A]").removesuffix(" %")
                shares.append(None if value == "[N/A]" else float(value) / 100)
            before = samples.get(when, [None, None])
            samples[when] = [max((each for each in pair if each is not None), default=None) for pair in zip(before, shares)]
    return [(when, *shares) for when, shares in sorted(samples.items())]


class Drawing:
    def __init__(self, results, samples):
        self.results, self.samples = results, samples
        self.seconds = max(mode["seconds"] for mode in results["modes"])
        self.scale = (WIDTH - LEFT - MARGIN) / self.seconds
        self.parts = []

    def x(self, seconds):
        return LEFT + seconds * self.scale

    def legend(self, y):
        at = LEFT
        known = [(WORDS[stage], colour) for stage, colour in COLOURS.items()] + [("cores busy by this program", CORES)]
        if any(cpu is not None for _, cpu, _ in self.samples):
            known.append(("cores busy in all", MACHINE))
        if any(gpu is not None for _, _, gpu in self.samples):
            known.append(("GPU busy", GPU))
        for words, colour in known:
            self.parts.append(f'<rect x="{at}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
            self.parts.append(text(at + 18, y, words, 12))
            at += 44 + 6.6 * len(words)

    def lanes(self, mode, y):
        for lane in mode["lanes"]:
            self.parts.append(text(LEFT - 8, y + LANE - 4, lane["name"], 11, FAINT, "end"))
            self.parts.append(f'<rect x="{LEFT}" y="{y}" width="{self.x(mode["seconds"]) - LEFT:.1f}" height="{LANE}" fill="#eceef0"/>')
            for stage, start, end, batch in lane["intervals"]:
                width = max((end - start) * self.scale, 0.4)
                self.parts.append(f'<rect x="{self.x(start):.1f}" y="{y}" width="{width:.1f}" height="{LANE}" fill="{COLOURS[stage]}" '
                                  f'fill-opacity="{1 if batch % 2 else 0.72}"/>')
            y += LANE + GAP
        return y

    def curve(self, points, y, colour, filled):
        """Steps: a value is of the time since the one before."""
        if not points:
            return
        starts = [0] + [at for at, _ in points]
        places = [(self.x(each), y + USE * (1 - share)) for start, (at, share) in zip(starts, points) for each in (start, at)]
        drawn = " ".join(f"{x:.1f},{height:.1f}" for x, height in places)
        if filled:
            floor = y + USE
            self.parts.append(f'<polygon points="{places[0][0]:.1f},{floor} {drawn} {places[-1][0]:.1f},{floor}" fill="{colour}" '
                              'fill-opacity="0.25"/>')
        self.parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="1.5"/>')

    def use(self, mode, y):
        for share in (0, 0.5, 1):
            at = y + USE * (1 - share)
            self.parts.append(line(LEFT, at, self.x(mode["seconds"]), at, LINES))
            self.parts.append(text(LEFT - 8, at + 4, f"{100 * share:.0f} %", 10, FAINT, "end"))
        self.curve([(min(at, mode["seconds"]), share) for at, share in mode["cores_busy"]], y, CORES, True)
        inside = []  # a sample is of the time before it, so the first one after the end counts
        for when, cpu, gpu in self.samples:
            at = when - mode["began"]
            if at >= 0 and (not inside or inside[-1][0] < mode["seconds"]):
                inside.append((min(at, mode["seconds"]), cpu, gpu))
        self.curve([(at, cpu) for at, cpu, _ in inside if cpu is not None], y, MACHINE, False)
        self.curve([(at, gpu) for at, _, gpu in inside if gpu is not None], y, GPU, False)
        return y + USE

    def axis(self, y):
        for tick in ticks_of(self.seconds):
            self.parts.append(line(self.x(tick), y, self.x(tick), y + 5, FAINT))
            self.parts.append(text(self.x(tick), y + 18, f"{number_text(round(tick, 6))} s", 11, FAINT, "middle"))
        self.parts.append(line(LEFT, y, WIDTH - MARGIN, y, FAINT))
        return y + 34

    def draw(self):
        results = self.results
        name = Path(results["model"]).name
        if name == "model.onnx":
            name = Path(results["model"]).parent.name
        self.parts.append(text(MARGIN, 34, f"Pictures through {name}: where the time goes", 18, INK, weight="bold"))
        self.parts.append(text(MARGIN, 56, f'{results["batches"]} batches of {results["batch"]} pictures, {results["device"]}, '
                               f'{results["threads"]} threads that decode', 12, FAINT))
        self.legend(82)
        y = 92
        for mode in results["modes"]:
            self.parts.append(text(MARGIN, y + 34, f'{mode["name"]}: {mode["pictures_per_second"]:.0f} pictures/s', 14, INK, weight="bold"))
            self.parts.append(text(MARGIN, y + 53, mode["bottleneck"], 12))
            y = self.lanes(mode, y + TITLE - 14)
            y = self.use(mode, y + 10) + 8
        y = self.axis(y + 10)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" '
                'font-family="Helvetica, Arial, sans-serif">\n'
                f'<rect width="{WIDTH}" height="{y}" fill="{GROUND}"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def picture(results, samples=()):
    return Drawing(results, list(samples)).draw()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", help="JSON of `pipeline`")
    parser.add_argument("picture", help="SVG to write")
    parser.add_argument("--monitor", metavar="FILE", help="CSV of `anneal monitor` beside it")
    arguments = parser.parse_args()
    try:
        results = json.loads(Path(arguments.results).read_text())
        samples = monitored(arguments.monitor) if arguments.monitor else []
        if arguments.monitor and not any(0 <= when - mode["began"] <= mode["seconds"] for when, *_ in samples for mode in results["modes"]):
            print(f"draw.py: {arguments.monitor} has no samples of the time in which the program ran", file=sys.stderr)
        Path(arguments.picture).write_text(picture(results, samples))
    except (OSError, ValueError) as error:
        sys.exit(f"draw.py: {error}")


if __name__ == "__main__":
    main()
