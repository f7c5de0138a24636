"""The prompt of a chat: the model's own template, rendered as transformers does (utils/chat_template_utils.py)."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from model_files import Failure, beside, read_json


class Chat:
    """Renders messages by chat_template.jinja, or by "chat_template" in tokenizer_config.json."""

    def __init__(self, file: Path) -> None:
        """`file` is a model, or its tokenizer.json, with the templates beside it."""
        config = beside(file, "tokenizer_config.json")
        settings = read_json(config) if config.exists() else {}
        # A token is a text, or an object with its text and how it is matched.
        self.special_tokens = {name: token["content"] if isinstance(token, dict) else token for name, token in settings.items()
                               if name.endswith("_token") and (isinstance(token, str) or isinstance(token, dict) and "content" in token)}
        self._path = beside(file, "chat_template.jinja")
        template: Any = self._path.read_text(encoding="utf-8") if self._path.exists() else settings.get("chat_template")
        if not self._path.exists():
            self._path = config
        if isinstance(template, list):
            template = {each["name"]: each["template"] for each in template}.get("default")
        if not isinstance(template, str):
            raise Failure(f'there is no chat template: neither {beside(file, "chat_template.jinja")} nor "chat_template" in {config} '
                          "exists. Copy one from the model's page, or leave out --chat")
        self._template = self._compile(template)

    def prompt(self, messages: list[dict[str, str]]) -> str:
        """The text before the answer to the last message. A message has a "role" (system, user, assistant) and its "content"."""
        import jinja2
        try:
            return self._template.render(messages=messages, tools=None, documents=None, add_generation_prompt=True, **self.special_tokens)
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise Failure(f"the chat template in {self._path} refuses the messages: {error}") from None

    def _compile(self, template: str) -> Any:
        try:
            import jinja2
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise Failure("the package jinja2 is missing, which --chat needs: pip install 'jinja2>=3.1.6'") from None

        def raise_exception(text: str) -> None:
            raise jinja2.TemplateError(text)

        def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
            return json.dumps(value, ensure_ascii=ensure_ascii, **options)  # the filter of Jinja escapes HTML

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, generation_block()])
        environment.filters["tojson"] = tojson
        environment.globals.update(raise_exception=raise_exception,
                                   strftime_now=lambda form: datetime.datetime.now().strftime(form))
        try:
            return environment.from_string(template)
        except jinja2.TemplateError as error:
            raise Failure(f"the chat template in {self._path} is not valid: {error}") from None


def generation_block() -> Any:
    """{% generation %}...{% endgeneration %} marks an answer for training, and renders its content."""
    from jinja2 import ext, nodes

    class GenerationBlock(ext.Extension):
        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    return GenerationBlock
