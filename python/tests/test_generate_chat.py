"""samples/generate --chat: templates, and the answers to one message and to several."""

import json
import sys
import time

import anneal
import pytest
from test_generate_sample import generate, llama, printed, raw_text, write_tokenizer  # noqa: F401

from chat import Chat  # noqa: E402
from decoder import Decoder  # noqa: E402
from generate import message  # noqa: E402
from model_files import Failure  # noqa: E402

TEMPLATE = """{# of several lines #}
{{ bos_token }}
{%- for message in messages %}
    {% if message.role == 'assistant' %}
        {% generation %}{{ message.content }}{% endgeneration %}
    {% elif message.content == 'bad' %}
{{ raise_exception('no bad words') }}
    {% else %}
<{{ message.role }}>{{ message | tojson }}
    {% endif %}
    {% continue %}
{% endfor %}
{% if add_generation_prompt %}
<model>{{ strftime_now('%Y') }}{{ '' if tools is none else 'tools' }}
{% endif %}
"""


def test_a_chat_template(tmp_path):
    pytest.importorskip("jinja2")
    config = tmp_path / "tokenizer_config.json"
    year = time.strftime("%Y")
    config.write_text(json.dumps({"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "chat_template": TEMPLATE}))
    chat = Chat(tmp_path / "tokenizer.json")
    assert chat.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    user = '<user>{"role": "user", "content": "<b> é"}\n'
    assert chat.prompt([message("user", "<b> é")]) == f"<s>{user}<model>{year}\n"
    assert chat.prompt([message("system", "short"), message("user", "<b> é")]) == f'<s><system>{{"role": "system", "content": "short"}}\n{user}<model>{year}\n'
    with pytest.raises(Failure, match="tokenizer_config.json refuses the messages: no bad words"):
        chat.prompt([message("user", "bad")])

    def rendered(template):
        config.write_text(json.dumps({"chat_template": template}))
        return Chat(tmp_path / "tokenizer.json").prompt([message("user", "x")])

    assert rendered([{"name": "rag", "template": "a"}, {"name": "default", "template": "b"}]) == "b"
    for template, text in (("{{ messages.append(1) }}", "refuses the messages"), ("{{ ''.__class__.__mro__ }}", "refuses the messages"),
                           ("{% if %}", "is not valid"), (None, "there is no chat template"), ([], "there is no chat template")):
        with pytest.raises(Failure, match=text):
            rendered(template)
    (tmp_path / "chat_template.jinja").write_text("of the file")
    assert rendered(TEMPLATE) == "of the file"


def test_the_command_with_a_chat(llama, tmp_path):
    pytest.importorskip("jinja2")
    tokenizer = write_tokenizer(tmp_path / "plain.json")
    # The template has all special tokens, so the tokenizer adds none.
    tokenizer.post_processor = sys.modules["tokenizers"].processors.TemplateProcessing(
        single="! $A", special_tokens=[("!", tokenizer.token_to_id("!"))])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}")
    tokens, read, decoder = [], tokenizer.encode("s:hm;u:hello;", add_special_tokens=False).ids, Decoder(anneal.build(llama))
    while len(tokens) < 12:
        read = [int(decoder.feed(read).argmax())]
        tokens += read
    arguments = [llama, "hello", "--chat", "--system", "hm", "--tokenizer", tmp_path / "tokenizer.json", "--max-tokens", 12]
    done = generate(*arguments)
    assert done.returncode == 0, done.stderr
    assert "after a prompt of 13 tokens" in done.stderr and "12 tokens\n" in done.stderr
    assert done.stdout == printed(tmp_path, tokens) + "\n"
    end = max(tokens, key=tokens.index)  # of a turn
    assert tokens.index(end) > 2
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": tokenizer.id_to_token(end)}))
    assert f" {tokens.index(end)} tokens\n" in generate(*arguments).stderr
    for flags in (["x", "--system", "hm"], []):
        done = generate(llama, *flags, "--tokenizer", tmp_path / "tokenizer.json")
        assert done.returncode == 2 and "add --chat" in done.stderr


def test_the_command_with_several_messages(llama, tmp_path):
    pytest.importorskip("jinja2")
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}")
    arguments = ["--chat", "--system", "hm", "--tokenizer", tmp_path / "tokenizer.json", "--max-tokens", 5]
    done = generate(llama, *arguments, input="hello\n\n and you \n")
    assert done.returncode == 0, done.stderr
    assert "10 tokens\n" in done.stderr
    # What a model writes that reads all messages at once.
    text, answers = "s:hm;", ""
    for line in ("hello", "and you"):
        text += f"u:{line};"
        tokens, read, decoder = [], tokenizer.encode(text, add_special_tokens=False).ids, Decoder(anneal.build(llama))
        while len(tokens) < 5:
            read = [int(decoder.feed(read).argmax())]
            tokens += read
        text += f"a:{raw_text(tmp_path, tokens)};"
        answers += printed(tmp_path, tokens) + "\n"
    assert done.stdout == answers
    assert generate(llama, *arguments, input="").stdout == ""


def test_what_a_decoder_has_read_is_not_read_again(llama):
    decoder = Decoder(anneal.build(llama))
    decoder.feed([5, 17, 33])
    assert decoder.unread([5, 17, 33, 4, 250]) == [4, 250]
    logits = decoder.feed([4, 250])
    fresh = Decoder(anneal.build(llama))
    assert fresh.unread([5, 17, 33, 4, 250]) == [5, 17, 33, 4, 250]
    assert fresh.feed([5, 17, 33, 4, 250]) == pytest.approx(logits, rel=1e-4, abs=1e-5)
    for others in ([5, 17], [5, 18, 33, 4, 250, 6], [5, 17, 33, 4, 250]):
        assert decoder.unread(others) == others and decoder.tokens == []
        decoder.feed([5, 17, 33, 4, 250])
