#!/usr/bin/env python3
"""Tokens per second of a language model, Anneal and onnxruntime-genai in turns.

    generate.py FOLDER [--threads 1] [--prompt 128] [--tokens 64] [--rounds 3]

FOLDER is what onnxruntime-genai's builder wrote. Prints, for each engine, the time of the prompt and the tokens per second
behind it (medians of the rounds), the ratio of both (above 1: Anneal is faster), how many greedy tokens are the same, and the
sizes of model and engine. Needs anneal, numpy, onnxruntime-genai.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import anneal
import numpy as np
import onnxruntime_genai

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "samples/generate"))
from decoder import Decoder  # noqa: E402


def run_anneal(decoder, prompt, count):
    decoder.reset()
    tokens, read, times = [], prompt, [time.perf_counter()]
    for _ in range(count):
        read = [int(decoder.feed(read).argmax())]
        tokens += read
        times.append(time.perf_counter())
    return tokens, times


def run_genai(model, prompt, count):
    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(max_length=len(prompt) + count, min_length=len(prompt) + count, do_sample=False)
    generator = onnxruntime_genai.Generator(model, parameters)
    times = [time.perf_counter()]
    generator.append_tokens(np.array([prompt], np.int32))
    for _ in range(count):
        generator.generate_next_token()
        times.append(time.perf_counter())
    return list(generator.get_sequence(0))[len(prompt):], times


def genai_model(folder, threads):
    config = onnxruntime_genai.Config(str(folder))
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
    return onnxruntime_genai.Model(config)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    for name, default in (("threads", 1), ("prompt", 128), ("tokens", 64), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    flags = parser.parse_args()
    settings = json.loads((flags.folder / "genai_config.json").read_text())["model"]
    prompt = np.random.default_rng(1).integers(3, settings["vocab_size"], flags.prompt).tolist()
    window = settings["decoder"].get("sliding_window", {}).get("window_size", 0)
    with tempfile.TemporaryDirectory() as folder:
        engine = anneal.build(flags.folder / "model.onnx", Path(folder) / "model.engine")
        engine_bytes = (Path(folder) / "model.engine").stat().st_size
        decoder, model = Decoder(engine, threads=flags.threads, window=window), genai_model(flags.folder, flags.threads)
        runs = {"anneal": [], "genai": []}
        for _ in range(flags.rounds + 1):  # the first one is not counted
            runs["anneal"].append(run_anneal(decoder, prompt, flags.tokens))
            runs["genai"].append(run_genai(model, prompt, flags.tokens))
    medians = {}
    for name, rounds in runs.items():
        times = np.array([times for _, times in rounds[1:]])
        medians[name] = (float(np.median(times[:, 1] - times[:, 0])),
                         float(np.median((flags.tokens - 1) / (times[:, -1] - times[:, 1]))))
        print(f"{name:7} prompt of {flags.prompt} tokens {1e3 * medians[name][0]:8.1f} ms, then {medians[name][1]:7.1f} tokens per second")
    (first, speed), (peer_first, peer_speed) = medians["anneal"], medians["genai"]
    same = sum(a == b for a, b in zip(runs["anneal"][0][0], runs["genai"][0][0]))
    print(f"ratio   prompt {peer_first / first:.2f}, tokens {speed / peer_speed:.2f}; {same} of {flags.tokens} tokens are the same")
    model_bytes = sum(path.stat().st_size for path in flags.folder.glob("model.onnx*"))
    print(f"model {model_bytes / 1e6:.1f} MB, engine {engine_bytes / 1e6:.1f} MB; anneal {anneal.__version__}, "
          f"onnxruntime-genai {onnxruntime_genai.__version__}")


if __name__ == "__main__":
    main()
