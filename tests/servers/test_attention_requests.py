"""Requests of the attention server before a model sees them: tokens, truncation, chat templates, the command line."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pytest
from shipped import SERVICES

from seamark_evaluate.server.arguments import read_arguments
from seamark_evaluate.server.errors import RequestError
from seamark_evaluate.server.prompt import read_prompt, truncated, with_template
from seamark_evaluate.server.request import Completion, read_completion

ROOT = Path(__file__).resolve().parents[2]
RECIPE = SERVICES["attention"]
TEMPLATE = "<s>user: {{ messages[0]['content'] }} end\nanswer:"


@dataclass(frozen=True)
class Words:
    """A tokenizer with a token for each word and the space before it, whose id is the word's length.

    It has the methods of transformers' tokenizers that a request needs.
    """

    chat_template: str | None = TEMPLATE
    bos_token_id: int = 0

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [0] * add_special_tokens + self(text)["input_ids"]

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        spans = [found.span() for found in re.finditer(r" ?\S+", text)]
        return {"input_ids": [len(text[a:b].strip()) for a, b in spans], "offset_mapping": spans}

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return jinja2.Template(self.chat_template or "").render(messages=messages)


def prompt(completion: dict[str, Any], *, max_model_len: int = 100) -> Any:
    """Return the tokens of a request."""
    read = read_completion(completion, served_model="m")
    return read_prompt(Words(), read, vocabulary=50, max_model_len=max_model_len)


@pytest.mark.parametrize(
    ("limit", "how", "kept"),
    [
        (10, "middle", list(range(10))),
        (9, "middle", [0, 1, 2, 3, 6, 7, 8, 9]),
        (4, "middle", [0, 1, 8, 9]),
        (5, "middle", [0, 1, 8, 9]),  # half of an odd limit: one token fewer, as LongBench has it
        (2, "middle", [0, 9]),
        (1, "middle", [0]),
        (0, "middle", []),
        (4, "end", [0, 1, 2, 3]),
        (0, "end", []),
        (10, "error", list(range(10))),
    ],
)
def test_a_long_context_loses_its_middle_or_its_end(limit, how, kept):
    assert truncated(range(10), limit, how) == kept


def test_a_context_that_may_not_be_shortened_is_refused_with_both_lengths():
    with pytest.raises(RequestError, match=r"10 tokens, of which 9 fit") as refused:
        truncated(range(10), 9, "error")
    assert (refused.value.status, refused.value.code) == (400, "context_too_long")


def test_context_and_question_are_tokenized_as_one_text_and_a_token_across_their_border_is_the_questions():
    assert prompt({"context": "a bb ", "question": "ccc d"}).context == (0, 1, 2)
    split = prompt({"context": "a bb cc", "question": "c d", "answer_prefix": " e"})
    assert (split.context, split.question) == ((0, 1, 2), (3, 1, 1))
    whole = prompt({"prompt": "a bb ccc d e"})
    assert (whole.context, whole.question) == ((), split.context + split.question)


def test_a_context_is_shortened_to_what_question_and_answer_leave():
    body = {"context": "a " * 90, "question": "b b b", "max_tokens": 20, "truncate": "end"}
    shortened = prompt(body, max_model_len=60)
    assert (len(shortened.context), len(shortened.question), shortened.cut) == (37, 3, 54)
    assert len(prompt(body | {"max_context_tokens": 10}).context) == 10
    with pytest.raises(RequestError, match="3 tokens and an answer of 20 exceed the model's 22"):
        prompt(body, max_model_len=22)


def test_a_chat_template_is_around_context_and_question():
    assert with_template(Words(), "the context ", "a question") == (
        "<s>user: the context ",
        "a question end\nanswer:",
    )
    assert prompt({"context": "a ", "question": "b", "chat_template": True}).context == (8, 1)


def test_a_message_that_a_template_strips_is_found_by_what_is_left():
    stripping = Words(TEMPLATE.replace("['content']", "['content'] | trim"))
    assert with_template(stripping, " \n c ", "q \n") == ("<s>user: c ", "q end\nanswer:")
    for context, question in (("", "\tq "), ("\t", "\tq")):
        assert with_template(stripping, context, question) == ("<s>user: ", "q end\nanswer:")
    assert "".join(with_template(stripping, "", " q ")) == "<s>user: q end\nanswer:"


@pytest.mark.parametrize("message", ["user", "s", "end", ":", "e"])
def test_a_message_whose_text_is_in_the_template_too_is_found_where_it_is(message):
    assert with_template(Words(), "", message) == ("<s>user: ", f"{message} end\nanswer:")


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (None, "tokenizer has none"),
        (TEMPLATE.replace("['content']", "['content'] | upper"), "changes the text"),
    ],
)
def test_a_template_that_cannot_be_split_is_refused(template, says):
    with pytest.raises(RequestError, match=says):
        with_template(Words(template), "c ", "q")


def test_a_message_without_text_is_refused():
    with pytest.raises(RequestError, match="it has no text"):
        with_template(Words(), " ", "")


def test_the_default_of_every_field_is_dense_attention_over_a_whole_reply():
    read = read_completion({"prompt": "a", "max_context_tokens": None, "stop": None, "n": 1}, served_model="m")
    assert read == Completion(method=read.method, question="a")
    assert read.method.is_dense
    sparse = {"name": "s", "maskers": [{"masker": "sink", "keys": 1}]}
    read = read_completion({"prompt": "a", "attention": sparse, "sparse_from": "prompt"}, served_model="m")
    assert read.is_sparse_context


def test_the_recipe_starts_the_server_with_its_own_options_and_none_is_an_empty_text():
    assert RECIPE.server is not None
    values = {setting.name: setting.default for setting in RECIPE.settings} | {"model": "folder"}
    written = {name: "" if value is None else str(value) for name, value in values.items()}
    names = {"env": "env", "package": "package", "host": "127.0.0.1", "ports": {"http": 7}, "settings": written}
    command = [word.format(**names) for word in RECIPE.server.command]
    read = read_arguments(command[3:])
    assert (read.model, read.served_model, read.port, read.host) == ("folder", "folder", 7, "127.0.0.1")
    assert (read.max_model_len, read.threads, read.prefill_chunk) == (None, None, 512)
    named = set(re.findall(r"settings\[(\w+)\]", " ".join(RECIPE.server.command)))
    assert named == {setting.name for setting in RECIPE.settings if setting.role == "deployment"}


@pytest.mark.parametrize(
    "option", ["--threads=0", "--prefill-chunk=x", "--dtype=int8", "--validate=all", "--thread=1"]
)
def test_a_wrong_option_ends_the_start_with_status_2(option, capsys):
    with pytest.raises(SystemExit) as ended:
        read_arguments(["--model=m", "--port=1", option])
    assert ended.value.code == 2
    assert option.split("=")[0] in capsys.readouterr().err


def test_options_of_from_pretrained_are_json_objects_and_none_sets_what_the_server_sets():
    plain = ["--model", "m", "--port", "0"]
    assert read_arguments([*plain, "--tokenizer-options", ""]).tokenizer_options == {}
    options = read_arguments([*plain, "--tokenizer-options", '{"padding_side": "left"}'])
    assert options.tokenizer_options == {"padding_side": "left"}
    for wrong in ('{"dtype": "float16"}', "[1]", "{"):
        with pytest.raises(SystemExit):
            read_arguments([*plain, "--model-options", wrong])
