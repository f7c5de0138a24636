#!/usr/bin/env python3
"""Text from a language model: `generate.py MODEL PROMPT`, streamed, with the times and the memory of the run.

`generate.py MODEL --chat` without a prompt answers each line of standard input, with the lines and answers before it in view.

MODEL is an ONNX model with its tokenizer.json beside it, a folder with both, or an engine file (give --tokenizer). A folder with
an encoder and a decoder is a model from text to text, or from speech: then PROMPT is the text, or a WAV file. Needs anneal,
numpy, and tokenizers of PyPI; --chat also needs jinja2.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, Iterable, Iterator

import anneal

from beams import BeamSearch
from chat import Chat
from decoder import Decoder, UnknownModel
from encoder_decoder import EncoderDecoder
from model_files import Failure, beside, load, model_files, note, settings_of
from sampling import Sampler
from speech import LogMel, read_wav, transcript_prompt
from timestamps import LEAST_STEP, Segments, Timestamps
from tokens import Stream, Tokenizer, end_tokens, excluded_tokens, first_tokens


def generate(model: Decoder | EncoderDecoder, sampler: Sampler, prompt: list[int], limit: int, ends: set[int],
             excluded: tuple[list[int], list[int]] = ([], []), timestamps: Timestamps | None = None) -> Iterator[int]:
    """Yields tokens until one of `ends`, which is not among them, or until there are `limit`. `excluded` has tokens that are not
    taken at any place, and more of them that are not taken first. A Decoder does not read again what it has read of the prompt."""
    never, before, written = excluded[0] + excluded[1], set(prompt), list[int]()
    read = model.unread(prompt) if isinstance(model, Decoder) else prompt
    for _ in range(limit):
        logits = model.feed(read)
        logits[never] = -float("inf")
        if timestamps:
            timestamps.exclude(logits, written)
        token = sampler(logits, before)
        if token in ends:
            return
        yield token
        written.append(token)
        read, never = [token], excluded[0]
        before.add(token)


class Program:
    """What the command generates with: the flags, the files, the tokenizer and the settings."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self.flags = flags
        self.sampler = Sampler(flags.temperature, flags.top_k, flags.top_p, flags.seed, flags.repetition_penalty)
        self.files = model_files(flags.model)
        self.max_tokens: int = flags.max_tokens or 128
        path = flags.tokenizer or beside(self.files[0], "tokenizer.json")
        self.tokenizer, self.settings = Tokenizer(path), settings_of(self.files[0])
        self.chat = Chat(path) if flags.chat else None
        self.ends = end_tokens(self.settings, self.tokenizer, self.chat.special_tokens.get("eos_token") if self.chat else None)
        self.most = next((self.settings[name] for name in ("context_length", "max_position_embeddings", "max_target_positions")
                          if self.settings.get(name)), 0)
        self.stream = Stream(self.tokenizer)

    def text(self) -> list[int]:
        """The tokens of the prompt."""
        text = sys.stdin.read() if self.flags.prompt == "-" else self.flags.prompt
        return self.chat_tokens([*self.first_messages(), message("user", text)]) if self.chat else self.tokenizer.encode(text)

    def first_messages(self) -> list[dict[str, str]]:
        return [] if self.flags.system is None else [message("system", self.flags.system)]

    def chat_tokens(self, messages: list[dict[str, str]]) -> list[int]:
        assert self.chat
        return self.tokenizer.encode(self.chat.prompt(messages), special_tokens=False)  # the template writes the special tokens

    def limit(self, before: int) -> int:
        """The number of new tokens behind `before`."""
        return min(self.max_tokens, self.most - before) if self.most else self.max_tokens

    def check_length(self, count: int, most: int) -> None:
        if self.most and count > most:
            raise Failure(f"the prompt has {count} tokens, and the model takes {self.most}")

    def decoder(self) -> Decoder:
        window = self.settings.get("decoder", {}).get("sliding_window", {})
        return Decoder(load(self.files, self.flags)[0], threads=self.flags.threads,
                       window=window.get("window_size", 0) + window.get("cache_slack", 0))

    def behind(self, model: Decoder, prompt: list[int]) -> str:
        """Prints the text that follows, and returns it."""
        self.check_length(len(prompt), self.most - 1)
        return self.stream.print(generate(model, self.sampler, prompt, self.limit(len(prompt)), self.ends),
                                 f"a prompt of {len(prompt)} tokens")

    def continue_text(self) -> Decoder:
        prompt = self.text()
        self.check_length(len(prompt), self.most - 1)  # before the model is built
        model = self.decoder()
        self.behind(model, prompt)
        return model

    def answer_lines(self) -> Decoder:
        model, messages = self.decoder(), self.first_messages()
        for line in lines_of_user():
            messages.append(message("user", line))
            answer = self.behind(model, self.chat_tokens(messages))
            messages.append(message("assistant", answer))
            print(flush=True)
        return model

    def decoded(self, model: EncoderDecoder, start: list[int], forced: int = 0, timestamps: Timestamps | None = None) -> Iterable[int]:
        """The tokens behind `start`, the last `forced` of which belong to the text."""
        limit, excluded = self.limit(len(start)), excluded_tokens(self.settings)
        if self.flags.beams == 1:
            return generate(model, self.sampler, start, limit, self.ends, excluded, timestamps)
        penalty = self.settings.get("length_penalty", 1.0) if self.flags.length_penalty is None else self.flags.length_penalty
        if not isinstance(penalty, (int, float)) or not -10 <= penalty <= 10:
            raise Failure(f"the length penalty {penalty} is not between -10 and 10: give another one with --length-penalty")
        search = BeamSearch(self.flags.beams, penalty, self.settings.get("early_stopping") is True)
        return search(model, start, limit, self.ends, excluded, forced)

    def from_text(self, model: EncoderDecoder) -> None:
        prompt, start = self.text(), first_tokens(self.settings, self.files[0])
        self.check_length(len(prompt), self.most)

        def tokens() -> Iterator[int]:
            model.encode(prompt)
            yield from self.decoded(model, start, len(start) - 1)

        self.stream.print(tokens(), f"a prompt of {len(prompt)} tokens", at_once=self.flags.beams > 1)

    def from_speech(self, model: EncoderDecoder) -> None:
        """Transcribes chunks of the length that the model takes, each without the others."""
        features, start = LogMel(self.files[0]), first_tokens(self.settings, self.files[0])
        samples = read_wav(Path(self.flags.prompt), features.rate)
        timestamps = Timestamps(self.settings, self.ends) if self.flags.timestamps else None
        self.max_tokens = self.flags.max_tokens or 224
        limit = count = 0  # of the tokens of a chunk

        def logits_after(prompt: list[int]) -> Any:
            logits = model.feed(prompt)
            model.reset()
            return logits

        def tokens(chunk: Any) -> Iterator[int]:
            nonlocal limit, count
            model.encode(features(chunk))
            prompt = transcript_prompt(self.settings, start, self.flags.language, self.flags.task, logits_after, self.flags.timestamps)
            limit, count = self.limit(len(prompt)), 0
            for token in self.decoded(model, prompt, timestamps=timestamps):
                count += 1
                yield token

        first = 0
        while first < len(samples):
            chunk = samples[first:first + features.chunk]
            seconds = len(chunk) / features.rate
            after = f"{seconds:.1f} s of speech"
            segments = Segments(timestamps, self.tokenizer, first / features.rate, seconds) if timestamps else None
            self.stream.print(tokens(chunk), after, segments.text_of if segments else None, at_once=self.flags.beams > 1)
            line, covered = segments.end(count < limit) if segments else ("", seconds)
            print(line, end="", flush=True)
            if count == limit and covered == seconds:
                note(f"generate: the transcript of {seconds:.1f} s of speech was cut after {limit} tokens: try a larger --max-tokens")
            first += round(max(covered, LEAST_STEP) * features.rate)


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def lines_of_user() -> Iterator[str]:
    """The lines of standard input that are not empty. A terminal shows where to write."""
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="ONNX model, folder with one or with an encoder and a decoder, or engine file")
    parser.add_argument("prompt", nargs="?", help="text to continue or to convert, -: standard input; for a speech model a WAV file; "
                        "none with --chat: each line of standard input is a message")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json (default: beside the model)")
    parser.add_argument("--max-tokens", type=int, help="largest number of new tokens (default: 128, and 224 for each chunk of speech)")
    parser.add_argument("--chat", action="store_true", help="the prompt is a message of a user: apply the model's chat template")
    parser.add_argument("--system", help="system message of the chat")
    parser.add_argument("--language", help="language of the speech, such as en (default: the model finds it)")
    parser.add_argument("--task", default="transcribe",
                        help="of a speech model: transcribe, or translate into English (default: transcribe)")
    parser.add_argument("--timestamps", action="store_true", help="of a speech model: print a line with start and end for each segment")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the best token (default), above 0 draws one")
    parser.add_argument("--top-k", type=int, default=0, help="draw from the K best tokens (default: from all)")
    parser.add_argument("--top-p", type=float, default=1.0, help="draw from the fewest best tokens with this total probability (default: 1)")
    parser.add_argument("--seed", type=int, help="seed of the random draws (default: another one in each run)")
    parser.add_argument("--repetition-penalty", type=float, default=1.0,
                        help="above 1 makes tokens of the prompt and of the text so far less likely (default: 1)")
    parser.add_argument("--beams", type=int, default=1,
                        help="of a model with an encoder: write this number of texts side by side and print the most probable one (default: 1)")
    parser.add_argument("--length-penalty", type=float,
                        help="with --beams: above 0 prefers long texts, below 0 short ones (default: generation_config.json's, else 1)")
    parser.add_argument("--threads", type=int, default=0, help="maximum number of threads (default: one per core)")
    parser.add_argument("--device", default="auto", help="device for an engine file: auto, cpu, cuda (default: auto)")
    parser.add_argument("--precision", default="f32", help="precision that the build may use: f32, f16, bf16, best (default: f32)")
    parser.add_argument("--weight-format", default="", help="weights in integers: int8, int4, int4:64 (default: as in the model)")
    parser.add_argument("--save", type=Path, help="file to write the built engine to, or a folder for an encoder and its decoders")
    return parser.parse_args()


def main() -> int:
    flags = parse_flags()
    if (flags.max_tokens is not None and flags.max_tokens < 1) or flags.threads < 0:
        raise Failure("--max-tokens must be at least 1, and --threads at least 0")
    if flags.system is not None and not flags.chat:
        raise Failure("--system is a message of a chat: add --chat")
    if flags.prompt is None and not flags.chat:
        raise Failure("a prompt is missing. Only a chat reads messages from standard input: add --chat")
    if flags.beams < 1:
        raise Failure("--beams must be at least 1")
    draws = flags.temperature or flags.top_k or flags.top_p != 1 or flags.seed is not None
    if flags.beams > 1 and (draws or flags.repetition_penalty != 1):
        raise Failure("--beams looks for the most probable text: leave out --temperature, --top-k, --top-p, --seed and --repetition-penalty")
    if flags.length_penalty is not None and flags.beams == 1:
        raise Failure("--length-penalty needs --beams")
    if flags.beams > 1 and flags.timestamps:
        raise Failure("--timestamps takes one token after the other: leave out --beams")
    program = Program(flags)
    if len(program.files) == 1 and (flags.beams > 1 or flags.timestamps):
        raise Failure(f"{program.files[0]} has no encoder: leave out --{'timestamps' if flags.timestamps else 'beams'}")
    model: Decoder | EncoderDecoder
    if len(program.files) == 1:
        model = program.answer_lines() if flags.prompt is None else program.continue_text()
    elif flags.prompt is None:
        raise Failure(f"{program.files[0]} has an encoder, and converts one text: add a prompt")
    else:
        encoder, *decoders = load(program.files, flags)
        model = EncoderDecoder(encoder, decoders, threads=flags.threads)
        if flags.beams > 1 and not model.has_open_batch:
            raise Failure(f"{program.files[-1]} takes one text at a time: leave out --beams")
        if not model.reads_speech and flags.timestamps:
            raise Failure(f"{program.files[0]} reads text: leave out --timestamps")
        if not model.reads_speech:
            program.from_text(model)
        elif flags.chat:
            raise Failure(f"{program.files[0]} reads speech: leave out --chat")
        else:
            program.from_speech(model)
    if flags.prompt is not None and not flags.timestamps:
        print()
    for line in program.stream.report():
        note(line)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    caches, activations = model.state_bytes / 1e6, model.memory_bytes / 1e6
    note(f"memory: caches {caches:.1f} MB, activations {activations:.1f} MB, process {peak / 1e6:.1f} MB at its peak")
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
