#!/usr/bin/env python3
"""A decoder with 4-bit weights and a cache, as onnxruntime-genai's builder writes Llama: Anneal and ONNX Runtime in turns.

    decoder.py ANNEAL [--layers 12] [--hidden 768] [--threads 1] [--rounds 5] [--tokens 16] [--accuracy-level 4]

Weights are random. Prints, for the first tokens (a prompt) and for the next token behind caches of several lengths, the median
time of one run of each, their ratio (above 1: Anneal is faster) and the median over the tokens of the largest difference of a
token's logits, as a share of the largest logit (random weights make a few tokens ill-conditioned: there 8-bit activations of
either engine change the logits altogether); then how many of `--tokens` greedy tokens are the same, and sizes and peak memory. Each token of Anneal's is a process
of its own there, which reads the cache from files. Needs numpy, onnx and onnxruntime.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from nets.llama import Llama

# Tokens of the run, rows of the cache before it.
RUNS = [(16, 0), (128, 0), (512, 0), (1, 16), (1, 256), (1, 1024)]


def open_session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def inputs_of(net, tokens, past, cache=None):
    """cache: as outputs() gives it; None: random numbers."""
    random = np.random.default_rng(past)
    inputs = {"input_ids": np.asarray(tokens, np.int64)[None], "attention_mask": np.ones((1, past + len(tokens)), np.int64)}
    for i in range(net.layers):
        for part in ("key", "value"):
            name = f"{i}.{part}"
            inputs[f"past.{name}"] = cache[f"present.{name}"] if cache else random.standard_normal(
                (1, net.kv_heads, past, net.head)).astype(np.float32)
    return inputs


def shapes_of(inputs):
    return ",".join(f"{name}:{'x'.join(map(str, array.shape))}" for name, array in inputs.items())


def median_of_session(session, inputs, runs):
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        session.run(["logits"], inputs)
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times))


def median_of_engine(flags, engine, inputs, folder, runs):
    report = folder / "bench.json"
    subprocess.run([flags.anneal, "bench", engine, "--threads", str(flags.threads), "--iterations", str(runs), "--shapes",
                    shapes_of(inputs), "--json", report], check=True, capture_output=True)
    return json.loads(report.read_text())["latency_milliseconds"]["median"]


def outputs(flags, engine, inputs, folder):
    arguments = []
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
        arguments += ["--input", f"{name}={folder}/{name}.npy"]
    subprocess.run([flags.anneal, "run", engine, *arguments, "--save", folder / "out"], check=True, capture_output=True)
    return {path.stem: np.load(path) for path in (folder / "out").glob("*.npy")}


def measure(flags, net, session, engine, folder, tokens, past):
    inputs = inputs_of(net, np.random.default_rng(1).integers(0, net.vocabulary, tokens), past)
    want, got = session.run(["logits"], inputs)[0], outputs(flags, engine, inputs, folder)["logits"]
    runs = 3 if tokens > 64 else 20
    rounds = [(median_of_session(session, inputs, runs), median_of_engine(flags, engine, inputs, folder, runs))
              for _ in range(flags.rounds)]
    peer, own = (float(np.median(times)) for times in zip(*rounds))
    error = np.median(np.abs(want - got).max(axis=(0, 2))) / np.abs(want).max()
    print(f"{tokens:6} {past:6} {peer:9.2f} {own:9.2f} {peer / own:6.2f}  {error:.0e}", flush=True)


def greedy(net, count, run):
    tokens, cache, past = [17, 4, 99, 250], None, 0
    chosen = []
    for _ in range(count):
        got = run(inputs_of(net, tokens, past, cache))
        past += len(tokens)
        tokens = [int(got["logits"][0, -1].argmax())]
        chosen += tokens
        cache = got
    return chosen


def peak_megabytes(flags, engine, inputs):
    command = ["/usr/bin/env", "python3", "-c", "import resource,subprocess,sys\n"
               "subprocess.run(sys.argv[1:], check=True, capture_output=True)\n"
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)",
               flags.anneal, "bench", engine, "--threads", str(flags.threads), "--iterations", "3", "--shapes", shapes_of(inputs)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anneal")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--accuracy-level", type=int, default=4)
    flags = parser.parse_args()
    net = Llama(layers=flags.layers, hidden=flags.hidden, ffn=flags.hidden * 8 // 3, accuracy_level=flags.accuracy_level)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, engine = folder / "model.onnx", folder / "model.engine"
        onnx.save(net.model(), path)
        subprocess.run([flags.anneal, "build", path, "-o", engine], check=True, capture_output=True)
        session = open_session(path, flags.threads)
        print(f"{net.parameters() / 1e6:.0f} million parameters; ms per run, {flags.threads} threads, onnxruntime {onnxruntime.__version__}")
        print(f"{'tokens':>6} {'cache':>6} {'ORT':>9} {'Anneal':>9} {'ratio':>6}  error")
        for tokens, past in RUNS:
            measure(flags, net, session, engine, folder, tokens, past)
        names = [output.name for output in session.get_outputs()]
        want = greedy(net, flags.tokens, lambda inputs: dict(zip(names, session.run(names, inputs))))
        got = greedy(net, flags.tokens, lambda inputs: outputs(flags, engine, inputs, folder))
        same = next((i for i, pair in enumerate(zip(want, got)) if pair[0] != pair[1]), len(want))
        peak = peak_megabytes(flags, engine, inputs_of(net, [5], 16))
        print(f"greedy tokens: the first {same} of {len(want)} are the same")
        print(f"model {path.stat().st_size / 1e6:.0f} MB, engine {engine.stat().st_size / 1e6:.0f} MB, peak memory of a process {peak:.0f} MiB")


if __name__ == "__main__":
    main()
