"""LLM replicas fitted to trials whose costs are known, and their predictions of loads that no trial had."""

from dataclasses import replace

import numpy as np
import pytest
from planted_replicas import COST, LIMITS, OVERHEAD_S, planted_replica_trial, planted_replica_trials

from seamark_simulate.fit.contradiction import replica_contradictions
from seamark_simulate.fit.prediction import predict_replica
from seamark_simulate.fit.replica_fit import fit_replica, step_sums
from seamark_simulate.fit.replica_trial import replayed_figures, serve_closed_loop
from seamark_simulate.model.fitted_model import StepCost
from seamark_simulate.trials.fitting import score


@pytest.fixture(scope="module")
def trials():
    return planted_replica_trials()


def test_times_of_replies_are_sums_of_the_costs_of_steps(trials):
    for trial in trials:
        rows = step_sums(trial)
        costs = [COST.base_s, COST.prompt_token_s, COST.sequence_s, COST.kv_token_s, OVERHEAD_S]
        assert rows[:, :-1] @ costs == pytest.approx(rows[:, -1], rel=1e-9)


@pytest.mark.covers("C14")
def test_the_planted_costs_are_found(trials):
    found = fit_replica(trials, LIMITS, draws=5)
    for name, value in vars(COST).items():
        assert getattr(found.parameters, name) == pytest.approx(value, rel=1e-3), name
    assert found.parameters.overhead_s == pytest.approx(OVERHEAD_S, rel=1e-3)
    assert found.speed == pytest.approx(1.0, abs=1e-3)
    assert found.between == pytest.approx(0.0, abs=1e-3)
    assert (found.ranges["concurrency"].low, found.ranges["concurrency"].high) == (1, 16)
    assert replica_contradictions(found, trials) == ()


def test_chunks_without_text_are_missed_by_no_cost(trials):
    random = np.random.default_rng(3)
    thinned = []
    for trial in trials:
        kept = random.random(len(trial.token_of)) > 0.2
        thinned.append(trial.__class__(**{**fields_of(trial), **columns(trial, kept)}))
    found = fit_replica(thinned, LIMITS, draws=2)
    assert found.parameters.base_s == pytest.approx(COST.base_s, rel=0.05)
    assert found.parameters.sequence_s == pytest.approx(COST.sequence_s, rel=0.1)


def fields_of(trial):
    names = trial.__dataclass_fields__
    return {name: getattr(trial, name) for name in names}


def columns(trial, kept):
    return {"token_of": trial.token_of[kept], "token_at_s": trial.token_at_s[kept]}


def test_a_closed_loop_is_replayed_as_the_literal_one(trials):
    for trial in trials:
        said = replayed_figures(LIMITS.replica(COST), trial, OVERHEAD_S)
        for name, value in trial.figures.items():
            assert said[name] == pytest.approx(value, rel=0.02), name


@pytest.mark.slow
def test_an_open_loop_is_predicted_from_closed_ones(trials):
    fitted = fit_replica(planted_replica_trials(spread=0.03, repeats=3), LIMITS, draws=40)
    assert fitted.between == pytest.approx(0.03, rel=0.6)
    held = planted_replica_trial("open", rate_rps=12, prompt=256, until_s=30)
    said = predict_replica(fitted, held)
    assert set(said.extrapolated) == {"rate_rps"}
    assert not said.overload
    for name, value in held.figures.items():
        assert said.figures[name].low <= value <= said.figures[name].high, name


def test_more_than_a_replica_can_answer_is_overload(trials):
    fitted = fit_replica(trials, LIMITS, draws=3)
    held = planted_replica_trial("open", rate_rps=120, prompt=512, until_s=6)
    assert predict_replica(fitted, held).overload


@pytest.mark.slow
def test_held_out_concurrencies_are_scored(trials):
    _, found = score(
        planted_replica_trials(spread=0.02, repeats=2, until_s=8),
        lambda others: fit_replica(others, LIMITS, draws=20),
        predict_replica,
    )
    rows = {(each.place, each.figure): each for each in found}
    assert rows["inside", "tpot_mean_s"].median_error < 0.05
    assert rows["inside", "ttft_p50_s"].in_spreads is not None


def test_a_server_that_stalls_is_contradicted(trials):
    stalling = [*trials[:-1], halted(trials[-1])]
    fitted = fit_replica(stalling, LIMITS, draws=2)
    said = replica_contradictions(fitted, stalling)
    assert said
    assert all(trials[-1].id in line for line in said)


def halted(trial):
    """Return a trial whose replies every other second take three times as long."""
    harmed = np.floor(trial.sent_s).astype(int) % 2 == 0
    last_s = np.where(harmed, trial.first_s + 3 * (trial.last_s - trial.first_s), trial.last_s)
    return trial.__class__(**{**fields_of(trial), "last_s": last_s})


def test_what_no_replica_explains_is_refused(trials):
    with pytest.raises(ValueError, match="two trials or more"):
        fit_replica(trials[:1], LIMITS)
    single = [planted_replica_trial("one", repeat=number, reply=1, concurrency=2, until_s=3) for number in (1, 2)]
    with pytest.raises(ValueError, match="no reply has two tokens"):
        fit_replica(single, LIMITS)


def test_replies_in_one_piece_are_refused_and_a_loop_without_time_too(trials):
    whole = replace(trials[0], first_s=trials[0].last_s)
    with pytest.raises(ValueError, match="came in one piece"):
        fit_replica([whole, *trials[1:]], LIMITS, draws=2)
    free = LIMITS.replica(StepCost(base_s=0.0, prompt_token_s=0.0, sequence_s=0.0))
    with pytest.raises(ValueError, match="never ends"):
        serve_closed_loop(free, np.array([8]), np.array([4]), concurrency=2, until_s=1.0)


def test_tokens_of_a_first_chunk_are_no_further_ones(trials):
    joined = [first_chunk_of(trial, 4) for trial in trials]
    for trial in joined:
        times_s = (trial.last_s - trial.first_s) / (trial.reply_tokens - 4)
        counted = (trial.due_s >= trial.warmup_s) & (trial.due_s < trial.until_s)
        assert trial.figures["tpot_mean_s"] == pytest.approx(times_s[counted].mean())
    found = fit_replica(joined, LIMITS, draws=2)
    for name, value in vars(COST).items():
        assert getattr(found.parameters, name) == pytest.approx(value, rel=0.03), name
    assert found.parameters.overhead_s == pytest.approx(OVERHEAD_S, rel=0.1)


def first_chunk_of(trial, tokens):
    """Return a trial whose first chunks have so many tokens, read with the last of them."""
    order = np.lexsort((trial.token_at_s, trial.token_of))
    number = np.empty(len(order), int)
    number[order] = np.arange(len(order)) - np.searchsorted(trial.token_of[order], trial.token_of[order])
    first_s = np.zeros(len(trial.first_s))
    last_of_chunk = number == tokens - 1
    first_s[trial.token_of[last_of_chunk]] = trial.token_at_s[last_of_chunk]
    return replace(
        trial,
        first_s=first_s,
        first_tokens=np.full(len(first_s), tokens),
        **columns(trial, number >= tokens - 1),
    )


def test_the_first_clients_of_a_loop_without_warm_up_are_in_its_replayed_figures(trials):
    whole = replace(trials[-1], warmup_s=0.0)
    said = replayed_figures(LIMITS.replica(COST), whole, OVERHEAD_S)
    for name, value in whole.figures.items():
        assert said[name] == pytest.approx(value, rel=0.02), name


def test_equal_seeds_give_equal_fits(trials):
    assert fit_replica(trials, LIMITS, seed=3, draws=3) == fit_replica(trials, LIMITS, seed=3, draws=3)
