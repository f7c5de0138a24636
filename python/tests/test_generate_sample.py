"""samples/generate: caches of several kinds give what a model gives that reads all tokens at once, and what ONNX Runtime gives."""

import re
import subprocess
import sys

import anneal
import numpy
import pytest
from conftest import ROOT

onnx = pytest.importorskip("onnx")
sys.path[:0] = [str(ROOT / "samples/generate"), str(ROOT / "bench")]

from decoder import Decoder, UnknownModel  # noqa: E402
from nets.llama import Llama  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from sampling import Sampler  # noqa: E402

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


def test_a_model_of_another_kind(glyphs):
    with pytest.raises(UnknownModel, match="no input of token ids"):
        Decoder(anneal.build(glyphs))


def test_sampling():
    logits = numpy.array([0.0, 2.0, 1.0, -1.0], "float32")
    assert Sampler()(logits) == 1
    draws = [Sampler(1.0, seed=seed)(logits) for seed in range(400)]
    share = numpy.bincount(draws, minlength=4) / 400
    assert abs(share - numpy.exp(logits) / numpy.exp(logits).sum()).max() < 0.08
    assert {Sampler(5.0, top_k=2, seed=seed)(logits) for seed in range(50)} == {1, 2}
    assert {Sampler(1.0, top_p=0.6, seed=seed)(logits) for seed in range(50)} == {1}
    assert {Sampler(1.0, top_p=0.7, seed=seed)(logits) for seed in range(50)} == {1, 2}
    same = [Sampler(1.0, seed=7) for _ in range(2)]
    assert [same[0](logits) for _ in range(9)] == [same[1](logits) for _ in range(9)]
    with pytest.raises(ValueError, match="top_p"):
        Sampler(1.0, top_p=0)


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
