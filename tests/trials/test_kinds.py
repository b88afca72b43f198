"""The table of kinds of trials: each module of its folder has a row, and each trial the kind that is its own."""

from dataclasses import replace
from pathlib import Path

import pytest
from samples import a_trial
from shipped import SERVICES

from seamark.model.scenario import Search
from seamark.trials import kinds
from seamark.trials.kinds.table import KINDS, kind_of

PLAIN = a_trial()
SEARCHED = replace(PLAIN, search=Search(setting="rate_rps", from_level=1.0, to_level=9.0))


def test_each_module_of_the_folder_has_a_row():
    modules = {path.stem for path in Path(str(kinds.__file__)).parent.glob("*.py")} - {"__init__", "table"}
    assert modules == set(KINDS)


@pytest.mark.parametrize(
    ("trial", "service", "name"),
    [
        (PLAIN, "null", "seamark.trials.kinds.timed_load"),
        (SEARCHED, "null", "seamark.trials.kinds.search"),
        (replace(PLAIN, parties=(PLAIN,)), "null", "seamark.trials.kinds.parties"),
        (PLAIN, "fitted", "seamark_simulate.trials.virtual_clock"),
    ],
)
def test_a_trial_is_measured_by_the_module_of_its_kind(trial, service, name):
    kind = kind_of(trial, SERVICES[service])
    assert kind.__name__ == name  # type: ignore[attr-defined]
    assert callable(kind.measure_trial)
