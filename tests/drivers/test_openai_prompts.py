"""Prompts have the lengths that were asked for, in ids and in words, and differ where they should."""

import sys
from collections import Counter
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from seamark.drivers.openai.prompts import WORDS, Ids, Texts, ids_of, read_tokenizer, texts_of
from seamark.drivers.openai.requests import Lengths
from seamark.errors import SiteError, UserError

IDS = Ids(vocabulary=np.arange(1000, 30001, dtype=np.int32))


def lengths(**settings):
    return Lengths.of({"prompt_len": 200, **settings}, "prompt_len")


def rng(seed=1):
    return np.random.default_rng(seed)


def test_lengths_are_all_alike_unless_a_spread_is_set():
    assert set(lengths().draw(50, rng())) == {200}
    assert set(lengths(prompt_len_shape="lognormal", prompt_len_spread=0).draw(50, rng())) == {200}


@pytest.mark.parametrize("count", [20, 4000])
@pytest.mark.parametrize(
    ("shape", "spread", "deviation", "median"), [("uniform", 0.5, 0.5 / 3**0.5, 1.0), ("lognormal", 0.8, 0.8, 0.78)]
)
def test_a_spread_keeps_the_mean_and_has_the_deviation_it_names(shape, spread, deviation, median, count):
    drawn = lengths(prompt_len_shape=shape, prompt_len_spread=spread).draw(count, rng())
    assert np.mean(drawn) == pytest.approx(200, rel=0.06 if count == 20 else 0.005)
    assert np.median(drawn) == pytest.approx(200 * median, rel=0.15 if count == 20 else 0.01)
    if count > 20:
        assert np.std(drawn) == pytest.approx(200 * deviation, rel=0.05)
    if shape == "uniform":
        assert (drawn.min(), drawn.max()) >= (100, 290)
        assert drawn.max() <= 300


def test_lengths_come_in_random_order_and_again_with_the_same_seed():
    spread = lengths(prompt_len_shape="uniform", prompt_len_spread=1)
    drawn = spread.draw(500, rng())
    assert (drawn == spread.draw(500, rng())).all()
    assert (drawn != spread.draw(500, rng(2))).any()
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.15
    assert drawn.min() >= 1


def test_a_lognormal_shape_ends_where_there_is_no_more_room():
    drawn = lengths(prompt_len_shape="lognormal", prompt_len_spread=1.5).draw(2000, rng(), most=400)
    assert 380 < drawn.max() <= 400
    assert (drawn == 400).mean() < 0.01, "cut off, not heaped up at the end"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"prompt_len_shape": "lognorml"}, "Did you mean 'lognormal'?"),
        ({"prompt_len_spread": 0.5}, "prompt_len_spread: has no effect while prompt_len_shape is fixed"),
        ({"prompt_len_shape": "uniform", "prompt_len_spread": 1.5}, "takes 0 to 1"),
    ],
)
def test_a_wrong_spread_is_said_with_its_remedy(settings, says):
    with pytest.raises(UserError, match=says.replace("?", r"\?")):
        lengths(**settings)


@pytest.mark.parametrize("settings", [{}, {"prompt_len_shape": "uniform", "prompt_len_spread": 0.5}])
def test_lengths_that_do_not_fit_are_an_error(settings):
    lengths(**settings).draw(10, rng(), most=300)
    with pytest.raises(UserError, match=r"do not fit, there is room for 199.*max_model_len"):
        lengths(**settings).draw(10, rng(), most=199)


@pytest.mark.parametrize("prompts", [IDS, Texts()])
@pytest.mark.covers("E-FR14")
def test_prompts_have_their_lengths_and_only_the_shared_tokens_in_common(prompts):
    wanted = [1, 5, 8, 40, 40, 300]
    made = prompts.make(wanted, 8, rng())
    tokens = [each.split() if isinstance(each, str) else each.tolist() for each in made]
    assert [len(each) for each in tokens] == wanted
    assert all(each[:8] == tokens[-1][: min(8, len(each))] for each in tokens)
    assert tokens[3][8:] != tokens[4][8:]
    assert [list(each) for each in prompts.make(wanted, 8, rng())] == [list(each) for each in made]
    assert list(prompts.make(wanted, 8, rng(2))[-1]) != list(made[-1])


@pytest.mark.parametrize("prompts", [IDS, Texts()])
@pytest.mark.covers("D1")
def test_groups_of_prompts_have_a_prefix_each_and_one_group_is_as_without_groups(prompts):
    made = prompts.make([12] * 400, 8, rng(), 5)
    beginnings = Counter(tuple(each.split()[:8] if isinstance(each, str) else each[:8].tolist()) for each in made)
    assert len(beginnings) == 5
    assert min(beginnings.values()) > 50
    one = [list(each) for each in prompts.make([12] * 9, 8, rng(), 1)]
    assert one == [list(each) for each in prompts.make([12] * 9, 8, rng())]


def test_prompts_that_share_nothing_differ_from_their_first_tokens_on():
    made = IDS.make([16] * 500, 0, rng())
    assert len({tuple(each[:2].tolist()) for each in made}) > 495
    assert min(each.min() for each in made) >= 1000
    assert max(each.max() for each in made) <= 30000


def test_words_are_plain_and_no_word_comes_twice():
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


class Tokenizer:
    """As many tokens as words, but for long ones, which are two; `<s>` comes first. Ids 0 to 9 are special."""

    def __init__(self, merges=False):
        self.merges = merges

    def encode(self, text, add_special_tokens=True):
        tokens = sum(1 + (len(word) > 5) for word in text.split())
        tokens -= self.merges and text.count("the of")
        return SimpleNamespace(ids=[0] * (tokens + add_special_tokens))

    def get_vocab(self):
        return {f"Ġ{word}": 10 + at for at, word in enumerate(["small", "somewhat"])}

    def get_vocab_size(self, with_added_tokens):
        return 100

    def get_added_tokens_decoder(self):
        return dict.fromkeys(range(10))


def test_ids_of_a_tokenizer_are_all_but_its_special_ones():
    assert ids_of(Tokenizer()).vocabulary.tolist() == list(range(10, 100))


def test_texts_of_a_tokenizer_are_of_words_that_it_does_not_cut():
    prompts = texts_of(Tokenizer(), whole=False)
    assert "letter" not in prompts.words
    assert {"small", "house"} < set(prompts.words)
    assert [len(text.split()) for text in prompts.make([1, 7], 0, rng())] == [1, 7]


def test_tokens_that_a_tokenizer_adds_are_part_of_a_whole_prompt():
    prompts = texts_of(Tokenizer(), whole=True)
    first, second = prompts.make([7, 7], 4, rng())
    assert len(first.split()) == 6
    assert [a == b for a, b in zip(first.split(), second.split(), strict=True)][:3] == [True] * 3
    with pytest.raises(UserError, match="prompt_len: 1 is too short"):
        prompts.make([1], 0, rng())


def test_a_tokenizer_that_joins_words_is_found_out():
    class Counts(Tokenizer):
        def encode(self, text, add_special_tokens=True):
            found = super().encode(text, add_special_tokens)
            return SimpleNamespace(ids=found.ids[len(text.split()) // 50 :])

    with pytest.raises(UserError, match="it finds 98 tokens in a text made to have 100"):
        texts_of(Counts(), whole=False).make([100], 0, rng())


def test_a_tokenizer_of_other_words_is_of_no_use_for_texts():
    class Letters(Tokenizer):
        def encode(self, text, add_special_tokens=True):
            return SimpleNamespace(ids=list(text))

    with pytest.raises(UserError, match="Set 'prompt_form' to ids"):
        texts_of(Letters(), whole=False)


def test_a_tokenizer_that_cannot_be_read_is_an_error_with_a_remedy(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"there is no .*Name a folder with a tokenizer\.json"):
        read_tokenizer(str(tmp_path / "none"))
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(SiteError, match="'tokenizers' is not in the environment of this service"):
        read_tokenizer(str(tmp_path))
    module = ModuleType("tokenizers")
    module.Tokenizer = SimpleNamespace(from_file={}.__getitem__)
    monkeypatch.setitem(sys.modules, "tokenizers", module)
    with pytest.raises(UserError, match="is not a tokenizer"):
        read_tokenizer(str(tmp_path))
    module.Tokenizer = SimpleNamespace(from_file=lambda path: path)
    assert read_tokenizer(str(tmp_path)) == str(tmp_path / "tokenizer.json")
