"""samples/generate: caches of several kinds give what a model gives that reads all tokens at once, and what ONNX Runtime gives."""

import cmath
import json
import math
import re
import subprocess
import sys
import time
import wave

import anneal
import numpy
import pytest
from conftest import ROOT

onnx = pytest.importorskip("onnx")
sys.path[:0] = [str(ROOT / "samples/generate"), str(ROOT / "bench")]

from decoder import Decoder, UnknownModel, states_of  # noqa: E402
from encoder_decoder import EncoderDecoder  # noqa: E402
from model_files import CACHES, Failure, build_with_states  # noqa: E402
from nets.llama import Llama  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from speech import LogMel, read_wav  # noqa: E402
from tokens import Tokenizer  # noqa: E402

PROMPT = [5, 17, 33, 4, 250, 91, 7]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "model.onnx"
    onnx.save(Llama(layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, vocabulary=256, accuracy_level=0).model(), path)
    return path


def growing_model(has_cache=True):
    """Logits are the sum of all embeddings, which a cache grows by Concat, times a matrix that position and mask scale."""
    table = numpy.random.default_rng(3).standard_normal((256, 8)).astype("float32")
    port = helper.make_tensor_value_info
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["embedded"]),
             helper.make_node("Unsqueeze", ["embedded", "one"], ["heads"]),
             helper.make_node("Concat", ["past_key_values.0.key", "heads"], ["present.0.key"], axis=2) if has_cache
             else helper.make_node("Identity", ["heads"], ["all"]),
             helper.make_node("ReduceSum", ["present.0.key" if has_cache else "all", "two"], ["sum"], keepdims=0),
             helper.make_node("MatMul", ["sum", "flipped"], ["product"]),
             helper.make_node("Cast", ["position_ids"], ["positions"], to=TensorProto.FLOAT),
             helper.make_node("ReduceMax", ["positions"], ["last"], keepdims=0),
             helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
             helper.make_node("ReduceSum", ["mask"], ["count"], keepdims=0),
             helper.make_node("Add", ["last", "count"], ["factor"]),
             helper.make_node("Div", ["product", "factor"], ["logits"])]
    inputs = [port("input_ids", TensorProto.INT64, ["b", "n"]), port("attention_mask", TensorProto.INT64, ["b", "t"]),
              port("position_ids", TensorProto.INT64, ["b", "n"])]
    outputs = [port("logits", TensorProto.FLOAT, ["b", 1, 256])]
    if has_cache:
        inputs.append(port("past_key_values.0.key", TensorProto.FLOAT, ["b", 1, "p", 8]))
        outputs.append(port("present.0.key", TensorProto.FLOAT, ["b", 1, "p + n", 8]))
    weights = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(numpy.ascontiguousarray(table[::-1].T), "flipped"),
               numpy_helper.from_array(numpy.array([1]), "one"), numpy_helper.from_array(numpy.array([2]), "two")]
    graph = helper.make_graph(nodes, "growing", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def greedy(decoder, count):
    tokens, read = [], PROMPT
    for _ in range(count):
        read = [int(decoder.feed(read).argmax())]
        tokens += read
    return tokens


def test_a_buffer_grows_and_is_updated_in_place(llama):
    engine = anneal.build(llama)
    whole, tokens = Decoder(engine), []
    for _ in range(20):
        whole.reset()
        tokens.append(int(whole.feed(PROMPT + tokens).argmax()))
    assert len(set(tokens)) > 5
    decoder = Decoder(engine, rows=8)
    pieces = greedy(decoder, 20)
    assert pieces == tokens
    rows = 32  # 26 tokens, 8 at a time
    assert decoder.state_bytes == 2 * 2 * 2 * rows * 16 * 4, "layers, keys and values, heads, rows, numbers, bytes; nothing twice"


def test_a_session_keeps_the_caches(llama):
    for model in (llama, growing_model().SerializeToString()):
        engine = anneal.build(model)
        states = {state.past.name: state.present.name for state in states_of(engine)}
        decoder = Decoder(anneal.build(model, states=states))
        assert greedy(decoder, 20) == greedy(Decoder(engine), 20)
        assert decoder.state_bytes > 0 and decoder.memory_bytes > 0
        tokens = decoder.tokens
        decoder.reset()
        greedy(decoder, 20)
        assert decoder.tokens == tokens


def test_a_model_without_such_caches_is_built_without_states(glyphs):
    engine = build_with_states(glyphs, None, CACHES)
    assert all(info.state_output is None for info in engine.inputs)


def test_two_buffers_take_turns_where_a_plan_copies(llama, monkeypatch):
    engine = anneal.build(llama)
    tokens, refuser = greedy(Decoder(engine, rows=8), 20), Decoder(engine, rows=8)
    run = refuser._session.run

    class Refuses:
        memory_bytes = 0

        def run(self, inputs, out):
            for name, array in out.items():
                if any(array is other for other in inputs.values()):
                    error = anneal.InvalidArgumentError(f'the memory of output "{name}" overlaps')
                    error.port = name
                    raise error
            return run(inputs, out=out)

    monkeypatch.setattr(refuser, "_session", Refuses())
    assert greedy(refuser, 20) == tokens
    assert refuser.state_bytes == 2 * 2 * 2 * 2 * 32 * 16 * 4


def test_tokens_are_those_of_onnx_runtime(llama):
    onnxruntime = pytest.importorskip("onnxruntime")
    engine = anneal.build(llama)

    class Reference:
        """What Decoder uses of an engine and a session."""

        inputs, outputs = engine.inputs, engine.outputs
        session_of = onnxruntime.InferenceSession(str(llama), providers=["CPUExecutionProvider"])

        def session(self, threads):
            return self

        def run(self, inputs, out=None):
            assert out is not None
            names = [info.name for info in self.outputs]
            return dict(zip(names, self.session_of.run(names, inputs)))

    assert greedy(Decoder(Reference()), 20) == greedy(Decoder(engine), 20)


def test_a_cache_that_grows_by_concat_and_none():
    growing = anneal.build(growing_model().SerializeToString())
    none = anneal.build(growing_model(has_cache=False).SerializeToString())
    tokens = greedy(Decoder(growing), 20)
    assert tokens == greedy(Decoder(none), 20)
    assert len(set(tokens)) > 5
    decoder = Decoder(growing)
    greedy(decoder, 3)
    assert decoder.state_bytes == (len(PROMPT) + 2) * 8 * 4


def test_states_in_another_order(tmp_path):
    port, shapes = helper.make_tensor_value_info, {"conv": ["b", 3, 2], "recurrent": ["b", 2, 5, 4]}
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["logits"]), *(
        helper.make_node("Abs", [f"past.0.{name}"], [f"present.0.{name}"]) for name in shapes)]
    inputs = [port("input_ids", TensorProto.INT64, ["b", "n"]), *(port(f"past.0.{name}", TensorProto.FLOAT, shape) for name, shape in shapes.items())]
    outputs = [port("logits", TensorProto.FLOAT, ["b", "n", 8]),
               *(port(f"present.0.{name}", TensorProto.FLOAT, shape) for name, shape in reversed(shapes.items()))]
    graph = helper.make_graph(nodes, "hybrid", inputs, outputs, [numpy_helper.from_array(TABLE, "table")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    pairs = [(f"past.0.{name}", f"present.0.{name}") for name in shapes]
    for states in ((), ({"other.*": "next.*"}, {"past.*": "present.*"})):
        engine = build_with_states(tmp_path / "m.onnx", None, states)
        assert [(state.past.name, state.present.name) for state in states_of(engine)] == pairs
        assert all(state.is_kept == bool(states) for state in states_of(engine))


def test_a_model_of_another_kind(glyphs):
    with pytest.raises(UnknownModel, match="no input of token ids"):
        Decoder(anneal.build(glyphs))


def write_tokenizer(path):
    tokenizers = pytest.importorskip("tokenizers")
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = byte_level(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator([], tokenizers.trainers.BpeTrainer(
        vocab_size=256, initial_alphabet=byte_level.alphabet(), show_progress=False))
    tokenizer.save(str(path))
    return tokenizer


def generate(*arguments, **options):
    return subprocess.run([sys.executable, ROOT / "samples/generate/generate.py", *map(str, arguments)], capture_output=True, text=True,
                          **options)


def test_the_command(llama, tmp_path):
    tokenizer = write_tokenizer(llama.parent / "tokenizer.json")
    done = generate(llama, "Grüße", "--max-tokens", 20, "--save", tmp_path / "llama.engine")
    assert done.returncode == 0, done.stderr
    tokens, read, decoder = [], tokenizer.encode("Grüße").ids, Decoder(anneal.build(llama))
    for _ in range(20):
        read = [int(decoder.feed(read).argmax())]
        tokens += read
    # Bytes that are no whole character at the end are not printed.
    assert tokenizer.decode(tokens).startswith(done.stdout.rstrip("\n")) and len(done.stdout) > 5
    assert re.search(r"first token [\d.]+ ms after a prompt of 7 tokens\n[\d.]+ tokens per second, 20 tokens\n"
                     r"memory: caches 0.1 MB, activations [\d.]+ MB, process [\d.]+ MB at its peak", done.stderr)
    # From the engine, a folder, and standard input.
    again = [generate(tmp_path / "llama.engine", "Grüße", "--max-tokens", 20, "--tokenizer", llama.parent / "tokenizer.json"),
             generate(llama.parent, "-", "--max-tokens", 20, input="Grüße")]
    assert [each.stdout for each in again] == [done.stdout] * 2
    end = llama.parent / "generation_config.json"
    end.write_text(f'{{"eos_token_id": [{tokens[4]}]}}')
    assert "4 tokens\n" in generate(llama, "Grüße", "--max-tokens", 20).stderr
    end.write_text('{"eos_token_id": 255, "max_position_embeddings": 7}')
    assert "the prompt has 7 tokens, and the model takes 7" in generate(llama, "Grüße").stderr
    end.unlink()


def test_errors_of_the_command(llama, glyphs, tmp_path):
    write_tokenizer(llama.parent / "tokenizer.json")
    tokenizer = ["--tokenizer", llama.parent / "tokenizer.json"]
    (tmp_path / "bad.json").write_text("{")
    for arguments, text in ((("none.onnx", "x"), "there is no file or folder none.onnx"), ((tmp_path, "x"), "has 0 files *.onnx"),
                            ((llama, "x", "--tokenizer", "none.json"), "there is no tokenizer file none.json"),
                            ((llama, "x", "--tokenizer", tmp_path / "bad.json"), "bad.json is no tokenizer file"),
                            ((llama, "x", "--max-tokens", "0"), "--max-tokens"), ((llama, "x", "--device", "cuda"), "for the CPU"),
                            ((llama, "x", "--temperature", "nan"), "temperature"), ((glyphs, "x", *tokenizer), "no input of token ids"),
                            ((llama, ""), "the prompt has no tokens"), ((llama, "x", "--top-p", "2"), "top_p")):
        done = generate(*arguments)
        assert done.returncode == 2, arguments
        assert text in done.stderr and "Traceback" not in done.stderr, done.stderr


TABLE = numpy.random.default_rng(4).standard_normal((256, 8)).astype("float32")
CONSTANTS = [numpy_helper.from_array(TABLE, "table"), numpy_helper.from_array(numpy.ascontiguousarray(TABLE[::-1].T), "flipped"),
             *(numpy_helper.from_array(numpy.array(value), name) for name, value in (("one", [1]), ("two", [2]), ("three", [3])))]
HIDDEN = ("encoder_hidden_states", TensorProto.FLOAT, ["b", "s", 8])
IDS = ("input_ids", TensorProto.INT64, ["b", "n"])
MASK = ("encoder_attention_mask", TensorProto.INT64, ["b", "s"])
SELF, CROSS = [["b", 1, rows, 8] for rows in ("p", "s")]


def expected_logits(source, tokens):
    """What the decoder below computes, without caches, of f32[rows, 8] of the encoder."""
    sums = TABLE[tokens].sum(0) + 3 * TABLE[tokens[-1]] + (source * numpy.arange(1, len(source) + 1)[:, None]).mean(0)
    return numpy.sin(sums * 2) @ TABLE[::-1].T


def expected_tokens(source, start, count, never=(), first=()):
    tokens = list(start)
    while len(tokens) < len(start) + count:
        logits = expected_logits(source, tokens)
        logits[[*never, *(first if len(tokens) == len(start) else ())]] = -math.inf
        tokens.append(int(logits.argmax()))
    return tokens[len(start):]


def model_of(nodes, inputs, outputs, weights=CONSTANTS):
    ports = [[helper.make_tensor_value_info(*port) for port in ports] for ports in (inputs, outputs)]
    graph = helper.make_graph(nodes, "part", *ports, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def encoder_nodes(hidden):
    """Rows of the table, each times its place, counted from 1."""
    return [helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("CumSum", ["mask", "one"], ["places"]),
            helper.make_node("Unsqueeze", ["places", "two"], ["factors"]),
            helper.make_node("Mul", ["rows", "factors"], [hidden])]


def decoder_nodes(cached, past, present, cross, mask, prefix=""):
    """The sum of all tokens in the cache, the last one, and the mean of the encoder's rows."""
    name = (prefix + "{}").format
    mean = [helper.make_node("Cast", [MASK[0]], [name("mask")], to=TensorProto.FLOAT),
            helper.make_node("ReduceSum", [name("mask"), "one"], [name("size")]),
            helper.make_node("ReduceSum", [cross, "two"], [name("total")], keepdims=0),
            helper.make_node("Div", [name("total"), name("size")], [name("mean")])]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], [name("rows")]),
             helper.make_node("Unsqueeze", [name("rows"), "one"], [name("heads")]),
             helper.make_node("Concat", [past, name("heads")], [present], axis=2) if cached
             else helper.make_node("Identity", [name("heads")], [present]),
             helper.make_node("ReduceSum", [present, "two"], [name("sum")], keepdims=0),
             helper.make_node("Shape", ["input_ids"], [name("count")], start=1),
             helper.make_node("Sub", [name("count"), "one"], [name("before")]),
             helper.make_node("Slice", [name("rows"), name("before"), name("count"), "one"], [name("last")]),
             helper.make_node("Cast", ["three"], [name("times")], to=TensorProto.FLOAT),
             helper.make_node("Mul", [name("last"), name("times")], [name("more")]),
             *(mean if mask else [helper.make_node("ReduceMean", [cross, "two"], [name("mean")], keepdims=0)]),
             helper.make_node("Sum", [name("sum"), name("more"), name("mean")], [name("all")]),
             helper.make_node("Add", [name("all"), name("all")], [name("twice")]),
             helper.make_node("Sin", [name("twice")], [name("wave")]),
             helper.make_node("MatMul", [name("wave"), "flipped"], [prefix + "logits"])]
    return nodes


def decoder_model(kind, mask=True):
    """As optimum exports them: "first" makes the constant caches of the encoder's output, "next" reads all caches, "merged" has
    both and gives an empty tensor for the constant ones. As onnxruntime-genai does: "genai"."""
    past, cross = ("past_key_values.0.decoder.key", TensorProto.FLOAT, SELF), ("past_key_values.0.encoder.key", TensorProto.FLOAT, CROSS)
    logits, present = ("logits", TensorProto.FLOAT, ["b", "1", 256]), ("present.0.decoder.key", TensorProto.FLOAT, ["b", 1, "p + n", 8])
    constant = ("present.0.encoder.key", TensorProto.FLOAT, ["b2", 1, "s2", 8])
    ids, masks = [IDS], [MASK] if mask else []
    if kind == "genai":
        past, cross = ("past_key_self_0", *past[1:]), ("past_key_cross_0", *cross[1:])
        present = ("present_key_self_0", *present[1:])
        return model_of(decoder_nodes(True, past[0], present[0], cross[0], False), [*ids, past, cross], [logits, present])
    if kind == "next":
        return model_of(decoder_nodes(True, past[0], present[0], cross[0], mask), [*ids, *masks, past, cross], [logits, present])
    first = [helper.make_node("Unsqueeze", [HIDDEN[0], "one"], ["present.0.encoder.key"])]
    if kind == "first":
        nodes = [*first, *decoder_nodes(False, "", present[0], constant[0], mask)]
        return model_of(nodes, [*ids, HIDDEN, *masks], [logits, present, constant])
    branches = {}
    for prefix, cached in (("with_", True), ("without_", False)):
        names = [prefix + name for name in ("logits", present[0], constant[0])]
        empty = helper.make_node("Constant", [], [names[2]], value=numpy_helper.from_array(numpy.zeros((0, 1, 1, 8), "float32")))
        nodes = [empty if cached else helper.make_node("Unsqueeze", [HIDDEN[0], "one"], [names[2]]),
                 *decoder_nodes(cached, past[0], names[1], cross[0] if cached else names[2], mask, prefix)]
        types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        branches["then_branch" if cached else "else_branch"] = helper.make_graph(nodes, prefix, [], types)
    node = helper.make_node("If", ["use_cache_branch"], ["logits", present[0], constant[0]], **branches)
    return model_of([node], [*ids, HIDDEN, *masks, past, cross, ("use_cache_branch", TensorProto.BOOL, [1])], [logits, present, constant])


LAYOUTS = {"merged": ["merged"], "two files": ["first", "next"], "no caches": ["first"], "genai": ["genai"]}


def text_encoder(kind="optimum"):
    inputs = [("input_ids", TensorProto.INT64, ["b", "s"]), ("attention_mask", TensorProto.INT64, ["b", "s"])]
    hidden = ("hidden_states" if kind == "genai" else "last_hidden_state", *HIDDEN[1:])
    nodes, outputs = encoder_nodes(hidden[0]), [hidden]
    if kind == "genai":
        nodes.append(helper.make_node("Unsqueeze", ["hidden_states", "one"], ["present_key_cross_0"]))
        outputs.append(("present_key_cross_0", TensorProto.FLOAT, CROSS))
    return model_of(nodes, inputs, outputs)


def engine_of(model):
    onnx.checker.check_model(model)
    return anneal.build(model)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_encoder_and_its_decoder(layout):
    model = EncoderDecoder(engine_of(text_encoder(layout)), [engine_of(decoder_model(kind)) for kind in LAYOUTS[layout]])
    assert not model.reads_speech
    seen = set()
    for source, start in (([7, 9, 200, 31], [3]), ([5, 80], [3]), ([12] * 9, [3, 44, 8])):  # caches of one are not those of the next
        model.encode(source)
        tokens, read = list(start), start
        for _ in range(30):
            logits = model.feed(read)
            numpy.testing.assert_allclose(logits, expected_logits(TABLE[source], tokens), atol=1e-3)
            read = [int(logits.argmax())]
            tokens += read
        seen |= set(tokens)
        assert model.state_bytes == (0 if layout == "no caches" else (len(source) + len(tokens) - 1) * 8 * 4)
        model.reset()
        numpy.testing.assert_allclose(model.feed(start), expected_logits(TABLE[source], start), atol=1e-3)
    assert len(seen) > 15


def test_parts_that_do_not_fit():
    with pytest.raises(UnknownModel, match="needs an encoder: give the folder"):
        Decoder(engine_of(decoder_model("merged")))
    with pytest.raises(UnknownModel, match="no output logits, but last_hidden_state"):
        EncoderDecoder(engine_of(text_encoder()), [engine_of(text_encoder())])


def write_parts(folder, encoder, layout, mask=True):
    folder.mkdir(exist_ok=True)
    names = {"merged": "decoder_model_merged", "first": "decoder_model", "next": "decoder_with_past_model", "genai": "decoder"}
    onnx.save(encoder, folder / ("encoder.onnx" if layout == "genai" else "encoder_model.onnx"))
    for kind in LAYOUTS[layout]:
        onnx.save(decoder_model(kind, mask), folder / f"{names[kind]}.onnx")
    return write_tokenizer(folder / "tokenizer.json")


def raw_text(folder, tokens):
    tokenizer = Tokenizer(folder / "tokenizer.json")
    return "".join(tokenizer.more_text(token) for token in tokens)


def printed(folder, tokens):
    """The text of the command. A pipe that is read as text has one kind of line end."""
    return re.sub("\r\n?", "\n", raw_text(folder, tokens))


def test_the_command_with_an_encoder(tmp_path):
    for layout in ("merged", "two files"):
        folder = tmp_path / layout
        tokenizer = write_parts(folder, text_encoder(), layout)
        done = generate(folder, "Grüße")
        assert done.returncode == 2 and '"decoder_start_token_id" is missing' in done.stderr
        source, start = TABLE[tokenizer.encode("Grüße").ids], [3, 60]
        free = expected_tokens(source, start, 20)
        never = next(token for token in free if token != free[0])
        tokens = expected_tokens(source, start, 20, [never], free[:1])
        settings = {"decoder_start_token_id": 3, "forced_bos_token_id": 60, "eos_token_id": [], "bad_words_ids": [[never], [tokens[0], 2]]}
        (folder / "config.json").write_text(json.dumps(settings))
        (folder / "generation_config.json").write_text(json.dumps({"begin_suppress_tokens": free[:1]}))
        done = generate(folder, "Grüße", "--max-tokens", 20, "--save", folder / "engines")
        assert done.returncode == 0, done.stderr
        assert done.stdout == printed(folder, tokens) + "\n"
        assert re.search(r"first token [\d.]+ ms after a prompt of 7 tokens\n[\d.]+ tokens per second, 20 tokens\nmemory: ", done.stderr)
        assert generate(folder / "engines", "-", "--max-tokens", 20, input="Grüße").stdout == done.stdout
    (folder / "config.json").write_text(json.dumps({**settings, "eos_token_id": tokens[-1], "max_position_embeddings": 7}))
    assert f" {min(5, tokens.index(tokens[-1]))} tokens\n" in generate(folder, "Grüße").stderr
    assert "the prompt has 8 tokens, and the model takes 7" in generate(folder, "Grüße!").stderr
    parts = sorted(folder.glob("*.onnx"))
    for arguments, text in (((parts[0], "x"), f"give their folder {folder}"), ((folder, "x", "--save", folder), "give another one"),
                            ((folder, "x", "--save", parts[0]), "names a folder"), ((folder, "x", "--chat"), "there is no chat template")):
        done = generate(*arguments)
        assert done.returncode == 2 and text in done.stderr, done.stderr
    for part in folder.glob("decoder*"):
        part.unlink()
    assert "and no decoder: copy decoder_model_merged.onnx" in generate(folder, "x").stderr


def slow_log_mel(samples, mels, n_fft, hop, rate):
    """transformers' formula in loops: Slaney's scale in steps of 200 / 3 Hz up to 1000 Hz, above it 27 steps for a factor of 6.4."""
    def hertz(mel):
        return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)

    top = 15 + 27 * math.log(8) / math.log(6.4)  # of 8000 Hz
    edges = [hertz(top * number / (mels + 1)) for number in range(mels + 2)]
    half, count = n_fft // 2, len(samples)
    found = numpy.empty((mels, count // hop))
    for frame in range(count // hop):
        power = []
        for k in range(half + 1):
            total = 0j
            for i in range(n_fft):
                at = abs(frame * hop + i - half)  # mirrored at both ends
                at = at if at < count else 2 * (count - 1) - at
                total += samples[at] * (0.5 - 0.5 * math.cos(2 * math.pi * i / n_fft)) * cmath.exp(-2j * math.pi * k * i / n_fft)
            power.append(abs(total) ** 2)
        for mel in range(mels):
            low, middle, high = edges[mel:mel + 3]
            total = 0.0
            for k in range(half + 1):
                f = k * rate / n_fft
                share = (f - low) / (middle - low) if low < f <= middle else (high - f) / (high - middle) if middle < f < high else 0
                total += power[k] * share * 2 / (high - low)
            found[mel, frame] = math.log10(max(total, 1e-10))
    return (numpy.maximum(found, found.max() - 8) + 4) / 4


def features_of(folder, **settings):
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return LogMel(folder / "encoder_model.onnx")


def test_log_mel_features(tmp_path):
    features = features_of(tmp_path, feature_size=12, n_fft=128, hop_length=1600, chunk_length=1, sampling_rate=16000)
    places = numpy.arange(12000) / 16000
    noise = numpy.random.default_rng(2).standard_normal(12000)
    samples = (0.4 * numpy.sin(2 * numpy.pi * (300 + 2000 * places) * places) + 0.01 * noise).astype("float32")
    whole = numpy.concatenate([samples, numpy.zeros(4000, "float32")])  # silence up to the length of a chunk
    expected = slow_log_mel(whole.tolist(), 12, 128, 1600, 16000)
    assert features(samples).shape == (12, 10) and expected.std() > 0.3
    numpy.testing.assert_allclose(features(samples), expected, atol=1e-4)
    assert features_of(tmp_path)(samples).shape == (80, 3000)
    with pytest.raises(Failure, match="features of MoonshineFeatureExtractor"):
        features_of(tmp_path, feature_extractor_type="MoonshineFeatureExtractor")
    with pytest.raises(Failure, match="there is no .*preprocessor_config.json"):
        LogMel(tmp_path / "none" / "encoder_model.onnx")


def write_wav(path, samples, channels=1, width=2, rate=16000):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes((samples * 32768).astype("<i2").tobytes())
    return path


def test_wav_files(tmp_path):
    samples = numpy.array([0, 0.5, -1, 32767 / 32768], "float32")
    assert (read_wav(write_wav(tmp_path / "a.wav", samples), 16000) == samples).all()
    for options, text in (({"rate": 8000}, "at 8000 Hz, and the model takes one of 16 bits at 16000 Hz"), ({"channels": 2}, "2 channel"),
                          ({"width": 1}, "of 8 bits")):
        with pytest.raises(Failure, match=text):
            read_wav(write_wav(tmp_path / "b.wav", samples, **options), 16000)
    (tmp_path / "c.wav").write_bytes(b"RIFF")
    with pytest.raises(Failure, match="c.wav is no WAV file"):
        read_wav(tmp_path / "c.wav", 16000)
    with pytest.raises(Failure, match="cannot read none.wav"):
        read_wav("none.wav", 16000)
    with pytest.raises(Failure, match="has no samples"):
        read_wav(write_wav(tmp_path / "d.wav", samples[:0]), 16000)


def test_the_command_with_speech(tmp_path):
    folder = tmp_path / "speech"
    encoder = model_of([helper.make_node("Transpose", ["input_features"], ["last_hidden_state"], perm=[0, 2, 1])],
                       [("input_features", TensorProto.FLOAT, ["b", 8, 100])], [("last_hidden_state", *HIDDEN[1:])], [])
    write_parts(folder, encoder, "merged", mask=False)
    (folder / "config.json").write_text('{"decoder_start_token_id": 3, "eos_token_id": 255, "max_target_positions": 14}')
    languages = {"<|en|>": 20, "<|de|>": 21, "<|fr|>": 22}
    settings = {"lang_to_id": languages, "task_to_id": {"transcribe": 30, "translate": 31}, "no_timestamps_token_id": 32}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    features = features_of(folder, feature_size=8, n_fft=64, hop_length=160, chunk_length=1)
    samples = (numpy.random.default_rng(1).standard_normal(24000) * numpy.linspace(0, 0.3, 24000)).clip(-1, 0.99)
    samples = (samples * 32768).astype("int16").astype("float32") / 32768
    path = write_wav(tmp_path / "a.wav", samples)

    def transcript(task, language=None):
        texts = ""
        for chunk in (samples[:16000], samples[16000:]):
            source = features(chunk).T
            # Each row of this encoder counts once.
            source = source / numpy.arange(1, 101)[:, None]
            found = language or max(languages.values(), key=lambda token: expected_logits(source, [3])[token])
            texts += printed(folder, expected_tokens(source, [3, found, task, 32], 10))
        return texts

    assert len({transcript(30), transcript(31), transcript(30, 20), transcript(30, 22)}) > 2
    for arguments, text in (((), transcript(30)), (("--task", "translate"), transcript(31)), (("--language", "fr"), transcript(30, 22))):
        done = generate(folder, path, *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout == text + "\n"
        assert re.search(r"first token [\d.]+ ms after 1.0 s of speech\n[\d.]+ tokens per second, 20 tokens\n", done.stderr)
    for arguments, text in ((("--language", "xx"), 'no language "xx": <|en|> <|de|> <|fr|>'),
                            (("--task", "sing"), 'no task "sing": transcribe translate')):
        done = generate(folder, path, *arguments)
        assert done.returncode == 2 and text in done.stderr, done.stderr
