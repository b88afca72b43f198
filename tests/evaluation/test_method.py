"""Documents of methods: presets, what is refused, budgets, and the positions that fixed methods keep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamark.errors import UserError
from seamark.planning.study import SHIPPED
from seamark_evaluate.attention.known_answers import expected_density, expected_right
from seamark_evaluate.attention.masker_settings import MASKERS, Budget
from seamark_evaluate.attention.method import SPARSE_FROM, Method, read_method

PRESETS = SHIPPED / "config" / "methods"
SINK = {"masker": "sink", "keys": 4}
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "sink": {"keys": 4},
    "local": {"fraction": 0.5},
    "top_k": {"keys": 4},
    "top_p": {"p": 0.9},
    "random": {"fraction": 0.1},
    "adaptive_sampling": {"base_rate": 0.01, "epsilon": 0.1, "delta": 0.1},
    "lsh": {"bits": 8, "tables": 75},
    "hash_top_k": {"keys": 4, "bits": 32},
    "quest": {"keys": 64, "page": 16},
}


def method(*maskers: Mapping[str, Any]) -> Method:
    return read_method({"name": "here", "maskers": list(maskers)}, "here")


@pytest.mark.covers("B13")
def test_the_presets_are_those_that_the_requirements_name_and_each_has_its_source() -> None:
    presets = {path.stem: read_method(yaml.safe_load(path.read_text()), path.name) for path in PRESETS.glob("*.yaml")}
    required = {"dense", "streaming", "hash_attention", "sink_local"}
    assert presets.keys() == required | {"oracle_top_k", "magicpig", "adaptive"}
    for name, preset in presets.items():
        assert preset.name == name
        assert preset.summary
        assert preset.source.startswith("https://arxiv.org/abs/")
    assert [name for name, preset in presets.items() if preset.is_dense] == ["dense"]
    assert {name for name, preset in presets.items() if preset.is_fixed} == {"dense", "streaming", "sink_local"}
    assert {name for name, preset in presets.items() if preset.is_sampled} == {"adaptive"}


def test_a_canonical_document_reads_as_the_same_method_with_every_parameter_written() -> None:
    assert EXAMPLES.keys() == MASKERS.keys()
    read = method(*({"masker": name, **parameters} for name, parameters in EXAMPLES.items()))
    assert read_method(read.document, "again") == read
    hashed = read.document["maskers"][list(EXAMPLES).index("hash_top_k")]
    assert hashed == {"masker": "hash_top_k", "keys": 4, "bits": 32, "weights": None, "seed": 0}


def test_summary_and_source_do_not_change_what_is_measured() -> None:
    bare = read_method({"name": "a", "maskers": [SINK]}, "here")
    described = read_method({"name": "a", "summary": "Sinks.", "source": "a paper", "maskers": [SINK]}, "here")
    assert bare.document == described.document


def test_results_say_whether_projections_were_trained() -> None:
    hashed = {"masker": "hash_top_k", "keys": 4, "bits": 32}
    assert "not trained" in method(hashed).notes[0]
    assert "weights.safetensors" in method({**hashed, "weights": "weights.safetensors"}).notes[0]


@pytest.mark.covers("B14")
@pytest.mark.parametrize(
    ("document", "line"),
    [
        ("streaming", "here: expected a method with 'name' and 'maskers', but it is 'streaming'."),
        ({"maskers": []}, "here: the key 'name' is missing."),
        ({"name": "a"}, "here: the key 'maskers' is missing."),
        ({"name": 3, "maskers": []}, "here: name: 3 is no text."),
        ({"name": "a/b", "maskers": []}, "here: name: 'a/b' cannot name a method"),
        ({"name": "a", "maskers": None}, "here: maskers: expected a list of maskers, but it is None. Write []"),
        ({"name": "a", "maskers": [SINK], "kernal": 1}, "here: kernal: unknown key. Allowed: name, summary"),
        ({"name": "a", "maskers": [SINK] * 17}, "here: maskers: 17 maskers are more than 16."),
        ([{"masker": "snik", "keys": 4}], "maskers[0].masker: no masker is called 'snik'. Did you mean 'sink'?"),
        ([SINK, {"keys": 4}], "maskers[1]: the key 'masker' is missing. Known maskers: sink, local"),
        (["sink"], "maskers[0]: expected a masker such as {masker: sink, keys: 4}, not 'sink'."),
        ([{"masker": "sink"}], "maskers[0]: neither 'keys' nor 'fraction' is given. sink needs one of them."),
        ([{**SINK, "fraction": 0.5}], "maskers[0]: both 'keys' and 'fraction' are given."),
        ([{**SINK, "key": 4}], "maskers[0].key: unknown key. Did you mean 'keys'?"),
        ([{"masker": "sink", "keys": 0}], "maskers[0].keys: 0 is not allowed: a whole number from 1."),
        ([{"masker": "sink", "keys": 4.0}], "maskers[0].keys: 4.0 is not allowed: a whole number from 1."),
        ([{"masker": "sink", "keys": True}], "maskers[0].keys: True is not allowed"),
        ([{"masker": "sink", "fraction": 5}], "maskers[0].fraction: 5 is not allowed: a number above 0 to 1."),
        ([{"masker": "top_p", "p": float("nan")}], "maskers[0].p: nan is not allowed: a number above 0 to 1."),
        ([{"masker": "top_p"}], "maskers[0]: the key 'p' is missing: a number above 0 to 1."),
        ([{"masker": "lsh", "bits": 8, "tables": 1}], "maskers[0].tables: 1 is not allowed: a whole number from 2"),
        (
            [{"masker": "adaptive_sampling", "base_rate": 0.1, "epsilon": 1, "delta": 0.1}],
            "maskers[0].epsilon: 1 is not allowed: a number above 0 and below 1.",
        ),
        ([{"masker": "hash_top_k", "keys": 1, "bits": 8, "weights": ""}], "maskers[0].weights: '' is no file."),
    ],
)
def test_a_wrong_document_is_one_line_that_names_the_place(document: Any, line: str) -> None:
    if isinstance(document, list):
        document = {"name": "a", "maskers": document}
    with pytest.raises(UserError) as error:
        read_method(document, "here")
    assert len(error.value.lines) == 1
    assert error.value.lines[0].startswith("here: ")
    assert line in error.value.lines[0]


def test_every_mistake_of_a_document_is_reported_at_once() -> None:
    with pytest.raises(UserError) as error:
        read_method({"name": "", "maskers": [{"masker": "sink"}, {"masker": "top_p", "p": 2}]}, "here")
    assert len(error.value.lines) == 3


@pytest.mark.parametrize(
    ("budget", "allowed", "count"),
    [
        (Budget(keys=4), 10, 4),
        (Budget(keys=4), 3, 3),
        (Budget(fraction=0.5), 5, 2),
        (Budget(fraction=0.01), 5, 1),
        (Budget(fraction=0.29), 100, 29),  # 0.29 * 100 is 28.999999999999996
        (Budget(fraction=1.0), 7, 7),
    ],
)
def test_a_budget_is_a_number_of_keys_or_a_part_of_those_that_causality_allows(
    budget: Budget, allowed: int, count: int
) -> None:
    assert budget.count(allowed) == count


def test_a_fixed_method_keeps_the_first_and_last_positions_and_nothing_ahead() -> None:
    both = method({"masker": "sink", "keys": 2}, {"masker": "local", "keys": 3})
    assert [key for key in range(20) if both.keeps(key, 9)] == [0, 1, 7, 8, 9]
    assert [key for key in range(20) if both.keeps(key, 3)] == [0, 1, 2, 3]
    assert [key for key in range(20) if method().keeps(key, 3)] == [0, 1, 2, 3]
    assert [key for key in range(20) if method({"masker": "sink", "keys": 2}).keeps(key, 9)] == [0, 1]
    assert expected_density(10, both) == 0.5
    assert expected_density(4, both) == 1
    assert expected_density(10, method()) == 1


STREAMING = ({"masker": "sink", "keys": 4}, {"masker": "local", "keys": 8})


@pytest.mark.parametrize(
    ("place", "maskers", "right"),
    [
        # a context of 100 words and the question at position 100; the value stands at place + 1
        (50, (), {"question": True, "generation": True, "prompt": True}),
        (50, STREAMING, {"question": False, "generation": True, "prompt": False}),
        (2, STREAMING, {"question": True, "generation": True, "prompt": True}),  # the value is sink 3
        (3, STREAMING, {"question": False, "generation": True, "prompt": False}),  # the value is not, its key is
        (92, STREAMING, {"question": True, "generation": True, "prompt": True}),  # 93..100 are the window
        (91, STREAMING, {"question": False, "generation": True, "prompt": False}),
        (2, (SINK, {"masker": "local", "keys": 1}), {"question": True, "generation": True, "prompt": True}),
        # the row of the value keeps positions 0..26, its key is 50; the row of the question keeps 0..51
        (50, ({"masker": "sink", "fraction": 0.52},), {"question": True, "generation": True, "prompt": False}),
    ],
)
def test_the_positions_of_key_and_value_decide_an_answer_of_the_known_reader(
    place: int, maskers: tuple[Mapping[str, Any], ...], right: Mapping[str, bool]
) -> None:
    facts = {"needle_position": place, "length_words": 100}
    assert {start: expected_right(facts, method(*maskers), start) for start in SPARSE_FROM} == right


def test_a_method_that_looks_at_keys_has_no_outcome_from_positions() -> None:
    with pytest.raises(ValueError, match="depends on queries and keys"):
        expected_right({"needle_position": 1, "length_words": 9}, method({"masker": "top_k", "keys": 1}), "question")


def test_reading_a_method_needs_no_torch() -> None:
    import subprocess
    import sys

    script = "import seamark_evaluate.attention.known_answers, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert Path(PRESETS, "dense.yaml").is_file()
