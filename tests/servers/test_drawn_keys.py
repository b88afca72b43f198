"""Keys that a method draws for a model whose answers are known: anew for each prompt, the same for the same one."""

from collections import Counter
from pathlib import Path

import pytest
from attention_server import attention_server, text_of
from prompts_of_servers import inside

from seamark_evaluate.config.benchmark_files import task_of
from seamark_evaluate.tasks.question_files import questions

pytestmark = pytest.mark.services

ROOT = Path(__file__).resolve().parents[2]
DRAWN = {"name": "drawn", "maskers": [{"masker": "local", "keys": 1}, {"masker": "random", "fraction": 0.6}]}


@pytest.fixture(scope="module")
def needles(tmp_path_factory):
    """A hundred questions on contexts of one length, of which twenty each have their needle at one place."""
    subset = task_of("needles", [ROOT / "config/benchmarks"])
    cache = tmp_path_factory.mktemp("questions")
    return questions(subset, seed=1, limit=100, length_words=64, cache=cache)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder = inside("write_reader", folder=str(tmp_path_factory.mktemp("reader")))
    with attention_server(folder, served_model="m", threads=1) as running:
        yield running


@pytest.mark.parametrize("sparse_from", ["question", pytest.param("prompt", marks=pytest.mark.sweep)])
def test_each_prompt_has_keys_of_its_own_and_the_same_prompt_the_same(reader, needles, sparse_from):
    def right(seed):
        fields = {"attention": DRAWN, "sparse_from": sparse_from, "max_tokens": 1, "seed": seed}
        answers = [text_of(reader.ask(context=q.context, question=q.question, **fields)) for q in needles]
        return [answer.strip() in q.references for answer, q in zip(answers, needles, strict=True)]

    first, again, other = right(1), right(1), right(2)
    assert first == again != other
    places = [question.facts["needle_position"] for question in needles]
    found = Counter(place for place, is_right in zip(places, first, strict=True) if is_right)
    assert set(Counter(places).values()) == {20}
    assert all(0 < found[place] < 20 for place in places), found
