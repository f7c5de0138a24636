"""samples/generate --beams: texts side by side have the logits of each alone, and the search finds the most probable one."""

import json

import numpy
import onnx
import pytest
from test_generate_sample import (LAYOUTS, TABLE, decoder_model, engine_of, expected_logits, expected_tokens, generate,
                                  printed, text_encoder, write_parts)

import tokens  # noqa: E402
from beams import BeamSearch  # noqa: E402
from encoder_decoder import EncoderDecoder  # noqa: E402


def model_of(layout):
    return EncoderDecoder(engine_of(text_encoder(layout)), [engine_of(decoder_model(kind)) for kind in LAYOUTS[layout]])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_texts_side_by_side(layout):
    model = model_of(layout)
    for source in ([7, 9, 200, 31], [5, 80]):
        model.encode(source)
        numpy.testing.assert_allclose(model.feed([3, 44]), expected_logits(TABLE[source], [3, 44]), atol=1e-3)
        texts = [[3, 44]]
        for origins, tokens in (([0, 0, 0], [9, 1, 200]), ([2, 0, 2], [4, 5, 6]), ([0, 1, 2], [7, 7, 8]), ([2, 1], [90, 91]), ([1], [2])):
            texts = [[*texts[origin], token] for origin, token in zip(origins, tokens)]
            logits = model.feed_texts([[token] for token in tokens], origins)
            assert logits.shape == (len(texts), 256)
            for row, text in zip(logits, texts):
                numpy.testing.assert_allclose(row, expected_logits(TABLE[source], text), atol=1e-3)
        model.reset()


def log_probabilities(logits):
    logits = logits.astype(float) - logits.max()
    return logits - numpy.log(numpy.exp(logits).sum())


@pytest.mark.parametrize("length_penalty", (1.0, -1.5, 3.0))
def test_as_many_beams_as_tokens_find_the_best_of_all_texts(length_penalty):
    source, start = [7, 9, 200, 31], [3]
    first = log_probabilities(expected_logits(TABLE[source], start))
    end = int(numpy.argsort(-first)[1])
    best = (first[end], [])
    for token in range(256):
        if token == end:
            continue
        second = first[token] + log_probabilities(expected_logits(TABLE[source], [*start, token]))
        last = int(second.argmax())
        best = max(best, (second[last] / 2**length_penalty, [token] if last == end else [token, last]))
    model = model_of("merged")
    model.encode(source)
    assert BeamSearch(256, length_penalty)(model, start, 2, {end}) == best[1]


class Expected:
    """The logits that a decoder of test_generate_sample must give, of texts side by side."""

    def __init__(self, source):
        self.source = source

    def feed(self, tokens):
        self.texts = [list(tokens)]
        return expected_logits(self.source, tokens)

    def feed_texts(self, tokens, origins):
        self.texts = [self.texts[origin] + more for origin, more in zip(origins, tokens)]
        return numpy.stack([expected_logits(self.source, text) for text in self.texts])


def test_the_command(tmp_path):
    for layout in ("merged", "two files"):
        folder = tmp_path / layout
        tokenizer = write_parts(folder, text_encoder(), layout)
        source, start = TABLE[tokenizer.encode("Grüße").ids], [3, 60]
        never = expected_tokens(source, start, 1)
        settings = {"decoder_start_token_id": 3, "forced_bos_token_id": 60, "eos_token_id": 200, "bad_words_ids": [never], "length_penalty": -0.5}
        (folder / "generation_config.json").write_text(json.dumps(settings))
        found = [BeamSearch(beams, penalty)(Expected(source), start, 12, {200}, (never, []), forced=1) for beams, penalty in ((1, 1.0), (4, -0.5))]
        assert found[0] != found[1] and found[0] == expected_tokens(source, start, len(found[0]), never)
        done = generate(folder, "Grüße", "--max-tokens", 12, "--beams", 4)
        assert done.returncode == 0, done.stderr
        assert done.stdout == printed(folder, found[1]) + "\n"
        assert "first token" not in done.stderr and f" tokens per second, {len(found[1])} tokens\n" in done.stderr
        same = generate(folder, "Grüße", "--max-tokens", 12, "--beams", 4, "--length-penalty", -0.5)
        assert same.stdout == done.stdout
    for flags, text in ((("--beams", 0), "--beams must be at least 1"), (("--beams", 2, "--temperature", 1), "leave out --temperature"),
                        (("--beams", 2, "--top-k", 3), "leave out --temperature"), (("--length-penalty", 1), "needs --beams"),
                        (("--beams", 2, "--length-penalty", "nan"), "between -10 and 10"), (("--beams", 2, "--length-penalty", "1e9"), "between -10 and 10")):
        done = generate(folder, "x", *flags)
        assert done.returncode == 2 and text in done.stderr


def test_the_speed_is_that_of_the_search(monkeypatch, capsys):
    clock = iter(range(0, 100, 4))
    monkeypatch.setattr(tokens.time, "perf_counter", lambda: next(clock))

    class Dots:
        def more_text(self, token):
            return "."

        def end_text(self):
            pass

    def found():
        next(clock)  # the search takes 4 seconds more
        yield from [1, 2]

    stream = tokens.Stream(Dots())
    assert stream.print(found(), "a prompt", at_once=True) == ".."
    # The clock shows 0, 4 in the search, then 8 and 12.
    assert list(stream.report()) == ["0.2 tokens per second, 2 tokens"]


def test_a_decoder_of_one_text(tmp_path):
    folder = tmp_path / "fixed"
    write_parts(folder, text_encoder(), "merged")
    model = onnx.load(folder / "decoder_model_merged.onnx")
    for port in model.graph.input:
        if port.name == "input_ids":
            port.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, folder / "decoder_model_merged.onnx")
    (folder / "config.json").write_text('{"decoder_start_token_id": 3, "eos_token_id": 200}')
    done = generate(folder, "x", "--beams", 2)
    assert done.returncode == 2 and "takes one text at a time: leave out --beams" in done.stderr, done.stderr


def test_a_model_without_encoder(tmp_path):
    (tmp_path / "model.onnx").write_bytes(decoder_model("first").SerializeToString())
    write_parts(tmp_path / "parts", text_encoder(), "merged")
    done = generate(tmp_path / "model.onnx", "x", "--beams", 2, "--tokenizer", tmp_path / "parts/tokenizer.json")
    assert done.returncode == 2 and "has no encoder: leave out --beams" in done.stderr
