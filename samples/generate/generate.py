#!/usr/bin/env python3
"""Text from a language model: `generate.py MODEL PROMPT`, streamed, with the times and the memory of the run.

MODEL is an ONNX model with its tokenizer.json beside it, a folder with both, or an engine file (give --tokenizer). Needs
anneal, numpy, and tokenizers of PyPI.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path

import anneal

from decoder import Decoder, UnknownModel
from sampling import Sampler

MODELS = ("model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx", "decoder_model.onnx")


class Failure(Exception):
    """An error that ends the command. Its text is for the user."""


def model_file(path: Path) -> Path:
    if not path.exists():
        raise Failure(f"there is no file or folder {path}")
    if not path.is_dir():
        return path
    for folder in (path, path / "onnx"):
        for name in MODELS:
            if (folder / name).exists():
                return folder / name
    found = sorted(path.glob("*.onnx"))
    if len(found) != 1:
        raise Failure(f"{path} has {len(found)} files *.onnx: name one of them")
    return found[0]


def load(path: Path, flags: argparse.Namespace) -> anneal.Engine:
    if path.suffix != ".onnx":
        return anneal.load(path, device=flags.device)
    if flags.device not in ("auto", "cpu"):
        raise Failure("a model is built for the CPU here: build an engine for the GPU with `anneal build --target`, and give its file")
    begin = time.perf_counter()
    engine = anneal.build(path, flags.save, precision=flags.precision)
    note(f"built {path} in {time.perf_counter() - begin:.1f} s" + (f", saved as {flags.save}" if flags.save else ""))
    return engine


class Tokenizer:
    """Converts a prompt to tokens, and new tokens to text, by a tokenizer.json."""

    def __init__(self, path: Path) -> None:
        try:
            import tokenizers
            from tokenizers.decoders import DecodeStream
        except ImportError:
            raise Failure("the package tokenizers is missing or too old: pip install 'tokenizers>=0.21'") from None
        if not path.exists():
            raise Failure(f"there is no tokenizer file {path}: give one with --tokenizer")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the package has no class of its own
            raise Failure(f"{path} is no tokenizer file: {error}") from None
        self._stream = DecodeStream(skip_special_tokens=True)

    def encode(self, text: str) -> list[int]:
        tokens = self._tokenizer.encode(text).ids
        if not tokens:
            raise Failure("the prompt has no tokens")
        return list(tokens)

    def more_text(self, token: int) -> str:
        """The text that the token adds; empty while a character is not complete."""
        return self._stream.step(self._tokenizer, token) or ""

    def token_of(self, text: str) -> int | None:
        return self._tokenizer.token_to_id(text)


def settings_of(folder: Path) -> dict:
    """Settings from the JSON files beside a model, such as "eos_token_id" and "context_length"."""
    settings: dict = {}
    for name in ("config.json", "generation_config.json", "genai_config.json"):
        if (folder / name).exists():
            try:
                found = json.loads((folder / name).read_text(encoding="utf-8"))
            except ValueError as error:
                raise Failure(f"{folder / name} is no JSON: {error}") from None
            settings.update(found.get("model", found) if name.startswith("genai") else found)
    return settings


def end_tokens(settings: dict, tokenizer: Tokenizer) -> set[int]:
    ids = settings.get("eos_token_id")
    if ids is None:
        ids = [tokenizer.token_of(text) for text in ("</s>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<eos>")]
    return {token for token in (ids if isinstance(ids, list) else [ids]) if token is not None}


def generate(decoder: Decoder, sampler: Sampler, prompt: list[int], limit: int, ends: set[int]):
    """Yields tokens until one of `ends`, which is not among them, or until there are `limit`."""
    read = prompt
    for _ in range(limit):
        token = sampler(decoder.feed(read))
        if token in ends:
            return
        yield token
        read = [token]


def note(text: str) -> None:
    print(text, file=sys.stderr)


def megabytes(count: float) -> str:
    return f"{count / 1e6:.1f} MB"


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="ONNX model, folder with one, or engine file")
    parser.add_argument("prompt", help="text to continue; -: standard input")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json (default: beside the model)")
    parser.add_argument("--max-tokens", type=int, default=128, help="largest number of new tokens (default: 128)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the best token (default), above 0 draws one")
    parser.add_argument("--top-k", type=int, default=0, help="draw from the K best tokens (default: from all)")
    parser.add_argument("--top-p", type=float, default=1.0, help="draw from the fewest best tokens with this total probability (default: 1)")
    parser.add_argument("--seed", type=int, help="seed of the random draws (default: another one in each run)")
    parser.add_argument("--threads", type=int, default=0, help="maximum number of threads (default: one per core)")
    parser.add_argument("--device", default="auto", help="device for an engine file: auto, cpu, cuda (default: auto)")
    parser.add_argument("--precision", default="f32", help="precision that the build may use: f32, f16, bf16, best (default: f32)")
    parser.add_argument("--save", type=Path, help="file to write the built engine to")
    return parser.parse_args()


def main() -> int:
    flags = parse_flags()
    if flags.max_tokens < 1 or flags.threads < 0:
        raise Failure("--max-tokens must be at least 1, and --threads at least 0")
    sampler = Sampler(flags.temperature, flags.top_k, flags.top_p, flags.seed)
    path = model_file(flags.model)
    tokenizer = Tokenizer(flags.tokenizer or path.parent / "tokenizer.json")
    settings = settings_of(path.parent)
    prompt = tokenizer.encode(sys.stdin.read() if flags.prompt == "-" else flags.prompt)
    most = settings.get("context_length") or settings.get("max_position_embeddings") or len(prompt) + flags.max_tokens
    if len(prompt) >= most:
        raise Failure(f"the prompt has {len(prompt)} tokens, and the model takes {most}")
    window = settings.get("decoder", {}).get("sliding_window", {})
    decoder = Decoder(load(path, flags), threads=flags.threads, window=window.get("window_size", 0) + window.get("cache_slack", 0))

    times = [time.perf_counter()]
    for token in generate(decoder, sampler, prompt, min(flags.max_tokens, most - len(prompt)), end_tokens(settings, tokenizer)):
        times.append(time.perf_counter())
        print(tokenizer.more_text(token), end="", flush=True)
    print()
    if len(times) > 1:
        note(f"first token {1e3 * (times[1] - times[0]):.1f} ms after a prompt of {len(prompt)} tokens")
    if len(times) > 2:
        note(f"{(len(times) - 2) / (times[-1] - times[1]):.1f} tokens per second, {len(times) - 1} tokens")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    note(f"memory: caches {megabytes(decoder.state_bytes)}, activations {megabytes(decoder.memory_bytes)}, process {megabytes(peak)} at its peak")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, UnknownModel, ValueError, anneal.Error) as error:
        note(f"generate: {error}")
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
