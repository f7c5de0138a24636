#!/usr/bin/env python3
"""The speed of two builds of Anneal on the same models, in turns: whether a change made engines slower.

    two_binaries.py OLD NEW MODEL... [--ways plain,bf16,fp16] [--rounds 5] [--threads 1]

OLD and NEW are commands `anneal`; the libraries of each are found beside it, in ../lib. Each builds its own engines. Prints the
median time of each and the median of the ratios old / new of the rounds: above 1, the new one is faster.
"""

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import tempfile
from pathlib import Path


def call(anneal, *command):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(Path(anneal).resolve().parent.parent / "lib")}
    subprocess.run([anneal, *map(str, command)], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def milliseconds(anneal, engine, threads, report):
    call(anneal, "bench", engine, "--input", "random", "--threads", threads, "--duration", 0.4, "--warmup", "100ms", "--json", report)
    return json.loads(report.read_text())["latency_milliseconds"]["median"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("old")
    arguments.add_argument("new")
    arguments.add_argument("models", nargs="+", type=Path)
    arguments.add_argument("--ways", default="plain,bf16,fp16")
    arguments.add_argument("--rounds", default=5, type=int)
    arguments.add_argument("--threads", default=1, type=int)
    given = arguments.parse_args()
    print(f"{datetime.date.today()}, {given.threads} threads, {given.rounds} rounds; times in ms")
    print("| model | way | old | new | old / new |\n" + "|---" * 5 + "|")
    ratios = []
    for model in given.models:
        for way in given.ways.split(","):
            with tempfile.TemporaryDirectory(prefix="anneal-two-") as folder:
                engines = {name: Path(folder) / f"{name}.engine" for name in ("old", "new")}
                commands = {"old": given.old, "new": given.new}
                try:
                    for name, engine in engines.items():
                        call(commands[name], "build", model, "-q", "-o", engine, *([] if way == "plain" else [f"--{way}"]))
                    times = {name: [] for name in engines}
                    for _ in range(given.rounds):
                        for name, engine in engines.items():
                            times[name].append(milliseconds(commands[name], engine, given.threads, Path(folder) / "report.json"))
                except subprocess.CalledProcessError as error:
                    print(f"| {model.parent.name} | {way} | ends with status {error.returncode}: {' '.join(error.cmd[1:3])} | | |", flush=True)
                    continue
            ratios.append(statistics.median(old / new for old, new in zip(times["old"], times["new"])))
            name = model.parent.name if model.stem == "model" else model.stem
            print(f"| {name} | {way} | {statistics.median(times['old']):.3f} | {statistics.median(times['new']):.3f} | "
                  f"{ratios[-1]:.3f} |", flush=True)
    print(f"geometric mean of old / new: {math.exp(statistics.mean(map(math.log, ratios))):.3f}")


if __name__ == "__main__":
    main()
