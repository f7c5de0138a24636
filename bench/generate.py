#!/usr/bin/env python3
"""Tokens per second of a language model, Anneal and its peers in turns.

    generate.py FOLDER [--threads 1] [--prompt 128] [--tokens 64] [--rounds 3] [--llama-cpp]

FOLDER is what onnxruntime-genai's builder wrote. Prints, for each program, the time of the prompt and the tokens per second
behind it (medians of the rounds), and for each peer the ratio of both (above 1: Anneal is faster) and how many greedy tokens
are the same; then the sizes of model and engine. Needs anneal, numpy, onnxruntime-genai.

--llama-cpp also runs llama.cpp, on the same integers with scales in f16 (llama_gguf.py): a Llama in int4 with blocks of 32 and no
zero points. Needs llama-cpp-python, gguf and onnx too.
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
from model_files import CACHES, build_with_states  # noqa: E402

try:
    import llama_cpp
    from llama_gguf import write_gguf
except ImportError:
    llama_cpp = None  # --llama-cpp needs it


# Seconds before each turn, in which idle threads of the program before stop spinning.
PAUSE = 0.5


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


def run_llama_cpp(model, prompt, count):
    model.reset()
    tokens, read, times = [], prompt, [time.perf_counter()]
    for _ in range(count):
        model.eval(read)
        logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        read = [int(np.ctypeslib.as_array(logits, (model.n_vocab(),)).argmax())]
        tokens += read
        times.append(time.perf_counter())
    return tokens, times


def llama_cpp_model(path, threads, length):
    return llama_cpp.Llama(str(path), n_ctx=length, n_batch=length, n_ubatch=length, n_threads=threads,
                           n_threads_batch=threads, verbose=False)


def genai_model(folder, threads):
    config = onnxruntime_genai.Config(str(folder))
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
    return onnxruntime_genai.Model(config)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    for name, default in (("threads", 1), ("prompt", 128), ("tokens", 64), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--llama-cpp", action="store_true", help="also run llama.cpp")
    flags = parser.parse_args()
    if flags.llama_cpp and llama_cpp is None:
        parser.error("--llama-cpp needs llama-cpp-python, gguf and onnx")
    settings = json.loads((flags.folder / "genai_config.json").read_text())["model"]
    prompt = np.random.default_rng(1).integers(3, settings["vocab_size"], flags.prompt).tolist()
    window = settings["decoder"].get("sliding_window", {}).get("window_size", 0)
    with tempfile.TemporaryDirectory() as folder:
        engine = build_with_states(flags.folder / "model.onnx", Path(folder) / "model.engine", CACHES)
        engine_bytes = (Path(folder) / "model.engine").stat().st_size
        decoder, model = Decoder(engine, threads=flags.threads, window=window), genai_model(flags.folder, flags.threads)
        programs = {"anneal": lambda: run_anneal(decoder, prompt, flags.tokens),
                    "genai": lambda: run_genai(model, prompt, flags.tokens)}
        if flags.llama_cpp:
            write_gguf(flags.folder, Path(folder) / "model.gguf")
            llama = llama_cpp_model(Path(folder) / "model.gguf", flags.threads, flags.prompt + flags.tokens)
            programs["llama"] = lambda: run_llama_cpp(llama, prompt, flags.tokens)
        runs = {name: [] for name in programs}
        for _ in range(flags.rounds + 1):  # the first one is not counted
            for name, run in programs.items():
                time.sleep(PAUSE)
                runs[name].append(run())
    medians = {}
    for name, rounds in runs.items():
        times = np.array([times for _, times in rounds[1:]])
        medians[name] = (float(np.median(times[:, 1] - times[:, 0])),
                         float(np.median((flags.tokens - 1) / (times[:, -1] - times[:, 1]))))
        print(f"{name:7} prompt of {flags.prompt} tokens {1e3 * medians[name][0]:8.1f} ms, then {medians[name][1]:7.1f} tokens per second")
    first, speed = medians.pop("anneal")
    for name, (peer_first, peer_speed) in medians.items():
        same = sum(a == b for a, b in zip(runs["anneal"][0][0], runs[name][0][0]))
        print(f"ratio to {name:7} prompt {peer_first / first:.2f}, tokens {speed / peer_speed:.2f}; {same} of {flags.tokens} tokens are the same")
    model_bytes = sum(path.stat().st_size for path in flags.folder.glob("model.onnx*"))
    print(f"model {model_bytes / 1e6:.1f} MB, engine {engine_bytes / 1e6:.1f} MB; anneal {anneal.__version__}, "
          f"onnxruntime-genai {onnxruntime_genai.__version__}" +
          (f", llama-cpp-python {llama_cpp.__version__}" if flags.llama_cpp else ""))


if __name__ == "__main__":
    main()
