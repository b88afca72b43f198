"""The table of objectives, goodput and rates: from samples to cells."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.analysis.summary import summarise, write_metrics
from seamark.model.results.summary import ObjectiveSummary, Spread, Summary, SummaryRow
from seamark.model.scenario import Slo
from seamark.model.trial import Plan
from seamark.report.tables.by_treatment import objectives_table
from seamark.storage.codec import decode
from seamark.storage.documents import write
from seamark.storage.paths import ScenarioFolder

SLOS = (
    Slo(metric="latency_p99_s", op="<=", limit=0.03),
    Slo(metric="latency_s", op="<=", limit=0.015),
    Slo(metric="requests_per_s", op=">=", limit=150.0),
)


def a_summary(folder: ScenarioFolder, slos: tuple[Slo, ...], **settings: object) -> Summary:
    """Two repetitions of 200 requests/s in which one of ten takes 20 ms and the others 10 ms, 40 ms in the second."""
    trials = []
    for repetition, slow_s in ((1, 0.02), (2, 0.04)):
        trial = a_trial({"warmup_s": 0.0, "rate_rps": 200.0, **settings}, repetition=repetition, slos=slos)
        trial = replace(trial, id=f"d-1--w-1--r{repetition}")
        due = np.arange(2000) / 200
        write_samples(
            folder.trial(trial.id).samples,
            samples_of(due, None, due + np.where(np.arange(2000) % 10 == 0, slow_s, 0.01)),
        )
        write(folder.trial(trial.id).load, a_load())
        write_metrics(trial, folder.trial(trial.id))
        trials.append(trial)
    plan = Plan(
        scenario="s",
        source="s.yaml",
        seed=1,
        repetitions=2,
        max_retries=0,
        factors={},
        deployments=(),
        trials=tuple(trials),
    )
    return summarise(plan, folder)


@pytest.fixture
def folder(tmp_path: Path) -> ScenarioFolder:
    return ScenarioFolder(root=tmp_path / "s")


@pytest.mark.covers("E-FR12")
def test_each_objective_has_its_limit_its_value_and_how_many_trials_meet_it(folder: ScenarioFolder) -> None:
    summary = a_summary(folder, SLOS, pattern="constant")
    table = objectives_table(summary.treatments)
    assert table is not None
    heads = [(column.name, column.unit) for column in table.columns]
    assert heads == [
        ("offered", "requests/s"),
        ("achieved", "requests/s"),
        ("goodput", "requests/s"),
        ("goodput", "%"),
        ("latency p99 ≤ 30.0", "ms"),
        ("met", ""),
        ("latency ≤ 15.0", "ms"),
        ("met", ""),
        ("requests/s ≥ 150", ""),
        ("met", ""),
    ]
    [row] = table.rows
    said = [cell.text for cell in row]
    assert said[0] == "200"
    assert float(said[1]) == pytest.approx(200, rel=0.01)
    assert float(said[2]) == pytest.approx(180, rel=0.01)
    assert said[3] == "90"
    assert said[4:6] == ["30.0 (20.0 – 40.0)", "in part, 1 of 2"]
    assert said[7] == "missed, 0 of 2"
    assert said[9] == "met, 2 of 2"
    assert table.caption == "Objectives and rates"


def test_an_objective_that_is_missed_by_more_than_ten_seconds_is_in_seconds() -> None:
    value = Spread(median=92.53, min=60.0, max=99.0)
    slo = ObjectiveSummary(metric="latency_p99_s", op="<=", limit=0.1, value=value, met=0, of=3)
    table = objectives_table([SummaryRow(treatment="a", workload="w", service="known", slos=(slo,))])
    assert table is not None
    assert (table.columns[0].name, table.columns[0].unit) == ("latency p99 ≤ 0.100", "s")
    assert table.rows[0][0].text == "92.5 (60.0 – 99.0)"


def test_a_closed_loop_offers_nothing_and_without_objectives_has_no_table(folder: ScenarioFolder) -> None:
    summary = a_summary(folder, (), pattern="closed")
    assert objectives_table(summary.treatments) is None


def test_an_open_loop_shows_its_rates_without_any_objective(folder: ScenarioFolder) -> None:
    summary = a_summary(folder, (), pattern="constant")
    table = objectives_table(summary.treatments)
    assert table is not None
    assert [column.name for column in table.columns] == ["offered", "achieved"]
    assert table.footnotes == ()


def test_an_objective_that_nothing_is_known_of_is_a_dash_and_not_met(folder: ScenarioFolder) -> None:
    summary = a_summary(folder, (Slo(metric="ttft_p99_s", op="<=", limit=0.1),), pattern="closed")
    table = objectives_table(summary.treatments)
    assert table is not None
    assert [cell.text for cell in table.rows[0]][-2:] == ["–", "–"]


def test_a_summary_of_before_there_were_values_is_shown_with_dashes() -> None:
    slo = {"metric": "latency_p99_s", "op": "<=", "limit": 0.1, "met": 1, "of": 1}
    older = {"treatment": "t", "workload": "w", "service": "s", "slos": [slo], "config": {"pattern": "poisson"}}
    table = objectives_table([decode(older, SummaryRow)])
    assert table is not None
    assert [cell.text for cell in table.rows[0]] == ["–"] * 4
