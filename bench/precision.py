#!/usr/bin/env python3
"""What lower precisions cost: right answers of trained models against those of f32, sample by sample.

    bench/precision.py                       # all models and variants: some minutes
    bench/precision.py --models resnet8 --variants int8,f16

Each model is calibrated on 100 of its samples, drawn by the hashes of their names, and judged on the others by
`anneal eval --against`. A table for docs/quantization.md goes to stdout, raw numbers to
bench/results/DATE-precision.json, or to --json FILE. The variants but for `f16`, `bf16`, `best` and `int8` hold
some layers of an int8 engine in f32, or have other calibration flags: what rules for layers would buy, and what each
of the calibration's means does (`ranges`: none of them).
"""

import argparse
import datetime
import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TF = ["--mean", "128", "--std", "128", "--label-offset", "1"]
# title: model, data, flags
MODELS = {
    "MobileNet v2 1.0 224": ("mobilenet_v2_1.0_224_fp32", "imagenet500", TF),
    "SqueezeNet 1.0": ("squeezenet1.0_fp32", "imagenet500", ["--channels", "bgr", "--mean", "104,117,123"]),
    "MobileNet v1 0.25 128": ("mobilenet_v1_0.25_128_fp32", "imagenet500", [*TF, "--resize", "128x128"]),
    "ResNet-8, CIFAR-10": ("resnet8_cifar10_fp32", "cifar10_jpeg1k/rgb_u8_Nx32x32x3.bin",
                           ["--dtype", "u8", "--shape", "32x32x3"]),
    "keyword spotter DS-CNN": ("kws_dscnn_fp32", "kws/mfcc_int8_Nx49x10.bin",
                               ["--dtype", "i8", "--shape", "49x10", "--mean", "83", "--std", "1/0.5847029"]),
}
# variant: flags of calibrate, None for no table; flags of build; the layers that stay f32
VARIANTS = {
    "f16": (None, ["--fp16"], None),
    "bf16": (None, ["--bf16"], None),
    "best": ([], ["--best"], None),
    "int8": ([], ["--int8"], None),
    **{name: (sum((["--" + flag, "off"] for flag in off), []), ["--int8"], None)
       for name, off in {"ranges": ("fit-weights", "correct-bias", "equalize"), "fitted": ("correct-bias", "equalize"),
                         "biased": ("fit-weights", "equalize"), "not-equalized": ("equalize",)}.items()},
    "symmetric": (["--symmetric"], ["--int8", "--symmetric"], None),
    **{method: (["--method", method], ["--int8"], None) for method in ("minmax", "entropy", "percentile", "mse")},
    **{f"{kept}-f32": ([], ["--int8"], kept) for kept in ("first", "last", "depthwise")},
}


def layer_names(inspected):
    """The layers of an engine that are int8: the first, the last, those with a channel for each group."""
    plan = inspected["plans"][0]
    names = [one["subject"] for one in plan["decisions"]
             if one["stage"] == "insert_quantize" and one["text"].startswith("is int8")]
    depthwise = [step["origins"][0] for step in plan["steps"] if "groups=" in step["op"] and step["origins"]]
    return {"first": names[:1], "last": names[-1:], "depthwise": depthwise}


class Judge:
    def __init__(self, anneal, data, folder, threads):
        self.anneal, self.data, self.folder, self.threads = anneal, data, Path(folder), threads

    def run(self, *arguments):
        done = subprocess.run([self.anneal, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"anneal {' '.join(map(str, arguments))}\n{done.stderr}")
        return done.stdout

    def evaluate(self, engine, flags, *more):
        report = self.folder / f"{engine.stem}.json"
        self.run("eval", engine, *flags, "--samples", "holdout:100", "--threads", self.threads, "--json", report, *more)
        return json.loads(report.read_text())

    def judge(self, model, where, flags, variants):
        onnx = f"{self.data}/models/{model}/model.onnx"
        flags = ["--data", f"{self.data}/datasets/{where}", *flags]
        reference = self.folder / "f32.engine"
        self.run("build", onnx, "-o", reference)
        f32 = self.evaluate(reference, flags)
        results = {"f32": {"samples": f32["samples"], "right": f32["top1_right"]}}
        for variant in variants:
            calibrate, build, kept = VARIANTS[variant]
            table, engine = self.folder / "x.ranges", self.folder / "x.engine"
            if calibrate is not None:
                self.run("calibrate", onnx, *flags, "--samples", "hash:100", *calibrate, "-o", table)
                build = [*build, "--calibration", table]
            self.run("build", onnx, *build, "-o", engine)
            if kept is not None:
                names = layer_names(json.loads(self.run("inspect", engine, "--json")))[kept]
                patterns = [f"--layer-precision={re.escape(name)}=f32" for name in names]
                self.run("build", onnx, *build, *patterns, "-o", engine)
            found = self.evaluate(engine, flags, "--against", self.folder / "f32.json")
            against = found["against"]
            results[variant] = {"right": found["top1_right"], "net_loss": against["net_loss"],
                                "interval": against["net_loss_interval"], "agree": against["agree"]}
            print(f"{model}: {variant} {results[variant]}", file=sys.stderr)
        return results


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anneal", default=ROOT / "build/release/bin/anneal")
    parser.add_argument("--data", default=ROOT / "../shared/data", help="holds models/ and datasets/")
    parser.add_argument("--models", default="", help="part of their names")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--threads", default=0, type=int)
    parser.add_argument("--json", help="where raw numbers go")
    arguments = parser.parse_args()
    variants = arguments.variants.split(",")
    if unknown := set(variants) - set(VARIANTS):
        parser.error(f"no such variant: {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    today = datetime.date.today().isoformat()
    report = {"date": today, "machine": processor(), "command": " ".join(sys.argv), "models": {}}
    with tempfile.TemporaryDirectory(prefix="anneal-precision-") as folder:
        judge = Judge(arguments.anneal, arguments.data, folder, arguments.threads)
        for title, (model, where, flags) in MODELS.items():
            if arguments.models in model:
                report["models"][title] = judge.judge(model, where, flags, variants)
    print(f"| model | judged on | f32 right | {' | '.join(variants)} |")
    print("|---" * (3 + len(variants)) + "|")
    for title, results in report["models"].items():
        cells = [f"{results[v]['net_loss']} ({results[v]['interval'][0]:g} to {results[v]['interval'][1]:g})" for v in variants]
        print(f"| {title} | {results['f32']['samples']} | {results['f32']['right']} | {' | '.join(cells)} |")
    path = Path(arguments.json or ROOT / f"bench/results/{today}-precision.json")
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
