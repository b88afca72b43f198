"""The table of patterns, and patterns of a user's own: found, planned and refused by their dotted path."""

import sys
from pathlib import Path

import pytest

from seamark.config.json_schema import level_schema
from seamark.errors import UserError
from seamark.model.load_profile import COMMON_SETTINGS
from seamark.patterns.table import LOAD_SETTINGS, PATTERN, PATTERNS, has_rate, kind_of, own_settings, pattern_of
from seamark.planning.study import Study

ROOT = Path(__file__).resolve().parents[2]
SPIKES = """
from seamark.model.service import Setting
from seamark.patterns.patterns import Constant
from seamark.patterns.table import PatternKind

SPIKE = Setting(name="spike_rps", type="float", role="workload", minimum=1.0, default=50.0, help="Rate of a spike.")

def make(settings, over_s):
    if settings["spike_rps"] < settings["rate_rps"]:
        raise ValueError(f"spike_rps {settings['spike_rps']:g} is less than rate_rps")
    return Constant(rate_rps=settings["spike_rps"])

spikes = PatternKind(make=make, needs=("rate_rps",), settings=(SPIKE,), rate="changing")
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "users_patterns", raising=False)
    (tmp_path / "users_patterns.py").write_text(SPIKES)
    return tmp_path


def planned(study: Path, workload: str) -> Study:
    (study / "try.yaml").write_text(f'scenario: try\nrepetitions: 1\nworkload:\n  service: "null"\n{workload}')
    return Study.at(study, scenario="try.yaml")


def test_the_settings_of_patterns_and_of_every_load_are_different_ones() -> None:
    names = [setting.name for setting in LOAD_SETTINGS]
    assert len(names) == len(set(names)) > len(COMMON_SETTINGS)
    for kind in PATTERNS.values():
        assert {*kind.needs, *kind.reads, *(each.name for each in kind.settings)} <= set(names)


def test_a_pattern_of_a_users_own_is_planned_with_settings_of_its_own(study: Path) -> None:
    plan = planned(
        study,
        "  pattern: [poisson, users_patterns:spikes]\n  rate_rps: 10\n  spike_rps: [20, 30]\n",
    ).plan
    found = [(trial.settings["pattern"], trial.settings["spike_rps"]) for trial in plan.trials]
    assert sorted(found, key=str) == [
        ("poisson", 50.0),
        ("users_patterns:spikes", 20.0),
        ("users_patterns:spikes", 30.0),
    ], "poisson does not read spike_rps: it stays at its default there"
    spikes = next(trial for trial in plan.trials if trial.settings["spike_rps"] == 20.0)
    pattern = pattern_of(spikes.load)
    assert pattern is not None
    assert pattern.expected(2.0) == 40.0


def test_without_it_no_trial_has_its_settings(study: Path) -> None:
    plan = planned(study, "  pattern: poisson\n  rate_rps: 10\n").plan
    assert "spike_rps" not in plan.trials[0].settings


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        ("  pattern: users_patterns:spikse\n", "'users_patterns' has no 'spikse'. Did you mean 'spikes'?"),
        ("  pattern: user_patterns:spikes\n", "there is no module 'user_patterns'. Correct the name, or put"),
        ("  pattern: users_patterns:make\n", "'make' in 'users_patterns' is no PatternKind. It has spikes."),
        ("  pattern: users_patterns:spikes\n", "the pattern 'users_patterns:spikes' needs 'rate_rps'. Add a line"),
        ("  pattern: users_patterns:spikes\n  rate_rps: 60\n", "cannot be made: spike_rps 50 is less than rate_rps."),
        ("  pattern: users_patterns:spikes\n  rate_rps: 6\n  spike_rps: 0\n", "0 is too small: at least 1."),
        ("  pattern: poison\n", "poison is none of closed, constant"),
    ],
)
def test_what_is_wrong_with_one_is_told_with_its_line(study: Path, workload: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        _ = planned(study, workload).plan
    assert any(says in line and line.startswith("try.yaml:") for line in caught.value.lines), caught.value


def test_an_editor_accepts_the_form_of_a_dotted_path() -> None:
    own, other = level_schema(PATTERN)["anyOf"]
    assert own["enum"] == list(PATTERNS)
    assert other["pattern"].startswith("^")


def test_a_pattern_whose_module_is_gone_counts_as_one_of_changing_rate() -> None:
    assert has_rate("gone_patterns:spikes", "changing")
    assert not has_rate("gone_patterns:spikes", "steady")
    assert (has_rate("poisson", "steady"), has_rate("closed", "steady"), has_rate("ramp", "changing")) == (
        True,
        False,
        True,
    )


def test_names_of_the_table_are_imported_from_nowhere() -> None:
    assert own_settings(PATTERNS) == ()
    with pytest.raises(ValueError, match="is not one of closed, constant"):
        kind_of("sawtooth")
