#!/usr/bin/env python3
"""One engine of three profiles against three engines of one size each, on an encoder of BERT-base's width.

    profiles.py ANNEAL [--layers 4] [--rounds 7] [--threads 0]

For sequences of 16, 128 and 512: the median time of the engine of its own, of the engine with three profiles, and of an
engine with one profile for all three; each as a ratio to the first (below 1: faster), measured in turns. Then the sizes of the
files and the memory of a process that has run all three lengths. Needs numpy and onnx.
"""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parent))
from nets import dense  # noqa: E402  (the folder of this script comes first)

LENGTHS = (16, 128, 512)


def shapes(length):
    return f"hidden:1x{length}x768,mask:1x1x1x{length}"


def write_model(path, layers):
    """The encoder with an open number of tokens."""
    model = dense.bert(layers).model()
    for value in [*model.graph.input, *model.graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value == 128:
                dim.dim_param = "tokens"
    onnx.save(model, str(path))


def milliseconds(anneal, engine, length, threads):
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        subprocess.run([anneal, "bench", engine, "--input", "random", "--shapes", shapes(length), "--duration", "1", "--threads",
                        str(threads), "--json", report.name], check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(report.name).read_text())


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("anneal")
    arguments.add_argument("--layers", default=4, type=int)
    arguments.add_argument("--rounds", default=7, type=int)
    arguments.add_argument("--threads", default=0, type=int)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="anneal-profiles-") as folder:
        model = Path(folder) / "bert.onnx"
        write_model(model, given.layers)

        def build(name, *flags):
            engine = Path(folder) / f"{name}.engine"
            subprocess.run([given.anneal, "build", model, "-q", "-o", engine, *flags], check=True)
            return engine

        ranges = [("--min-shapes", shapes(LENGTHS[0]), "--opt-shapes", shapes(length), "--max-shapes", shapes(LENGTHS[2]))
                  for length in LENGTHS]
        own = {length: build(f"own{length}", "--shapes", shapes(length)) for length in LENGTHS}
        profiles = build("profiles", *[flag for length in LENGTHS for flag in ("--opt-shapes", shapes(length))])
        wide = build("wide", *ranges[1])
        print(f"{datetime.date.today()}, {given.layers} layers, {given.rounds} rounds; times in ms")
        print("| tokens | own engine | three profiles | ratio | one wide profile | ratio |\n" + "|---" * 6 + "|")
        memory = {}
        for length in LENGTHS:
            times = {name: [] for name in ("own", "profiles", "wide")}
            for _ in range(given.rounds):
                for name, engine in (("own", own[length]), ("profiles", profiles), ("wide", wide)):
                    report = milliseconds(given.anneal, engine, length, given.threads)
                    times[name].append(report["latency_milliseconds"]["median"])
                    memory[name, length] = report["memory_bytes"]["peak_resident"]
            least = {name: statistics.median(each) for name, each in times.items()}
            # Of each round, which other processes disturb alike.
            ratio = {name: statistics.median(a / b for a, b in zip(times[name], times["own"])) for name in times}
            print(f"| {length} | {least['own']:.2f} | {least['profiles']:.2f} | {ratio['profiles']:.3f} | {least['wide']:.2f} | "
                  f"{ratio['wide']:.3f} |", flush=True)
        megabytes = {name: path.stat().st_size / 1e6 for name, path in {"profiles": profiles, **own}.items()}
        print(f"files: three profiles {megabytes['profiles']:.1f} MB, engines of their own "
              + ", ".join(f"{megabytes[length]:.1f}" for length in LENGTHS) + " MB")
        print("peak memory of a process, MB: " + ", ".join(
            f"{length} tokens {memory['own', length] / 1e6:.0f} alone and {memory['profiles', length] / 1e6:.0f} with profiles"
            for length in LENGTHS))


if __name__ == "__main__":
    main()
