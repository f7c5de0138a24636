#!/usr/bin/env python3
"""What the self-check costs of a build of lower precision.

    bench/self_check_share.py                                  # MobileNet v2, and BERT if `make bench` made it
    bench/self_check_share.py --rounds 5 model.onnx            # others, too
    bench/self_check_share.py --ranges model.ranges model.onnx # with --int8

Each model is built with --fp16 and --bf16, with a calibration table also with --int8 and --best. A row has the median of
the rounds: the build from reading the model to the engine's bytes, the check in it, and its share. MobileNet v2 is
calibrated on 20 pictures, BERT on 2 samples of random numbers. A table for docs/quantization.md goes to stdout.
"""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from precision import ROOT, TF, processor

PLAIN, EIGHT_BITS = (["--fp16"], ["--bf16"]), (["--int8"], ["--best"])


def run(command):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stderr}")


def bert_samples(folder):
    """Of the encoder that bench/make_models.py writes."""
    import numpy

    random = numpy.random.default_rng(0)
    samples = Path(folder) / "bert.npz"
    numpy.savez(samples, hidden=random.standard_normal((2, 128, 768), dtype=numpy.float32),
                mask=numpy.zeros((2, 1, 1, 128), numpy.float32))
    return samples


def medians(anneal, model, flags, rounds, folder):
    """Milliseconds of the build and of the check, and the check's share."""
    reports = []
    for _ in range(rounds):
        report = Path(folder) / "report.json"
        run([anneal, "build", model, *flags, "-q", "-o", Path(folder) / "x.engine", "--report", report])
        read = json.loads(report.read_text())
        reports.append((read["total_milliseconds"], read["self_check"]["milliseconds"], read["self_check"]["share"]))
    return [statistics.median(column) for column in zip(*reports)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--anneal", default=ROOT / "build/release/bin/anneal")
    parser.add_argument("--data", default=ROOT / "../shared/data", type=Path, help="holds models/ and datasets/")
    parser.add_argument("--nets", default=ROOT / "build/bench-nets", type=Path, help="what bench/make_models.py wrote")
    parser.add_argument("--ranges", type=Path, help="the calibration table of the models that are named")
    parser.add_argument("--rounds", default=3, type=int)
    arguments = parser.parse_args()
    print(f"{datetime.date.today()}, {processor()}")
    print("| model | flags | build, ms | self-check, ms | share |\n" + "|---" * 5 + "|")
    most = 0
    with tempfile.TemporaryDirectory(prefix="anneal-self-check-") as folder:
        def calibrated(model, name, *data):
            ranges = Path(folder) / f"{name}.ranges"
            run([arguments.anneal, "calibrate", model, *data, "-o", ranges])
            return ranges

        jobs = [(model.stem, model, arguments.ranges) for model in arguments.models]
        if not jobs:
            mobilenet = arguments.data / "models/mobilenet_v2_1.0_224_fp32/model.onnx"
            pictures = ["--data", arguments.data / "datasets/imagenet500", "--samples", "first:20", *TF]
            jobs.append(("MobileNet v2 1.0 224", mobilenet, calibrated(mobilenet, "mobilenet", *pictures)))
            for bert in sorted(arguments.nets.glob("bert_base_*l.onnx")):
                jobs.append((bert.stem, bert, calibrated(bert, bert.stem, "--data", bert_samples(folder))))
        for title, model, ranges in jobs:
            for flags in PLAIN + (EIGHT_BITS if ranges else ()):
                table = ["--calibration", ranges] if ranges and flags in EIGHT_BITS else []
                build, check, share = medians(arguments.anneal, model, flags + table, arguments.rounds, folder)
                most = max(most, share)
                print(f"| {title} | {flags[0]} | {build:.0f} | {check:.0f} | {100 * share:.0f} % |", flush=True)
    print(f"the largest share: {100 * most:.0f} %")


main()
