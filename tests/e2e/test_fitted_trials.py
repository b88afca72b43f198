"""Services from fitted models as trials: theory, the engine, recorded arrivals, extrapolation and resumption."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from study_folder import StudyFolder

from seamark.load.coordinator.coordinator import LoadJob
from seamark.load.engine.schedule_share import own_schedule
from seamark.load.workers.assignment import WorkerAssignment
from seamark_simulate.simulation.llm.fleet import Fleet, serve_requests
from seamark_simulate.simulation.llm.replica import LlmReplica, LlmRequests, StepCost

pytestmark = pytest.mark.e2e

MODELS = "config/models/example.yaml"
COST = StepCost(base_s=0.006, prompt_token_s=4e-5, sequence_s=2e-5, kv_token_s=2e-8)


def a_scenario(study: StudyFolder, repetitions: int = 1, **workload: object) -> None:
    document = {
        "scenario": "try",
        "repetitions": repetitions,
        "workload": {"service": "fitted", "model_file": MODELS, **workload},
    }
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


def columns(trial: Path) -> dict[str, Any]:
    table = pq.read_table(trial / "samples.parquet").sort_by("index")
    return {name: table[name].to_numpy() for name in ("due_ns", "sent_ns", "first_ns", "last_ns", "units")}


def metrics_of(study: StudyFolder, trial: Path) -> dict[str, Any]:
    found: dict[str, Any] = study.json(f"{trial.name}/metrics.json")
    return found


@pytest.mark.sweep
@pytest.mark.covers("C14", "E-FR10")
def test_response_times_of_several_servers_are_those_of_theory_and_nothing_is_simulated_twice(
    study: StudyFolder,
) -> None:
    a_scenario(study, 4, model="mm1", replicas=3, rate_rps=420, duration_s=100, warmup_s=5)
    study.measure(code=0)
    means_s = [metrics_of(study, trial)["latency_ms"]["mean"] / 1e3 for trial in study.trials()]
    load, servers = 2.1, 3  # Erlang C: waiting probability, then the mean wait
    terms = [load**k / np.prod(range(1, k + 1)) for k in range(servers)]
    last = load**servers / 6 * servers / (servers - load)
    expected_s = 0.0052 + last / (sum(terms) + last) * 0.005 / (servers - load)
    spread_s = np.std(means_s, ddof=1) / 2
    assert abs(np.mean(means_s) - expected_s) < 5.84 * spread_s  # Student's t of 3 degrees, 99 %
    assert abs(np.mean(means_s) / expected_s - 1) < 0.03
    kept = {trial.name: (trial / "samples.parquet").read_bytes() for trial in study.trials()}
    assert study.measure().returncode == 0
    assert set(study.measurements().values()) == {1}
    (study.trials()[0] / "samples.parquet").unlink()
    assert study.measure().returncode == 0
    assert {trial.name: (trial / "samples.parquet").read_bytes() for trial in study.trials()} == kept
    assert sorted(study.measurements().values()) == [1, 1, 1, 2]


@pytest.mark.sweep
@pytest.mark.covers("C14")
def test_a_replica_trial_has_the_times_of_the_engine_and_the_arrivals_of_a_measured_trial(study: StudyFolder) -> None:
    asked = {"prompt_tokens": 512, "reply_tokens": 64, "duration_s": 8, "warmup_s": 2}
    a_scenario(study, model="llm", replicas=[1, 2], rate_rps=20, **asked)
    assert study.measure().returncode == 0
    one, two = map(columns, study.trials())
    assert (one["due_ns"] == two["due_ns"]).all()
    measured = LoadJob(
        driver="a:B",
        workers="wire",
        settings={"pattern": "poisson", "rate_rps": 20, "duration_s": 8, "warmup_s": 2},
        seed=study.json(f"{study.trials()[0].name}/trial.json")["trials"][0]["seed"],
        data=study.root,
    )
    share = WorkerAssignment(job=measured, worker=0, workers=1, segment=study.root / "segment")
    assert (one["due_ns"] == np.concatenate(list(own_schedule(share)()))).all(), "those of the same seed"
    requests = LlmRequests(
        arrival_s=one["due_ns"] / 1e9,
        prompt_tokens=np.full(len(one["due_ns"]), 512),
        reply_tokens=np.full(len(one["due_ns"]), 64),
    )
    for replicas, found in ((1, one), (2, two)):
        fleet = Fleet(replica=LlmReplica(cost=COST, kv_blocks=2000), replicas=replicas)
        replies = serve_requests(fleet, requests, np.random.default_rng(0))
        assert (found["first_ns"] == np.rint(replies.first_token_s * 1e9)).all()
        assert (found["last_ns"] == np.rint(replies.completed_s * 1e9)).all()
        assert (found["units"] == 64).all()
        assert (found["sent_ns"] == found["due_ns"]).all()
    metrics = metrics_of(study, study.trials()[0])
    assert (metrics["origin"], metrics["window"]["start_s"], metrics["window"]["end_s"]) == ("simulated", 2, 10)
    assert metrics["counts"]["requests"] == int((one["due_ns"] >= 2e9).sum())
    assert metrics["tpot_ms"]["mean"] > 6

    recorded = study.root / "measured.parquet"
    recorded.write_bytes((study.trials()[0] / "samples.parquet").read_bytes())
    a_scenario(study, model="llm", pattern="recorded", requests_file="measured.parquet", prompt_tokens=512)
    study.bench("submit", "-c", "config/scenarios/try.yaml", "--measure-anew", code=0)
    [trial] = [each for each in study.trials() if "recorded" in each.name]
    assert all((columns(trial)[name] == one[name]).all() for name in one)


@pytest.mark.sweep
@pytest.mark.covers("C14", "E-VAL")
def test_a_load_outside_of_the_fit_is_refused_or_suspect_with_its_input(study: StudyFolder) -> None:
    document = {
        "schema_version": 1,
        "seed": 1,
        "stations": [
            {
                "name": "s",
                "service": "known",
                "servers": 1,
                "family": "exponential",
                "between": 0.05,
                "parameters": {"mean_s": 0.005, "variation": 1.0, "overhead_s": 0.0},
                "loads": [0.2, 0.6],
                "rates_rps": [40, 120],
                "requests": 900,
                "out_of_order": 0,
                "sources": [
                    {
                        "scenario": "a",
                        "trial": "t",
                        "trial_id": "i",
                        "config_hash": "h",
                        "suspect": ["busy_elsewhere"],
                    }
                ],
            }
        ],
    }
    (study.root / "s.fit.json").write_text(json.dumps(document))
    a_scenario(study, model_file="s.fit.json", rate_rps=160, duration_s=5)
    refused = study.measure(code=2)
    assert "outside of the trials of the fit: utilisation 0.8 (0.2 to 0.6)" in refused.stderr
    assert not study.results.exists()
    a_scenario(study, model_file="s.fit.json", rate_rps=160, duration_s=5, extrapolate=True, draw=True)
    assert study.measure().returncode == 0
    metrics = metrics_of(study, study.trials()[0])
    assert metrics["verdict"] == "SUSPECT"
    assert "utilisation 0.8" in next(each["text"] for each in metrics["reasons"] if each["code"] == "extrapolated")
    assert [each["text"] for each in metrics["reasons"] if each["code"] == "suspect_sources"] == [
        "the model was fitted to SUSPECT trials: busy_elsewhere 1"
    ]
    document["stations"][0]["contradictions"] = ["service times are not exponential"]  # type: ignore[index]
    (study.root / "s.fit.json").write_text(json.dumps(document))
    unfit = study.measure(code=2)
    assert "s is unfit for plans: its own trials contradict it: service times are not exponential" in unfit.stderr
