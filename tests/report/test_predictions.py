"""Predicted beside measured: fit files in a folder of results, and simulated treatments with a measured twin."""

from dataclasses import replace

import pytest
from fitted_models import station
from make_results import make_results
from samples import as_read

from seamark.model.results.comparison import Compared, ComparedSide, Comparisons, Effect
from seamark.model.results.summary import SummaryRow, ThroughputSpread
from seamark.model.results.trial_metrics import VerdictReason
from seamark.report.comparison import comparison_lines, comparison_markdown
from seamark.report.page.sections import verdicts_section
from seamark.report.source import read_results
from seamark.storage.documents import write
from seamark_simulate.model.fitted_model import FitSource, FittedModels, HeldOutFigure
from seamark_simulate.report.page.page_part import PAGE
from seamark_simulate.report.page.predictions import Pair, fits_of, prediction_blocks, simulated_pairs, twins
from seamark_simulate.report.policies import policy_matrices

pytestmark = pytest.mark.slow  # results of a scenario are made


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return read_results(make_results(tmp_path_factory.mktemp("made"), telemetry=False))


def a_fit(results, **changes):
    """Return a fit of two trials of the results, whose two held-out figures are one hit and one miss."""
    sources = [
        FitSource(scenario=results.scenario, trial=each.id, trial_id=each.trial_id, config_hash=each.config_hash)
        for each in results.plan.measured[:2]
    ]
    held = [
        HeldOutFigure(
            scenario=results.scenario,
            trial=source.trial,
            place=place,
            figure="p50_s",
            measured=0.010,
            predicted=predicted,
            low=predicted - 0.001,
            high=predicted + 0.001,
        )
        for source, place, predicted in zip(sources, ("inside", "beyond"), (0.0105, 0.015), strict=True)
    ]
    given = {"sources": tuple(sources), "held_out": tuple(held), **changes}
    return FittedModels(seed=1, stations=(station(**given),))


@pytest.mark.covers("E-FR12")
def test_a_fit_file_among_the_results_is_shown_with_its_held_out_trials(results):
    path = results.folder.root / "known.fit.json"
    write(path, a_fit(results))
    try:
        blocks = prediction_blocks(results)
        section = PAGE.section(blocks)
    finally:
        path.unlink()
    assert section is not None
    [table] = [each for each in blocks if type(each).__name__ == "Table"]
    columns = {each.name: [cell.text for cell in each.cells] for each in table.columns}
    held_out = [trial.id for trial in results.plan.measured[:2]]
    assert columns["trial"] == [results.names[name] for name in held_out]
    assert [cell.title for cell in table.columns[0].cells] == held_out
    assert columns["load"] == ["inside", "beyond"]
    assert columns["error"] == ["+5", "+50"]
    assert columns["in the interval"] == ["yes", "no"]
    assert "1 of 2 figures lie in their intervals." in table.footnotes
    [picture] = [each for each in blocks if type(each).__name__ == "Picture"]
    assert b"held out, among the loads" in picture.svg


def test_a_fit_of_other_trials_says_so_and_a_damaged_one_breaks_nothing(results):
    old = a_fit(results).stations[0].sources
    write(
        results.folder.root / "old.fit.json",
        a_fit(results, sources=(replace(old[0], config_hash="0"), old[1]), held_out=()),
    )
    (results.folder.root / "worse.fit.json").write_text('{"stations": 7}')
    try:
        shown, mistakes = fits_of(results.folder, results.plan)
        texts = [each.text for each in prediction_blocks(results) if type(each).__name__ == "Text"]
    finally:
        for path in results.folder.root.glob("*.fit.json"):
            path.unlink()
    assert [each.changed for each in shown] == [(results.plan.measured[0].id,)]
    assert len(mistakes) == 1
    assert "worse.fit.json" in mistakes[0]
    assert any("1 trial of the fit is not in this plan any more" in text for text in texts)
    assert any("no predictions of held-out trials" in text for text in texts)
    assert PAGE.section(prediction_blocks(results)) is None


@pytest.mark.covers("E-FR12")
def test_a_reason_of_measured_and_simulated_trials_is_a_row_for_each_origin(results):
    reason = VerdictReason(code="unsteady", severity="suspect", text="t", remedy="r")
    trials = [as_read(trial, _metrics=replace(trial.good, reasons=(reason,))) for trial in results.ok]
    virtual = [as_read(trial, _metrics=replace(trial.good, origin="simulated")) for trial in trials]
    mixed = [*virtual[:3], *trials[3:]]

    def table(of):
        own = verdicts_section(as_read(results, trials=tuple(of), treatments=())).blocks[1]
        return {each.name: [cell.text for cell in each.cells] for each in own.columns}

    found = table(mixed)
    assert dict(zip(found["origin"], found["trials"], strict=True)) == {
        "simulated": "3 of 3",
        "measured": f"{len(trials) - 3} of {len(trials) - 3}",
    }
    assert "origin" not in table(trials)


def row(treatment, origin, rate, **config):
    return SummaryRow(
        treatment=treatment,
        workload=treatment,
        service=treatment,
        origin=origin,
        repetitions=1,
        config=config,
        factors={"cluster_gpus": config["cluster_gpus"]},
        throughput=ThroughputSpread(median=rate, unit="requests_per_s"),
        quality={"makespan_s": 100 / rate},
    )


@pytest.mark.covers("C2")
def test_simulated_treatments_stand_beside_the_one_measured_with_equal_settings(results):
    simulated = [row(f"s{n}", "simulated", 2.0 * n, cluster_gpus=n, policy="fifo", seed_of="x") for n in (1, 2, 4)]
    measured = [row(f"m{n}", "measured", 1.9 * n, cluster_gpus=n, policy="fifo", server="y") for n in (1, 2)]
    again = row("m2b", "measured", 3.0, cluster_gpus=2, policy="fifo", server="z")
    other = row("m4", "measured", 3.0, cluster_gpus=4, policy="easy")
    rows = [*simulated, *measured, other]
    assert [(one.treatment, two.treatment) for one, two in twins(rows)] == [("s1", "m1"), ("s2", "m2")]
    assert [(one.treatment, two.treatment) for one, two in twins([*rows, again])] == [("s1", "m1")]
    filled = [replace(row, config=row.config | {"concurrency": 1, "batch": None}) for row in simulated]
    open_loads = [replace(row, config=row.config | {"concurrency": 256, "batch": 1}) for row in measured]
    assert len(twins([*filled, *open_loads])) == 2, "no client has connections in a simulation"
    levels = [replace(row, factors=row.factors | {"concurrency": row.config["concurrency"]}) for row in open_loads]
    assert twins([*filled, *levels]) == [], "as a factor it tells treatments apart"
    pairs = simulated_pairs(as_read(results, treatments=tuple(rows)))
    assert pairs[0] == Pair(what="cluster_gpus 1", place="twin", figure="requests_per_s", measured=1.9, predicted=2.0)
    assert pairs[0].error == pytest.approx(2 / 1.9 - 1)
    assert pairs[0].is_hit is None
    assert {pair.figure for pair in pairs} == {"requests_per_s", "makespan_s"}


def compared(policy, gpus, ratio, origin="simulated", **more):
    side = {"trials": 3, "units": 3, "origin": origin}
    return Compared(
        workload="cluster",
        factor="policy",
        fixed={"cluster_gpus": gpus},
        metric="makespan_s",
        better="lower",
        base=ComparedSide(level="fifo", median=10.0 * gpus, **side),
        new=ComparedSide(level=policy, median=10.0 * gpus * ratio, **side),
        ratio=Effect(value=ratio, low=ratio - 0.1, high=ratio + 0.1),
        verdict="better",
        **more,
    )


@pytest.mark.covers("C14", "E-FR29")
def test_policies_stand_side_by_side_with_the_comparisons_of_the_summary():
    cells = [compared(policy, gpus, ratio) for policy, ratio in (("easy", 0.8), ("heft", 0.7)) for gpus in (1, 2)]
    other = replace(compared("easy", 1, 0.5), factor="cluster_gpus")
    [matrix] = policy_matrices(Comparisons(comparisons=(*cells, other)), "cluster")
    assert (matrix.base, matrix.columns) == ("fifo", ("cluster_gpus 1", "cluster_gpus 2"))
    assert matrix.medians == {"cluster_gpus 1": 10.0, "cluster_gpus 2": 20.0}
    assert matrix.cells["heft"]["cluster_gpus 2"] is cells[3]
    assert policy_matrices(None, "cluster") == []
    assert policy_matrices(Comparisons(comparisons=(other,)), "cluster") == []


@pytest.mark.covers("E-FR29")
def test_comparisons_name_the_origin_only_where_a_trial_is_simulated():
    both = (compared("easy", 1, 0.8), compared("heft", 1, 0.8))
    lines = comparison_lines(Comparisons(comparisons=both))
    assert "Simulated, not measured: all trials." in lines
    assert "simulated" not in lines[0]
    assert "| origin |" in comparison_markdown(Comparisons(comparisons=both))
    mixed = (both[0], compared("heft", 1, 0.8, origin="measured"))
    lines = comparison_lines(Comparisons(comparisons=mixed))
    assert ", simulated, " in lines[0]
    assert ", measured, " in lines[1]
    assert "Simulated, not measured: trials of 1 of 2 comparisons." in lines
    measured = Comparisons(comparisons=(mixed[1],))
    assert "imulated" not in "\n".join(comparison_lines(measured)) + comparison_markdown(measured)
