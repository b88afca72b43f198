"""Metrics and checks of a user's own: by dotted path, refused where they cannot be used, no part of identity."""

import sys
from pathlib import Path

import pytest
from samples import a_checked_trial, a_metrics, changed

from seamark.analysis.checks import judge
from seamark.analysis.metrics.metric import own_metrics
from seamark.analysis.metrics.objectives import value_of
from seamark.errors import UserError
from seamark.model.dotted import mark_of
from seamark.planning.study import Study
from seamark.stats.range import Range
from seamark.storage.codec import encode

MODULE = """
from seamark.analysis.metrics.metric import Metric

def metric(path, value=lambda inputs: 1.5):
    return Metric(path=path, unit="ratio", better="lower", meaning="how uneven it is", value=value)

uneven = metric("uneven")
dotted = metric("latency_ms.uneven")
taken = metric("requests_per_s")
nan = metric("nan", lambda inputs: float("nan"))
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("users_metrics", "users_checks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "users_metrics.py").write_text(MODULE)
    return tmp_path


def planned(study: Path, more: str = "", slos: str = "") -> Study:
    (study / "try.yaml").write_text(f'scenario: try\nrepetitions: 1\n{more}workload: {{service: "null"{slos}}}\n')
    return Study.at(study, scenario="try.yaml")


def test_a_metric_of_ones_own_changes_no_identity(study: Path) -> None:
    [before], [after] = planned(study).plan.trials, planned(study, "metrics: [users_metrics:uneven]\n").plan.trials
    assert after.metrics == ("users_metrics:uneven",)
    for name in ("id", "trial_id", "config_hash", "seed"):
        assert getattr(before, name) == getattr(after, name)
    assert "metrics" not in encode(planned(study).plan)["trials"][0], "a plan without them is as it was"


def test_objectives_may_name_it_and_any_column_of_the_metrics(study: Path) -> None:
    slos = ", slos: [uneven <= 2, resource_cpu_util <= 0.9]"
    [trial] = planned(study, "metrics: [users_metrics:uneven]\n", slos).plan.trials
    own = own_metrics(trial.metrics, object())  # type: ignore[arg-type]
    metrics = a_metrics(own=own, resource={"cpu_util": 0.25})
    values = [value_of(slo.metric, metrics) for slo in trial.slos]
    assert values == [Range.exact(1.5), Range.exact(0.25)]


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ("users_metrics:unevn", "'users_metrics' has no 'unevn'. Did you mean 'uneven'?"),
        ("no_metrics:uneven", "there is no module 'no_metrics'"),
        ("uneven", "'uneven' is not of the form 'module:name'"),
        ("users_metrics:metric", "'metric' in 'users_metrics' is no Metric. It has uneven, dotted"),
        ("users_metrics:dotted", "its path 'latency_ms.uneven' is no name"),
        ("users_metrics:taken", "there is a metric 'requests_per_s' already"),
        ("users_metrics:uneven, users_metrics:uneven", "there is a metric 'uneven' already"),
    ],
)
def test_one_that_cannot_be_used_is_refused_with_its_line(study: Path, metrics: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        planned(study, f"metrics: [{metrics}]\n")
    [line] = caught.value.lines
    assert line.startswith("try.yaml:3: metrics[")
    assert says in line


def test_an_unknown_objective_is_still_refused(study: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'uneven'"):
        planned(study, "metrics: [users_metrics:uneven]\n", ", slos: [unevn <= 2]")


def test_without_a_value_the_document_says_why(study: Path) -> None:
    found = own_metrics(["users_metrics:nan", "gone_metrics:uneven"], object())  # type: ignore[arg-type]
    assert [each.value for each in found.values()] == [None, None]
    assert "nan, which is no finite number" in str(found["nan"].error)
    assert "there is no module 'gone_metrics'" in str(found["uneven"].error)
    assert own_metrics(["users_metrics:uneven"], None)["uneven"].value is None, "a failed trial has none"


def test_its_mark_changes_with_its_file(study: Path) -> None:
    before = mark_of("users_metrics:uneven")
    (study / "users_metrics.py").write_text(MODULE + "# changed\n")
    assert mark_of("users_metrics:uneven") != before
    assert before.startswith("users_metrics:uneven ")


CHECKS = """
from dataclasses import replace
from seamark.model.results.trial_metrics import VerdictReason

LIMIT = 2.0

def uneven(view):
    if view.metrics.own["uneven"].value > LIMIT:
        return VerdictReason(code="uneven", severity="invalid", text="too uneven", remedy="Measure longer.")

def graver(view):
    return replace(uneven(view), severity="terrible")

def word(view):
    return "too uneven"
"""


def test_a_check_of_ones_own_decides_on_the_verdict_with_those_of_the_package(study: Path) -> None:
    (study / "users_checks.py").write_text(CHECKS)
    [trial] = planned(study, "checks: [users_checks:uneven]\n").plan.trials
    view = changed(a_checked_trial(), {"metrics.own": {"uneven": {"value": 1.5}}})
    assert judge(view, trial.checks) == ("VALID", ())
    verdict, [reason] = judge(changed(view, {"metrics.own": {"uneven": {"value": 2.5}}}), trial.checks)
    assert (verdict, reason.code) == ("INVALID", "uneven")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("word", "it returned 'too uneven', which is no VerdictReason of severity invalid, suspect, note"),
        ("graver", "severity='terrible'"),
        ("gone", "has no 'gone'"),
    ],
)
def test_a_check_that_cannot_judge_makes_a_trial_suspect(study: Path, name: str, says: str) -> None:
    (study / "users_checks.py").write_text(CHECKS)
    view = changed(a_checked_trial(), {"metrics.own": {"uneven": {"value": 2.5}}})
    verdict, [reason] = judge(view, [f"users_checks:{name}"])
    assert (verdict, reason.code) == ("SUSPECT", "own_check_failed")
    assert says in reason.text


def test_a_check_that_is_no_function_is_refused_with_its_line(study: Path) -> None:
    (study / "users_checks.py").write_text(CHECKS)
    with pytest.raises(UserError, match=r"try.yaml:3: checks\[0\].*'LIMIT' in 'users_checks' is no function"):
        planned(study, "checks: [users_checks:LIMIT]\n")
