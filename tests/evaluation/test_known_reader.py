"""The known reader under methods: what it answers is what positions alone say. Random models: kernels agree."""

from collections import Counter

import pytest
from service_environment import ask, environment

pytestmark = pytest.mark.services

SINK, LOCAL = {"masker": "sink", "keys": 4}, {"masker": "local", "keys": 64}
FIXED = {
    "dense": [],
    "streaming": [SINK, LOCAL],
    "sink_local": [{"masker": "sink", "fraction": 0.025}, {"masker": "local", "fraction": 0.025}],
    "sink": [SINK],
    "own": [{"masker": "local", "keys": 1}],
    "two": [{"masker": "local", "keys": 2}],
    "half": [{"masker": "local", "fraction": 0.5}],
    "window": [{"masker": "local", "keys": 5000}],
}


@pytest.fixture(scope="module")
def place():
    return environment("evaluation")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("models"))


@pytest.mark.covers("B13")
@pytest.mark.parametrize(
    ("length", "starts"),
    [
        pytest.param(200, ["question", "generation", "prompt"], marks=pytest.mark.sweep),
        (1000, ["question", "prompt"]),
        (4000, ["question"]),
    ],
)
def test_every_answer_of_the_known_reader_is_the_one_that_positions_decide(place, folder, length, starts):
    answers = ask(place, "inside_models", "outcomes", folder=folder, length=length, methods=FIXED, starts=starts)
    assert len(answers) == len(FIXED) * len(starts) * 9
    assert [each for each in answers if each[3] != each[4]] == []
    right = Counter((name, start) for name, start, _, _, is_right in answers if is_right)
    for start in starts:
        assert right["dense", start] == right["window", start] == 9
    if "generation" in starts:
        assert right["streaming", "generation"] == 9
    assert right["streaming", "question"] == 2 + 3, "two needles in the sinks, three in the window"
    assert right["own", "question"] == 0
    assert right["two", "question"] == 1


def test_an_oracle_finds_every_needle_and_a_blind_choice_does_not(place, folder):
    methods = {
        "oracle": [{"masker": "top_k", "keys": 1}],
        "share": [{"masker": "top_p", "p": 0.9}],
        "pages": [{"masker": "quest", "keys": 16, "page": 16}],
        "chance": [{"masker": "random", "keys": 4}],
    }
    right, needles = ask(place, "inside_models", "chosen", folder=folder, length=1000, methods=methods)
    assert right["oracle"] == right["share"] == right["pages"] == needles
    assert right["chance"] < needles


def test_sparseness_from_the_first_answer_token_leaves_that_token_right_and_loses_the_next(place, folder):
    said = ask(place, "inside_models", "several_tokens", folder=folder, maskers=[SINK, LOCAL])
    assert said["dense"] == said["context"], "the reader goes on with what follows in the context"
    assert said["sparse"][0] == said["value"] == said["context"][0]
    assert said["sparse"][1] != said["context"][1]


def test_logits_of_a_random_model_with_grouped_heads_agree_by_kernel_and_with_transformers(place, folder):
    cover = [
        [],
        [{"masker": "local", "keys": 512}],
        [{"masker": "top_k", "fraction": 1}],
        [{"masker": "top_p", "p": 1}],
    ]
    parts = [
        [SINK, {"masker": "local", "keys": 16}],
        [SINK, {"masker": "top_k", "fraction": 0.1}],
        [SINK, {"masker": "hash_top_k", "keys": 8, "bits": 32}],
        [SINK, {"masker": "quest", "keys": 16, "page": 8}],
        [{"masker": "top_p", "p": 0.7}],
    ]
    answers = ask(place, "inside_models", "random_model", folder=folder, methods=[*cover, *parts])
    for number, answer in enumerate(answers):
        assert answer["spread"] > 0.5, "logits that hardly differ show nothing"
        assert answer["apart"] < 1e-4, number
        assert answer["tokens"], number
        assert answer["in_parts"] < 1e-4, number
        assert (answer["from_plain"] < 1e-5 * max(1, answer["spread"])) == (number < len(cover)), (number, answer)


def test_models_are_the_same_byte_for_byte_for_a_seed_alone(place, tmp_path):
    reader, again, first, same, other = ask(place, "inside_models", "written", folder=str(tmp_path), seeds=[1, 1, 2])
    assert reader == again
    assert first == same != other
