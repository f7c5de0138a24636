#!/usr/bin/env python3
"""What calibrating costs beside inference: `anneal calibrate` against `anneal eval` in f32 over the same pictures.

    bench/calibration_time.py                  # 500 pictures, MobileNet v2 and SqueezeNet, 2 threads: a minute
    bench/calibration_time.py --threads 1 --rounds 5

Both read and decode the pictures, with as many threads. They run in turn; a result is the median of the rounds'
ratios. Times are those of the processor, which other processes on the machine change less than they do a clock;
memory is the most that the process held (ru_maxrss). A table for docs/quantization.md goes to stdout.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from precision import MODELS, ROOT, processor

NAMES = ("MobileNet v2 1.0 224", "SqueezeNet 1.0")


def measured(command):
    """Seconds of the processor, seconds of the clock, mebibytes."""
    before = os.times().elapsed
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return used.ru_utime + used.ru_stime, os.times().elapsed - before, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anneal", default=ROOT / "build/release/bin/anneal")
    parser.add_argument("--data", default=ROOT / "../shared/data", help="holds models/ and datasets/")
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--rounds", default=3, type=int)
    arguments = parser.parse_args()
    print(f"{processor()}, {arguments.threads} threads")
    print("| model | eval, s of processor (clock) | calibrate | ratio | eval, MiB | calibrate |\n" + "|---" * 6 + "|")
    with tempfile.TemporaryDirectory(prefix="anneal-calibration-") as folder:
        for name in NAMES:
            model, where, flags = MODELS[name]
            common = [f"{arguments.data}/models/{model}/model.onnx", "--data", f"{arguments.data}/datasets/{where}", *flags,
                      "--threads", arguments.threads, "--data-threads", arguments.threads]
            rounds = [(measured([arguments.anneal, "eval", *common]),
                       measured([arguments.anneal, "calibrate", *common, "-o", Path(folder) / "x.ranges"]))
                      for _ in range(arguments.rounds)]
            middle = [[statistics.median(round[which][column] for round in rounds) for column in range(3)]
                      for which in range(2)]
            ratio = statistics.median(calibrate[0] / judge[0] for judge, calibrate in rounds)
            print(f"| {name} | {middle[0][0]:.1f} ({middle[0][1]:.1f}) | {middle[1][0]:.1f} ({middle[1][1]:.1f}) | {ratio:.1f} | "
                  f"{middle[0][2]:.0f} | {middle[1][2]:.0f} |")


main()
