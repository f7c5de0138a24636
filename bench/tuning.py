#!/usr/bin/env python3
"""What `anneal tune` finds for trained models: the chosen mix against f32 and against plain int8.

    bench/tuning.py                    # all models: two minutes
    bench/tuning.py --models resnet8

The models and samples of bench/precision.py, those of ImageNet split into 100 to calibrate, 150 to search with and 250
to confirm; then two of them widened by bench/widen_channels.py, where plain int8 (no equalizing, no layer left out)
loses much. A table for docs/tuning.md goes to stdout, raw numbers, every point of the frontiers, to
bench/results/DATE-tuning.json, or to --json FILE. Takes numpy and onnx for the widened ones.
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from precision import MODELS, ROOT, processor

WIDENED = ("MobileNet v2 1.0 224", "MobileNet v1 0.25 128")
IMAGENET = ["--calibrate-samples", "100", "--search-samples", "150"]


class Tuner:
    def __init__(self, arguments, folder):
        self.anneal, self.folder = arguments.anneal, Path(folder)
        self.settings = ["--threads", arguments.threads, "--max-drop", arguments.max_drop]

    def run(self, *arguments):
        done = subprocess.run([self.anneal, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"anneal {' '.join(map(str, arguments))}\n{done.stderr}")
        return done.stdout

    def tune(self, onnx, flags):
        split = IMAGENET if "imagenet500" in str(flags) else []
        print(self.run("tune", onnx, *flags, *split, *self.settings, "-o", self.folder / "m.engine"), file=sys.stderr)
        found = json.loads((self.folder / "m.tuned.json").read_text())
        for point in found["points"]:
            del point["precisions"], point["command"]
        return {key: found[key] for key in ("metric", "budget", "threads", "chosen", "points", "warnings")}

    def latency(self, engine):
        report = self.folder / "bench.json"
        self.run("bench", engine, "--threads", self.settings[1], "--duration", 1, "--json", report)
        return json.loads(report.read_text())["latency_milliseconds"]["median"]

    def plain(self, onnx, flags):
        """All layers in 8 bits, by ranges of tensors alone, on the samples that tuning confirms with or like them."""
        table, engine, report = (self.folder / name for name in ("p.ranges", "p.engine", "p.json"))
        self.run("calibrate", onnx, *flags, "--samples", "hash:100", "--equalize", "off", "-o", table)
        self.run("build", onnx, "--int8", "--calibration", table, "--max-layer-error", 1, "-o", engine)
        judged = []
        for each in (engine, self.folder / "m.engine"):
            self.run("eval", each, *flags, "--samples", "holdout:250", "--against", onnx, "--json", report)
            against = json.loads(report.read_text())["against"]
            judged.append({"net_loss": against["net_loss"], "interval": against["net_loss_interval"],
                           "milliseconds": self.latency(each)})
        return {"int8": judged[0], "tuned": judged[1]}


def point_of(found, name):
    return next((point for point in found["points"] if point["name"] == name), None)


def drop_text(score):
    net = round(score["drop"] * score["samples"] / 100)
    return f"{net} of {score['samples']} ({score['drop']:.2f}, {score['drop_low']:.2f} to {score['drop_high']:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anneal", default=ROOT / "build/release/bin/anneal")
    parser.add_argument("--data", default=ROOT / "../shared/data", help="holds models/ and datasets/")
    parser.add_argument("--models", default="", help="part of their names")
    parser.add_argument("--threads", default=1, type=int)
    parser.add_argument("--max-drop", default=0.8, type=float, help="points")
    parser.add_argument("--json", help="where raw numbers go")
    arguments = parser.parse_args()
    today = datetime.date.today().isoformat()
    report = {"date": today, "machine": processor(), "command": " ".join(sys.argv), "models": {}, "widened": {}}
    with tempfile.TemporaryDirectory(prefix="anneal-tuning-") as folder:
        tuner = Tuner(arguments, folder)
        for title, (model, where, flags) in MODELS.items():
            if arguments.models not in model:
                continue
            onnx, flags = f"{arguments.data}/models/{model}/model.onnx", ["--data", f"{arguments.data}/datasets/{where}", *flags]
            report["models"][title] = tuner.tune(onnx, flags)
            if title in WIDENED:
                wide = Path(folder) / "wide.onnx"
                subprocess.run([sys.executable, ROOT / "bench/widen_channels.py", onnx, wide], check=True, stdout=sys.stderr)
                found = tuner.tune(wide, flags)
                report["widened"][title] = {**found, "plain": tuner.plain(wide, flags)}
    print("| model | chosen | times as fast as f32 | lost, on samples that nothing was chosen by (points, 95 %) | points on the frontier |")
    print("|---|---|---|---|---|")
    for title, found in report["models"].items():
        chosen, f32 = found["points"][found["chosen"]], point_of(found, "f32")
        print(f"| {title} | {chosen['name']} | {f32['milliseconds'] / chosen['milliseconds']:.2f} | "
              f"{drop_text(chosen['confirmed'])} | {sum(point['is_on_frontier'] for point in found['points'])} |")
    print("\n| widened model | plain int8 loses of 250 | tuned loses | time of plain int8 that it takes |")
    print("|---|---|---|---|")
    for title, found in report["widened"].items():
        int8, tuned = found["plain"]["int8"], found["plain"]["tuned"]
        print(f"| {title} | {int8['net_loss']} | {tuned['net_loss']} ({tuned['interval'][0]:g} to {tuned['interval'][1]:g}) | "
              f"{tuned['milliseconds'] / int8['milliseconds']:.2f} |")
    path = Path(arguments.json or ROOT / f"bench/results/{today}-tuning.json")
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
