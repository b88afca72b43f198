"""Loads of simulated services: every pattern of arrivals, a trace of tokens, and a kill in the middle of a trial."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from processes import until
from study_folder import StudyFolder
from test_runs import parts_of_a_load

from seamark_simulate.simulation.llm.fleet import Fleet, serve_requests
from seamark_simulate.simulation.llm.replica import LlmReplica, LlmRequests, StepCost

pytestmark = pytest.mark.e2e

WINDOW_S = 40
PATTERNS = {
    "gamma": {"rate_rps": 100, "burstiness": 0.25},
    "ramp": {"rate_rps": 20, "ramp_to_rps": 140},
    "steps": {"step_rates": "20:10,140:30"},
    "bursts": {"rate_rps": 20, "burst_rps": 150, "burst_s": 2, "burst_every_s": 8},
    "diurnal": {"rate_rps": 90, "amplitude": 0.9, "period_s": 40},
}
"""Of a station that can serve 200 requests a second. No pattern has the same rate all the time, or Poisson gaps."""


def write(study: StudyFolder, *workloads: dict[str, object], repetitions: int = 1) -> None:
    document = {"scenario": "try", "repetitions": repetitions, "workloads": list(workloads)}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


def station(**settings: object) -> dict[str, object]:
    return {"service": "fitted", "model_file": "config/models/example.yaml", "model": "mm1", "warmup_s": 0} | settings


def due_s(trial: Path) -> np.ndarray:
    found: np.ndarray = np.sort(pq.read_table(trial / "samples.parquet")["due_ns"].to_numpy()) / 1e9
    return found


def expected(pattern: str, from_s: int, to_s: int) -> float:
    """Return the expected number of requests between two times, by sums of a rate that is written out here."""
    at_s = np.arange(from_s, to_s, 0.001)
    rate = {
        "gamma": np.full_like(at_s, 100),
        "ramp": 20 + 120 * at_s / WINDOW_S,
        "steps": np.where(at_s < 10, 20, 140),
        "bursts": np.where((at_s % 8 >= 3) & (at_s % 8 < 5), 150, 20),
        "diurnal": 90 * (1 + 0.9 * np.sin(2 * np.pi * at_s / 40)),
    }[pattern]
    return float(rate.sum() / 1000)


@pytest.mark.sweep
@pytest.mark.covers("C14")
def test_simulated_loads_have_the_rates_and_gaps_of_their_patterns(study: StudyFolder) -> None:
    simulated = [
        station(name=f"as{name}", pattern=name, duration_s=WINDOW_S, **own) for name, own in PATTERNS.items()
    ]
    write(study, *simulated)
    study.measure(code=0)
    found = {study.json(f"{trial.name}/metrics.json")["config"]["pattern"]: due_s(trial) for trial in study.trials()}
    assert found.keys() == PATTERNS.keys()
    for name in PATTERNS:
        at_s = found[name]
        for from_s in range(0, WINDOW_S, 2):
            count, mean = int(((at_s >= from_s) & (at_s < from_s + 2)).sum()), expected(name, from_s, from_s + 2)
            deviation = (mean * (4 if name == "gamma" else 1)) ** 0.5  # the shape of gamma gaps divides the variance
            assert abs(count - mean) < 5 * deviation + 4, f"{name}: {count} of {mean:.0f} from {from_s} s on"
    gaps_s = np.diff(found["gamma"])
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(2.0, rel=0.1), "1/sqrt(burstiness)"


@pytest.mark.sweep
@pytest.mark.covers("C14")
def test_a_trace_of_tokens_gives_each_request_its_own_lengths(study: StudyFolder) -> None:
    random = np.random.default_rng(3)
    rows = [
        {"timestamp": int(at), "input_length": int(prompt), "output_length": int(reply)}
        for at, prompt, reply in zip(
            np.sort(random.integers(0, 20_000, 200)),
            random.integers(50, 900, 200),
            random.integers(1, 120, 200),
            strict=True,
        )
    ]
    (study.root / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write(
        study,
        station(model="llm", pattern="recorded", requests_file="trace.jsonl"),
        station(name="shorter", model="llm", pattern="recorded", requests_file="trace.jsonl", reply_tokens=8),
    )
    study.measure(code=0)
    replies = [row["output_length"] for row in rows]
    for trial in study.trials():
        units = replies if "reply_tokens" not in trial.name else [8] * len(rows)
        served = serve_requests(
            Fleet(
                replica=LlmReplica(
                    cost=StepCost(base_s=0.006, prompt_token_s=4e-5, sequence_s=2e-5, kv_token_s=2e-8),
                    kv_blocks=2000,
                )
            ),
            LlmRequests(
                arrival_s=np.array([row["timestamp"] for row in rows]) / 1000,
                prompt_tokens=np.array([row["input_length"] for row in rows]),
                reply_tokens=np.array(units),
            ),
            np.random.default_rng(0),
        )
        table = pq.read_table(trial / "samples.parquet").sort_by("index")
        assert table["units"].to_pylist() == units
        assert (table["due_ns"].to_numpy() == np.array([row["timestamp"] for row in rows]) * 1_000_000).all()
        assert (table["last_ns"].to_numpy() == np.rint(served.completed_s * 1e9)).all()


@pytest.mark.sweep
@pytest.mark.covers("C14")
def test_the_window_of_arrivals_that_run_out_ends_with_the_last_one(study: StudyFolder) -> None:
    rows = [{"at_s": number / 100} for number in range(1_000)]
    (study.root / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = station(pattern="recorded", requests_file="asked.jsonl")
    write(
        study,
        {**asked, "name": "short", "duration_s": 9},
        {**asked, "name": "long", "duration_s": 99},
        station(name="steps", pattern="steps", step_rates="100:10,0:90", duration_s=100),
    )
    study.submit(code=0)
    found = [study.json(f"{trial.name}/metrics.json") for trial in study.trials()]
    assert len(found) == 3
    for figures in found:
        assert figures["throughput"]["value"] == pytest.approx(100.0, rel=0.02), figures


@pytest.mark.sweep
@pytest.mark.covers("C14", "B2", "E-NFR04")
@pytest.mark.parametrize("victim", ["everything", "simulation"])
def test_after_kill_9_in_a_simulation_the_finished_one_is_kept_and_nothing_is_left(
    study: StudyFolder, victim: str
) -> None:
    workload = station(name="brief", pattern="constant", rate_rps=50, duration_s=5)
    write(study, workload)
    assert study.measure().returncode == 0
    write(study, workload, station(name="long", pattern="gamma", burstiness=1, rate_rps=150, duration_s=1_500))
    run = study.start()
    until(lambda: list(study.results.glob("*-gamma-*/.parts")))
    found = until(lambda: parts_of_a_load(study).get("worker:run"))
    for process in study.processes() if victim == "everything" else found[:1]:
        process.kill()
    run.wait(60)
    until(lambda: not study.processes(), within_s=60)
    [brief] = study.results.glob("*-constant-*")
    [long] = study.results.glob("*-gamma-*")
    assert not (long / "load.json").exists() or victim == "simulation", "it was killed too late to show anything"
    kept = {path.name: path.read_bytes() for path in brief.iterdir() if path.is_file()}
    done = study.measure()
    if victim == "simulation":
        assert study.json(f"{long.name}/load.json")["category"] == "client_died", done.stdout
        rows = study.json("summary.json")["treatments"]
        assert {row["origin"] for row in rows} == {"simulated"}, "also of the one that failed"
        done = study.bench("retry", "-c", "config/scenarios/try.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: (brief / name).read_bytes() for name in kept} == kept
    assert set(study.measurements().values()) == {1}
    assert study.json(f"{long.name}/load.json")["rows"] == len(due_s(long)) > 200_000
    until(lambda: not study.processes(), within_s=60)
    assert not (long / ".parts").exists()
    assert not list(study.root.glob(".seamark/scratch/*/*"))
