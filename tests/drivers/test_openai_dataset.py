"""Prompts of a data set are sent: cut and joined to the lengths of the settings, or whole, in seeded order."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamark.datasets.prepare import prepared
from seamark.drivers.openai.dataset import DatasetPrompts
from seamark.drivers.openai.driver import OpenAi
from seamark.errors import UserError
from seamark.load.driver import Target

ROWS = [f"row {number} " + "word " * (number % 7) for number in range(40)]


class Words:
    """A tokenizer whose tokens are words, with one more at the beginning of a whole text."""

    def encode(self, text: str, add_special_tokens: bool = True) -> Any:
        words = text.split()
        ids = ([0] if add_special_tokens else []) + [1 + len(word) for word in words]
        self.known = {**getattr(self, "known", {}), **{1 + len(word): word for word in words}}
        return type("Encoding", (), {"ids": ids})()

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.known[name] for name in ids)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sets")
    (root / "rows.jsonl").write_text("\n".join(json.dumps({"prompt": row}) for row in ROWS))
    return prepared(str(root / "rows.jsonl"), root / "made")[0]


def sent(folder: Path, count: int, seed: int = 1, **settings: Any) -> list[dict[str, Any]]:
    """Return the documents of as many requests."""
    given = {"prompt_len": 16, "gen_tokens": 4, "endpoint": "completions", "dataset": str(folder), **settings}
    driver = OpenAi(Target(settings=given, data=folder, ports={"http": 1}))
    bodies = driver.bodies(count, seed)
    return [json.loads(bytes(driver.encode(body)).partition(b"\r\n\r\n")[2]) for body in bodies]


@pytest.mark.covers("E-FR02", "E-FR19")
def test_texts_have_the_length_of_the_settings_and_are_those_of_the_rows(folder):
    prompts = [document["prompt"] for document in sent(folder, 20)]
    assert all(52 <= len(prompt) <= 64 for prompt in prompts)  # 16 tokens of 4 characters, the last of a row shorter
    assert all(prompt.startswith("row ") for prompt in prompts)
    assert len({*prompts}) == 20
    long = sent(folder, 1, prompt_len=100)[0]["prompt"]
    parts = long.split("\n\n")
    assert all(part in ROWS for part in parts[:-1])
    assert ROWS[ROWS.index(parts[0])] != parts[1]


def test_the_order_is_that_of_the_seed(folder):
    assert sent(folder, 8) == sent(folder, 8)
    assert sent(folder, 8) != sent(folder, 8, seed=2)


def test_whole_prompts_are_the_rows_each_once_before_any_again(folder):
    prompts = [document["prompt"] for document in sent(folder, 80, prompt_len_shape="dataset")]
    assert sorted(prompts[:40]) == sorted(prompts[40:]) == sorted(ROWS)
    batches = [document["prompt"] for document in sent(folder, 20, prompt_len_shape="dataset", batch=2)]
    assert sorted(prompt for batch in batches for prompt in batch) == sorted(ROWS)


def test_prompts_of_a_group_begin_alike(folder):
    prompts = [document["prompt"] for document in sent(folder, 30, prefix_len=8, prefix_groups=2)]
    assert len({prompt[:26] for prompt in prompts}) == 2
    assert len({*prompts}) > 20


def test_a_conversation_keeps_its_roles_in_a_chat_and_is_one_text_for_completions(tmp_path):
    turns = [("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c")]
    row = {"messages": [{"role": role, "content": text} for role, text in turns]}
    (tmp_path / "chat.jsonl").write_text(json.dumps(row))
    made, _ = prepared(str(tmp_path / "chat.jsonl"), tmp_path / "made")
    [chat] = sent(made, 1, endpoint="chat", prompt_len_shape="dataset")
    assert chat["messages"] == row["messages"]
    [text] = sent(made, 1, prompt_len_shape="dataset")
    assert text["prompt"] == "s\n\na\n\nb\n\nc"


def test_a_tokenizer_counts_and_cuts_and_gives_ids(folder):
    rng = np.random.default_rng(1)
    texts = DatasetPrompts.read(str(folder), Words(), ids=False, whole=True)
    made = texts.make([5, 9], 0, rng)
    assert [texts.units(prompt) for prompt in made] == [5, 9]
    assert [len(str(prompt).split()) for prompt in made] == [4, 8]
    ids = DatasetPrompts.read(str(folder), Words(), ids=True, whole=True)
    assert [prompt.dtype.name for prompt in ids.make([5, 9], 0, rng)] == ["int32", "int32"]  # type: ignore[union-attr]
    assert [ids.units(prompt) for prompt in ids.make([5, 9], 2, rng)] == [5, 9]
    assert texts.prefix(made[1], 3) == " ".join(str(made[1]).split()[:2])


@pytest.mark.parametrize(
    "settings",
    [
        {"prompt_len_shape": "dataset", "max_model_len": 5},  # none fits
        {"prompt_len_shape": "dataset", "prefix_len": 4},
        {"prompt_len_shape": "dataset", "dataset": None},
        {"prompt_form": "ids"},  # and no tokenizer
        {"turns": 2},
    ],
)
def test_what_a_data_set_cannot_be_sent_with_is_refused(settings, folder):
    with pytest.raises(UserError):
        sent(folder, 4, **settings)


def test_rows_that_do_not_fit_the_model_are_left_out(folder):
    prompts = [document["prompt"] for document in sent(folder, 40, prompt_len_shape="dataset", max_model_len=9)]
    fitting = {row for row in ROWS if -(-len(row) // 4) <= 5}
    assert {*prompts} == fitting
    assert 0 < len(fitting) < len(ROWS)
