"""Maskers and attention in the environment `evaluation`: four keys by hand, both kernels against dense attention."""

from collections.abc import Mapping
from math import exp, log
from typing import Any

import pytest
from service_environment import ask, environment

pytestmark = pytest.mark.services

WHOLE: Mapping[str, Mapping[str, Any]] = {
    "sink": {"masker": "sink", "keys": 1000},
    "local": {"masker": "local", "keys": 1000},
    "sink fraction": {"masker": "sink", "fraction": 1},
    "top_k": {"masker": "top_k", "keys": 1000},
    "top_p": {"masker": "top_p", "p": 1},
    "random": {"masker": "random", "fraction": 1},
    "adaptive_sampling": {"masker": "adaptive_sampling", "base_rate": 1, "epsilon": 0.1, "delta": 0.1},
    "hash_top_k": {"masker": "hash_top_k", "fraction": 1, "bits": 8},
    "quest": {"masker": "quest", "fraction": 1, "page": 7},
}
"""Budgets that cover everything."""
PARTS: Mapping[str, Mapping[str, Any]] = {
    "sink": {"masker": "sink", "fraction": 0.1},
    "local": {"masker": "local", "keys": 9},
    "top_k": {"masker": "top_k", "fraction": 0.1},
    "top_p": {"masker": "top_p", "p": 0.5},
    "hash_top_k": {"masker": "hash_top_k", "keys": 12, "bits": 16},
    "quest": {"masker": "quest", "keys": 20, "page": 8},
}
"""Maskers without chance, with budgets for a part."""
SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "random": {"masker": "random", "fraction": 0.2},
    "adaptive_sampling": {"masker": "adaptive_sampling", "base_rate": 0.1, "epsilon": 0.3, "delta": 0.2},
    "lsh": {"masker": "lsh", "bits": 4, "tables": 10},
}
SHAPES = [(1, 1), (1, 90), (5, 90), (90, 90), (300, 700)]
"""Queries and keys: a first token, a decode, a question, a whole prompt, and one of several row blocks."""


@pytest.fixture(scope="module")
def place():
    return environment("evaluation")


def test_four_keys_by_hand_for_every_masker_that_chooses_for_certain(place):
    two = {"queries": [[1.0, 1.0]], "keys": [[3.0, 0.0], [0.0, 3.0], [2.0, 2.0], [2.0, 2.0]]}
    line = {"queries": [[1.0]], "keys": [[log(4)], [log(1)], [log(3)], [log(2)]]}  # shares .4 .1 .3 .2
    cases = {
        "sink": (line, [{"masker": "sink", "keys": 1}], [0]),
        "sink of half": (line, [{"masker": "sink", "fraction": 0.5}], [0, 1]),
        "local": (line, [{"masker": "local", "keys": 1}], [3]),
        "local of three quarters": (line, [{"masker": "local", "fraction": 0.75}], [1, 2, 3]),
        "top_k": (line, [{"masker": "top_k", "keys": 2}], [0, 2]),
        "top_k adds to what is kept": (line, [{"masker": "sink", "keys": 1}, {"masker": "top_k", "keys": 1}], [0, 2]),
        "top_p below the first": (line, [{"masker": "top_p", "p": 0.35}], [0]),
        "top_p above the first": (line, [{"masker": "top_p", "p": 0.45}], [0, 2]),
        "top_p counts what is kept": (line, [{"masker": "local", "keys": 1}, {"masker": "top_p", "p": 0.55}], [0, 3]),
        "top_p has enough": (line, [{"masker": "sink", "keys": 1}, {"masker": "top_p", "p": 0.35}], [0]),
        "quest": (two, [{"masker": "quest", "keys": 2, "page": 2}], [0, 1]),  # bounds 6 and 4; scores 3 3 4 4
        "quest fills a page": (two, [{"masker": "quest", "keys": 1, "page": 2}], [0, 1]),
        "quest beyond what is kept": (
            two,
            [{"masker": "sink", "keys": 2}, {"masker": "quest", "keys": 1, "page": 2}],
            [0, 1, 2, 3],
        ),
        "hash_top_k": (
            {"queries": [[1.0]], "keys": [[2.0], [-1.0], [1.0], [-3.0]]},  # one channel: equal signs or none
            [{"masker": "hash_top_k", "keys": 2, "bits": 5}],
            [0, 2],
        ),
        "hash_top_k takes the later of equals": (
            {"queries": [[1.0]], "keys": [[2.0], [-1.0], [1.0], [-3.0]]},
            [{"masker": "hash_top_k", "keys": 1, "bits": 5}],
            [2],
        ),
    }
    answers = ask(
        place,
        "inside_maskers",
        "kept",
        cases=[{**inputs, "maskers": maskers} for inputs, maskers, _ in cases.values()],
    )
    for (name, (_, _, kept)), answer in zip(cases.items(), answers, strict=True):
        assert answer["kept"] == [kept], name
        assert answer["weights"] == [[1.0] * len(kept)], name
        assert answer["counts"] == [[len(kept), 4]] * 2, name


def test_outputs_of_four_keys_by_hand(place):
    line = {"queries": [[1.0]], "keys": [[log(4)], [log(1)], [log(3)], [log(2)]], "values": [[1.0], [2], [3], [4]]}
    half = [{"masker": "sink", "keys": 1}, {"masker": "random", "keys": 1}]
    outside = {"queries": [[-500.0]], "keys": [[1.0], [0.0], [1.0], [1.0]], "values": [[7.0], [2], [3], [4]]}
    nothing = {"queries": [[1.0, 0.0]], "keys": [[-1.0, 0.0], [-1, 0], [-1, 0], [3, 0]], "values": [[7.0]] * 4}
    cases = [
        {**line, "maskers": [{"masker": "top_k", "keys": 2}]},
        *({**line, "maskers": half, "seed": seed} for seed in range(8)),
        {**outside, "maskers": [{"masker": "sink", "keys": 1}]},
        {**nothing, "maskers": [{"masker": "lsh", "bits": 20, "tables": 2}]},
    ]
    top, *sampled, far, empty = ask(place, "inside_maskers", "kept", cases=cases)
    for output in top["outputs"]:
        assert output == [[pytest.approx((4 * 1 + 3 * 3) / 7)]]
    terms = {1: (1, 2), 2: (3, 3), 3: (2, 4)}
    for answer in sampled:
        [[sink, other]] = answer["kept"]
        assert (sink, answer["weights"]) == (0, [[1.0, pytest.approx(3)]])  # one of three others: a third each
        exponential, value = terms[other]
        for output in answer["outputs"]:
            assert output == [[pytest.approx((4 * 1 + 3 * exponential * value) / (4 + 3 * exponential), rel=1e-5)]]
    assert len({answer["kept"][0][1] for answer in sampled}) > 1
    for output in far["outputs"]:  # the key that is left out has a score of 0, the kept one of -500
        assert output == [[7.0]]
    assert empty["kept"] == [[3]] or empty["outputs"] == [[[0.0]], [[0.0]]]


def test_four_keys_that_are_sampled_carry_inverse_probabilities(place):
    """A key's mean weight over many draws is 1, whatever its probability: what a wrong probability would change."""
    keys = [[1.0, 0.1], [0.2, 1.0], [-0.5, 1.0], [-1.0, -0.2]]
    for maskers in (
        [{"masker": "random", "keys": 1}],
        [{"masker": "random", "keys": 3}, {"masker": "random", "keys": 2}],
        [{"masker": "sink", "keys": 1}, {"masker": "random", "keys": 1}],
        [{"masker": "lsh", "bits": 2, "tables": 6}],
        [{"masker": "lsh", "bits": 1, "tables": 3}, {"masker": "random", "keys": 1}],
    ):
        answer = ask(place, "inside_maskers", "sampled", maskers=maskers, keys=keys, draws=2000)
        for weight in answer["mean_weights"]:
            assert weight == pytest.approx(1, abs=0.15), maskers
    twice = ask(
        place, "inside_maskers", "sampled", maskers=[{"masker": "random", "keys": 3}] * 2, keys=keys, draws=300
    )
    assert set(twice["counts"]) == {"3", "4"}, "a key of both samples counts once"


def test_the_size_of_an_adaptive_sample_by_hand(place):
    """Terms 1, 1, 1/2, 1/2 and a first sample of two: a pair of equals has no spread and needs no more keys.

    Another has the mean 3/4, the deviation 0.3536, and (1.645 * 0.3536 * 4 / (0.48 * 3))^2 = 2.6, so 3 keys; two of
    three pairs are such. One-sided, with 1.282 in place of 1.645, it would be 1.6 and so 2.
    """
    keys = [[0.0, 0.0], [0.0, 0.0], [-log(2), 0.0], [-log(2), 0.0]]
    masker = {"masker": "adaptive_sampling", "base_rate": 0.5, "epsilon": 0.48, "delta": 0.1}
    answer = ask(place, "inside_maskers", "sampled", maskers=[masker], keys=keys, draws=1500)
    assert answer["counts"]["3"] / 1500 == pytest.approx(2 / 3, abs=0.06)
    assert answer["counts"]["2"] + answer["counts"]["3"] == 1500
    assert answer["mean_weights"] == [pytest.approx(1, abs=0.06)] * 4
    exact = {**masker, "epsilon": 0.001}
    answer = ask(place, "inside_maskers", "sampled", maskers=[exact], keys=keys[1:3], draws=20)
    assert (answer["counts"], answer["mean_weights"]) == ({"2": 20}, [1.0, 1.0])


def test_budgets_that_cover_everything_are_dense_attention(place):
    methods = [[], *([each] for each in WHOLE.values())]
    answers = ask(place, "inside_maskers", "compared", methods=methods, shapes=SHAPES)
    assert len(answers) == (1 + len(WHOLE)) * len(SHAPES)
    for answer in answers:
        assert answer["from_dense"] < 1e-5, answer
        assert answer["kept"] == [answer["allowed"]] * 2, answer
        assert max(answer["errors"]) < 1e-5, answer


def test_a_key_that_choosing_and_attention_both_read_counts_once(place):
    whole, part = {"masker": "top_k", "fraction": 1}, SAMPLES["adaptive_sampling"]
    methods = [[WHOLE["adaptive_sampling"]], [whole, part], [part, WHOLE["adaptive_sampling"]], [part]]
    for answer in ask(place, "inside_maskers", "compared", methods=methods, shapes=SHAPES):
        if answer["kept"][1] == answer["allowed"]:
            assert answer["bytes"] == [answer["all_bytes"]] * 2, answer
        else:
            assert answer["maskers"] == ["adaptive_sampling"]
            assert answer["bytes"][1] <= answer["all_bytes"]


def test_gathered_equals_masked_for_every_masker_alone_and_for_all_together(place):
    methods = [[each] for each in (*PARTS.values(), *SAMPLES.values())]
    methods += [list(PARTS.values()), [PARTS["sink"], PARTS["local"]], [PARTS["local"], *SAMPLES.values()]]
    answers = ask(place, "inside_maskers", "compared", methods=methods, shapes=SHAPES)
    for answer in answers:
        assert answer["apart"] < 1e-5, answer
        assert answer["finite"], answer
        assert answer["kept"][0] == answer["kept"][1] <= answer["allowed"]
        assert answer["errors"][0] == pytest.approx(answer["errors"][1], abs=1e-5)
        assert answer["bytes"][0] == answer["all_bytes"]
    decode = {tuple(answer["maskers"]): answer for answer in answers if answer["shape"] == [1, 90]}
    assert all(answer["errors"][0] > 0.01 for answer in decode.values())
    local = decode[("local",)]
    assert (local["kept"], local["allowed"]) == ([8 * 9, 8 * 9], 8 * 90)
    assert local["bytes"] == [local["all_bytes"], local["all_bytes"] * 9 // 90]
    both = decode[("sink", "local")]
    assert both["kept"] == [8 * 18, 8 * 18]
    assert both["bytes"][1] == both["all_bytes"] * 18 // 90


def test_a_query_of_a_longer_step_keeps_what_it_would_keep_alone(place):
    methods = [*([each] for each in PARTS.values()), [PARTS["sink"], PARTS["local"], PARTS["quest"], PARTS["top_k"]]]
    apart = ask(place, "inside_maskers", "row_by_row", methods=methods, queries=30, keys=70)
    assert apart == [pytest.approx(0, abs=1e-5)] * len(methods)


def test_sixteen_bit_inputs_have_sixteen_bit_outputs_close_to_those_of_thirty_two(place):
    methods = [[PARTS["sink"], PARTS["local"]], [PARTS["top_k"]]]
    for kind, apart in ask(place, "inside_maskers", "in_bfloat16", methods=methods):
        assert kind == "torch.bfloat16"
        assert apart < 0.05


def test_trained_projections_come_from_a_file_and_a_wrong_one_is_a_clear_line(place, tmp_path):
    answers = ask(place, "inside_maskers", "trained", folder=str(tmp_path))
    assert answers["right"] == [1]
    assert answers["two steps"] == [1]
    assert "these weights of hash_top_k cannot be read" in answers["missing"]
    assert "have no layers.0.query.0.weight" in answers["other layer"]
    assert "has the shape [2, 2, 1]; this model needs [1, 2, ...]" in answers["other model"]
    assert "ends in 2 bits, and the method says 1" in answers["other bits"]


def test_a_sample_of_a_softmax_is_close_to_it(place):
    """The estimate of a sampled output, averaged over seeds, is near the whole: weights enter above and below."""
    keys = [[0.1 * (index % 7), 1.0 * (index % 3)] for index in range(40)]
    values = [[float(index % 5)] for index in range(40)]
    inputs = {"queries": [[1.0, 0.3]], "keys": keys, "values": values}
    terms = [exp(x + 0.3 * y) for x, y in keys]
    whole = sum(term * value for term, [value] in zip(terms, values, strict=True)) / sum(terms)
    maskers = [{"masker": "sink", "keys": 2}, {"masker": "random", "keys": 20}]
    mean = ask(place, "inside_maskers", "mean_output", case={**inputs, "maskers": maskers}, seeds=200)
    assert mean == pytest.approx(whole, abs=0.06)
