"""Carry-over of a scenario: its order, who ran before whom, and the reason that comparison and summary give."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import exp
from pathlib import Path

import numpy as np
import pytest
from shipped import SERVICES

from seamark.analysis.comparison.carry_over import FRESH, MACHINE, carried_over, fewest_blocks
from seamark.analysis.comparison.factors import comparisons_of_summary
from seamark.analysis.comparison.observations import VIRTUAL, Observation
from seamark.model.results.comparison import Comparisons
from seamark.model.scenario import Comparing, Scenario, Workload
from seamark.model.site import Site
from seamark.planning.plan import plan
from seamark.planning.plan_text import plan_facts
from seamark.report.comparison import comparison_lines, comparison_markdown
from seamark.stats.range import Range
from seamark.storage.codec import decode, encode

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
