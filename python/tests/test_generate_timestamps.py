"""samples/generate --timestamps: which tokens may follow, the lines of segments, and where the next chunk begins."""

import json
import math
import re

import numpy
import pytest
from onnx import TensorProto, helper
from test_generate_sample import HIDDEN, expected_logits, features_of, generate, model_of, write_parts, write_wav

from model_files import Failure  # noqa: E402
from timestamps import LEAST_STEP, Segments, Timestamps, clock  # noqa: E402
from tokens import Tokenizer  # noqa: E402

END, NONE, COUNT = 50, 60, 160  # timestamps: 61 to 159


def transcript(random, last_start, length):
    timestamps, tokens = Timestamps({"no_timestamps_token_id": NONE, "max_initial_timestamp_index": last_start}, {END}), []
    for _ in range(length):
        logits = random.standard_normal(COUNT) * 3
        timestamps.exclude(logits, tokens)
        token = int(logits.argmax())
        assert logits[token] > -math.inf
        if token == END:
            break
        tokens.append(token)
    return tokens


def test_what_may_follow():
    random, pairs, closed = numpy.random.default_rng(5), 0, 0
    for trial in range(300):
        last_start = (None, 4)[trial % 2]
        tokens = transcript(random, last_start, 30)
        times = [token for token in tokens if token > NONE]
        assert NONE not in tokens and tokens[0] > NONE and (last_start is None or tokens[0] <= NONE + 1 + last_start)
        assert times == sorted(times)
        for before, token, following in zip([NONE + 1, *tokens], tokens, tokens[1:]):
            if token > NONE and before > NONE:  # a segment begins
                assert following < NONE
            elif token > NONE:  # a segment ends
                assert following >= END
                pairs += following > NONE
        closed += len(tokens) > 1 and tokens[-1] > NONE >= tokens[-2]
    assert pairs > 50 and closed > 5


def test_a_timestamp_that_is_more_probable_than_each_word():
    timestamps = Timestamps({"no_timestamps_token_id": NONE}, {END})
    for others, is_timestamp in ((-0.5, True), (-4.0, False)):
        logits = numpy.full(COUNT, -20.0)
        logits[7], logits[100:110] = 1.0, others  # ten timestamps together are e^2.3 times as probable as each
        timestamps.exclude(logits, [NONE + 1, 3])
        assert (int(logits.argmax()) >= 100) == is_timestamp


def test_models_without_timestamps():
    for settings, ends in (({}, {END}), ({"no_timestamps_token_id": NONE}, set())):
        with pytest.raises(Failure, match="has no timestamps"):
            Timestamps(settings, ends)
    for none, last_start in (("x", 1), (END - 1, 1), (-5, 1), (NONE, -1), (NONE, "x")):
        with pytest.raises(Failure, match="the first must be the largest"):
            Timestamps({"no_timestamps_token_id": none, "max_initial_timestamp_index": last_start}, {END})
    with pytest.raises(Failure, match="the model has 160 tokens, and generation_config.json has timestamps from 160 on"):
        Timestamps({"no_timestamps_token_id": COUNT - 1}, {END}).exclude(numpy.zeros(COUNT), [])


class Letters:
    def more_text(self, token):
        return " " + chr(97 + token)

    def end_text(self):
        pass


# covered: by a transcript that the model ended, and by one that it did not end.
@pytest.mark.parametrize("tokens, lines, covered", (
    ([0.0, "a", "b", 1.5], ["[00:00:10.00 --> 00:00:11.50] a b"], (2.0, 1.5)),
    ([0.5, "a", 1.0, 1.2, "b", 1.8], ["[00:00:10.50 --> 00:00:11.00] a", "[00:00:11.20 --> 00:00:11.80] b"], (2.0, 1.8)),
    ([0.5, "a", 1.0, 1.0, "b"], ["[00:00:10.50 --> 00:00:11.00] a"], (1.0, 1.0)),
    ([0.5, "a", 1.0, 1.2], ["[00:00:10.50 --> 00:00:11.00] a"], (1.0, 1.0)),
    ([0.5, "a"], ["[00:00:10.50 --> 00:00:12.00] a"], (2.0, 2.0)),
    ([0.0, "a", 0.0, 0.0, "b"], ["[00:00:10.00 --> 00:00:10.00] a", "[00:00:10.00 --> 00:00:12.00] b"], (2.0, 2.0)),
    ([0.5, "a", 9.0], ["[00:00:10.50 --> 00:00:12.00] a"], (2.0, 2.0)),
    ([6.0, "a", 7.0], [], (2.0, 2.0)),
    ([0.5], [], (2.0, 2.0)),
    ([], [], (2.0, 2.0))))
@pytest.mark.parametrize("is_complete", (True, False))
def test_lines(tokens, lines, covered, is_complete):
    segments = Segments(Timestamps({"no_timestamps_token_id": 1000}, {END}), Letters(), 10.0, 2.0)
    text = "".join(segments.text_of(ord(token) - 97 if isinstance(token, str) else 1001 + round(token / 0.02)) for token in tokens)
    rest, seconds = segments.end(is_complete)
    assert (text + rest).splitlines() == lines and seconds == pytest.approx(covered[not is_complete])


def test_a_clock():
    assert clock(3723.456) == "01:02:03.46" and clock(59.999) == "00:01:00.00"


def test_the_command(tmp_path):
    folder = tmp_path / "speech"
    encoder = model_of([helper.make_node("Transpose", ["input_features"], ["last_hidden_state"], perm=[0, 2, 1])],
                       [("input_features", TensorProto.FLOAT, ["b", 8, 100])], [("last_hidden_state", *HIDDEN[1:])], [])
    write_parts(folder, encoder, "merged", mask=False)
    (folder / "config.json").write_text('{"decoder_start_token_id": 3, "eos_token_id": 140, "max_target_positions": 14}')
    (folder / "generation_config.json").write_text(json.dumps({"no_timestamps_token_id": 199, "max_initial_timestamp_index": 10}))
    features = features_of(folder, feature_size=8, n_fft=64, hop_length=160, chunk_length=1)
    samples = (numpy.random.default_rng(1).standard_normal(40000) * numpy.linspace(0, 0.3, 40000)).clip(-1, 0.99)
    samples = (samples * 32768).astype("int16").astype("float32") / 32768
    path = write_wav(tmp_path / "a.wav", samples)
    timestamps, tokenizer = Timestamps({"no_timestamps_token_id": 199, "max_initial_timestamp_index": 10}, {140}), Tokenizer(folder / "tokenizer.json")
    lines, first, begins = "", 0, []
    while first < len(samples):
        begins.append(first)
        chunk = samples[first:first + 16000]
        source = features(chunk).T / numpy.arange(1, 101)[:, None]
        segments, tokens = Segments(timestamps, tokenizer, first / 16000, len(chunk) / 16000), []
        while len(tokens) < 13:
            logits = expected_logits(source, [3, *tokens])
            timestamps.exclude(logits, tokens)
            tokens.append(int(logits.argmax()))
            if tokens[-1] == 140:
                break
            lines += segments.text_of(tokens[-1])
        line, covered = segments.end(len(tokens) < 13 or tokens[-1] == 140)
        lines += line
        first += round(max(covered, LEAST_STEP) * 16000)
    assert any(begin % 16000 for begin in begins)  # a chunk begins behind a segment
    done = generate(folder, path, "--timestamps")
    assert done.returncode == 0, done.stderr
    # A pipe that is read as text has one kind of line end.
    assert done.stdout == re.sub("\r\n?", "\n", lines)
    few = generate(folder, path, "--max-tokens", 2)
    assert few.returncode == 0 and few.stderr.count("the transcript of 1.0 s of speech was cut after 2 tokens") == 2
    for flags, text in ((("--timestamps", "--beams", 2), "leave out --beams"), (("--language", "en", "--timestamps"), "one language")):
        done = generate(folder, path, *flags)
        assert done.returncode == 2 and text in done.stderr
