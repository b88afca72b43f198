"""Figures derived from a committed results folder stay what they were: values, verdicts and the form of the files.

The version before the package had rooms measured the folder and derived `expected`. To renew `expected` after an
intended change: `bench collect -c golden.yaml` in a copy of `golden`, then copy each metrics.json.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from study_folder import StudyFolder

GOLDEN = Path(__file__).parent / "golden"
WORDING = {"code", "text", "remedy", "advice", "notes", "reason", "rule"}
"""Keys of names and sentences: these may be worded better."""


def differences(expected: Any, derived: Any, path: str = "") -> Iterator[str]:
    """Give what of a document is lacking or has another value; keys that were added are let pass."""
    if isinstance(expected, dict) and isinstance(derived, dict):
        for key in expected.keys() - WORDING:
            if key in derived:
                yield from differences(expected[key], derived[key], f"{path}.{key}")
            else:
                yield f"{path}.{key} is lacking"
    elif isinstance(expected, list) and isinstance(derived, list) and len(expected) == len(derived):
        for number, (one, other) in enumerate(zip(expected, derived, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif type(expected) is float and type(derived) is float:
        if derived != pytest.approx(expected, rel=1e-12, abs=1e-15):
            yield f"{path}: {expected} -> {derived}"
    elif expected != derived or type(expected) is not type(derived):
        yield f"{path}: {expected!r} -> {derived!r}"


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = tmp_path_factory.mktemp("golden") / "study"
    shutil.copytree(GOLDEN, study)
    StudyFolder(root=study).bench("collect", "-c", "golden.yaml", code=0)
    return study / "results" / "golden"


@pytest.mark.slow
@pytest.mark.covers("E-FR10")
@pytest.mark.parametrize("trial", sorted(path.stem for path in GOLDEN.glob("expected/*--r1.json")))
def test_the_metrics_of_a_committed_trial_are_what_they_were(collected: Path, trial: str) -> None:
    expected = json.loads((GOLDEN / "expected" / f"{trial}.json").read_text())
    assert list(differences(expected, json.loads((collected / trial / "metrics.json").read_text()))) == []


@pytest.mark.slow
def test_the_summary_of_committed_trials_is_what_it_was(collected: Path) -> None:
    expected = json.loads((GOLDEN / "expected" / "summary.json").read_text())
    assert list(differences(expected, json.loads((collected / "summary.json").read_text()))) == []


def test_another_value_and_a_lacking_key_are_differences() -> None:
    assert list(differences({"a": [1.0, {"b": 2}]}, {"a": [1.1, {}], "c": 3})) == [
        ".a[0]: 1.0 -> 1.1",
        ".a[1].b is lacking",
    ]
