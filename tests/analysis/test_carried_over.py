"""Carry-over of a scenario: its order, who ran before whom, and the reason that comparison and summary give."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import exp
from pathlib import Path

import numpy as np
import pytest
from samples import a_load, a_trial, codes, samples_of, write_samples
from shipped import SERVICES

from seamark.analysis.comparison.carry_over import FRESH, MACHINE, carried_over, fewest_blocks
from seamark.analysis.comparison.factors import comparisons_of_summary
from seamark.analysis.comparison.observations import VIRTUAL, Observation
from seamark.analysis.summary import summarise, write_metrics
from seamark.model.results.comparison import Comparisons
from seamark.model.scenario import Comparing, Scenario, Workload
from seamark.model.site import Site
from seamark.planning.plan import plan
from seamark.planning.plan_text import plan_facts
from seamark.report.comparison import comparison_lines, comparison_markdown
from seamark.stats.range import Range
from seamark.storage.codec import decode, encode
from seamark.storage.documents import write
from seamark.storage.paths import ScenarioFolder

HERE = Site(name="here", summary="no batch system")
LEVELS = (1, 2, 4)
ASKED = Comparing(metrics=("throughput",), carry_over=True)


def planned(repetitions=6, compare=ASKED, restarts="once", **workload):
    load = Workload(
        name="known",
        component="llm",
        service="known",
        levels={"duration_s": (2.0,), "warmup_s": (0,), "concurrency": LEVELS},
        **workload,
    )
    path = Path("study.yaml")
    scenario = Scenario(
        name="study", path=path, workloads=(load,), repetitions=repetitions, restarts=restarts, compare=compare
    )
    return plan(scenario, SERVICES, HERE)


def measured(study, after_four=0.0, **changes):
    """The trials of a plan in its order, 3 s each: after concurrency 4 the throughput is larger by a ratio."""
    rng = np.random.default_rng(3)
    starts = study.by_deployment()
    trials = [trial for start in study.deployments for trial in starts[start.id]]
    seen, before = {}, None
    for number, trial in enumerate(trials):
        carried = after_four if before == 4 else 0.0
        before = trial.settings["concurrency"]
        value = 100 * before * exp(rng.normal(0, 0.01) + carried + 0.05 * (trial.block % 3))
        observed = Observation(
            trial=trial.id,
            treatment=trial.treatment,
            block=trial.block,
            start=trial.deployment,
            verdict="VALID",
            unit="tokens_per_s",
            figures={"throughput.value": Range.exact(value)},
            span_s=(3.0 * number, 3.0 * number + 2.9),
        )
        seen.setdefault(trial.treatment, []).append(replace(observed, **changes))
    return seen


def order_of(study):
    return [(trial.block, trial.settings["concurrency"]) for trial in study.trials]


def test_an_order_that_is_balanced_changes_no_name_no_seed_and_no_identity():
    plain, balanced = planned(compare=replace(ASKED, carry_over=False)), planned()
    one, other = ({trial.id: replace(trial, position=0) for trial in made.trials} for made in (plain, balanced))
    assert one == other
    assert plain.trials == planned(compare=None).trials
    assert order_of(plain) != order_of(balanced)
    pairs = Counter(
        (one, other) for (block, one), (next_block, other) in pairwise(order_of(balanced)) if block == next_block
    )
    assert len(pairs) == 6
    assert set(pairs.values()) == {2}


def test_starts_of_fresh_servers_are_balanced_too():
    study = planned(restarts="each", fresh_server=True)
    pairs = Counter((one.name, two.name) for one, two in pairwise(study.deployments) if one.block == two.block)
    assert len(pairs) == 6
    assert set(pairs.values()) == {2}


@pytest.mark.parametrize(("workload", "remedy"), [({}, FRESH), ({"restarts": "each", "fresh_server": True}, MACHINE)])
def test_a_planted_carry_over_is_suspect_and_names_treatments_and_remedy(workload, remedy):
    study = planned(repetitions=12, **workload)
    found = comparisons_of_summary(study, measured(study, after_four=0.2))
    [carried] = found.carry_over
    assert (carried.metric, carried.blocks, carried.blocks_needed, len(carried.pairs)) == ("throughput", 12, 6, 3)
    assert (carried.reason.code, carried.reason.verdict, carried.reason.remedy) == ("carry_over", "SUSPECT", remedy)
    shown = [pair for pair in carried.pairs if pair.p_adjusted <= 0.05]
    assert {(pair.new_levels["concurrency"], pair.base_levels["concurrency"]) for pair in shown} == {(4, 1), (4, 2)}
    assert all(pair.ratio.low < exp(0.2) < pair.ratio.high for pair in shown)
    assert all(pair.new_levels["concurrency"] == 4 and pair.ratio.low > 1 for pair in shown)
    lines = [*comparison_lines(found), *comparison_markdown(found).splitlines()]
    assert len([line for line in lines if "SUSPECT carry_over" in line and "concurrency 4" in line]) == 2
    assert decode(encode(found), Comparisons).carry_over == found.carry_over


def test_nothing_planted_is_no_reason():
    study = planned()
    [carried] = comparisons_of_summary(study, measured(study)).carry_over
    assert (len(carried.pairs), carried.reason) == (3, None)


def test_fewer_blocks_than_twice_the_treatments_tell_nothing_and_the_plan_says_so():
    few, enough = planned(repetitions=5), planned(repetitions=6)
    [carried] = comparisons_of_summary(few, measured(few, after_four=0.5)).carry_over
    assert (carried.blocks, carried.blocks_needed, carried.pairs, carried.reason) == (5, 6, (), None)
    notes = [{note for note in plan_facts(study).notes if "carry-over" in note} for study in (few, enough)]
    assert [len(of_plan) for of_plan in notes] == [1, 0]
    assert fewest_blocks(3) == 6


def test_carry_over_is_asked_for_or_not_told():
    study = planned(compare=replace(ASKED, carry_over=False))
    assert comparisons_of_summary(study, measured(study, after_four=0.5)).carry_over == ()


@pytest.mark.parametrize("changes", [{"span_s": None}, {"figures": {}}, {"verdict": "INVALID"}])
def test_trials_without_times_or_figures_tell_nothing(changes):
    study = planned()
    told = carried_over(study, measured(study, 0.5, **changes), ASKED, {})
    assert all(not carried.pairs and carried.reason is None for carried in told)


def test_nothing_is_carried_over_on_a_virtual_clock():
    study = planned()
    assert carried_over(study, measured(study, 0.5, start=VIRTUAL), ASKED, {}) == ()


def test_a_predecessor_is_what_really_ran_before_on_the_server():
    """The same values, each trial moved to a server that ran nothing before: no predecessor is known."""
    study = planned()
    seen = measured(study, after_four=0.2)
    apart = {name: [replace(trial, start=trial.trial) for trial in trials] for name, trials in seen.items()}
    [carried] = carried_over(study, apart, ASKED, {})
    assert (carried.blocks, carried.pairs) == (0, ())


@pytest.mark.parametrize("carried", [0.3, 0.0])
def test_a_summary_calls_the_treatments_suspect(carried, tmp_path):
    """36 trials of a server as they are on disk, in a balanced order; after concurrency 4 replies take longer."""
    study, folder, rng = planned(repetitions=12), ScenarioFolder(root=tmp_path), np.random.default_rng(3)
    trials, before = [], None
    for number, planned_trial in enumerate(study.trials):
        level, block = planned_trial.settings["concurrency"], planned_trial.block
        name = f"d-1--w-{level}--r{block}"
        trial = a_trial({"concurrency": level}, id=name, workload=f"w-{level}", group="w", block=block)
        own, ends = folder.trial(name), np.arange(1, 1001) * 0.01
        reply_s = 0.001 * level * exp(rng.normal(0, 0.02) + (carried if before == 4 else 0.0))
        write_samples(own.samples, samples_of(ends - reply_s, None, ends))
        began, ended = (f"2026-01-01T00:{number:02}:{second}+00:00" for second in ("00", "10"))
        write(own.load, a_load(started_at=began, finished_at=ended))
        write_metrics(trial, own)
        trials.append(trial)
        before = level
    compare = Comparing(metrics=("latency_ms.p50",), carry_over=True)
    summary = encode(summarise(replace(study, deployments=(), trials=tuple(trials), compare=compare), folder))
    assert ["carry_over" in codes(treatment) for treatment in summary["treatments"]] == [carried > 0] * 3
    if carried:
        assert {treatment["verdict"] for treatment in summary["treatments"]} == {"SUSPECT"}
        assert summary["comparisons"]["carry_over"][0]["reason"]["code"] == "carry_over"
