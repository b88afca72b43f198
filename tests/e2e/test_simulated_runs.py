"""Simulated trials: no server, many at once, the same bytes for the same seed, figures by theory."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from study_folder import StudyFolder

from seamark.model.failure_categories import FAILURE_CATEGORIES

pytestmark = pytest.mark.e2e

RECIPE = """\
schema_version: 1
name: queue
component: simulation
summary: a queue with one server
why: a test
version: "1"
licence: Apache-2.0
driver: queue_simulation:Queue
workers: processes
load: program
origin: simulated
limit_s: 60
failures:
  queue_closed: {help: It takes no more jobs., remedy: Open the queue.}
server: null
container: null
settings:
  arrivals_rps: {type: float, role: workload, default: 50, help: Arrivals a second of virtual time.}
  service_ms: {type: float, role: workload, default: 10, help: Mean time of service.}
  jobs: {type: int, role: workload, default: 20000, help: Number of jobs.}
  mode: {type: str, role: workload, default: run, help: What becomes of it.}
  log: {type: str, role: workload, default: none, help: File for begin and end.}
"""


def a_study(study: StudyFolder, repetitions: int = 1, **workload: object) -> None:
    shutil.copy(Path(__file__).parents[1] / "support" / "queue_simulation.py", study.root)
    (study.root / "config/services/queue.yaml").write_text(RECIPE)
    document = {"scenario": "try", "repetitions": repetitions, "workload": {"service": "queue", **workload}}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


def test_figures_of_a_simulated_queue_are_those_of_theory_and_nothing_is_served(study: StudyFolder) -> None:
    a_study(study, arrivals_rps=[50, 80], jobs=200_000, keep_events=True)
    done = study.submit(code=0)
    assert len(study.trials()) == 2
    for trial in study.trials():
        metrics = study.json(f"{trial.name}/metrics.json")
        assert (metrics["origin"], metrics["status"], metrics["verdict"]) == ("simulated", "ok", "VALID"), metrics
        rate = metrics["config"]["arrivals_rps"]
        use = rate * 0.01
        assert metrics["latency_ms"]["mean"] == pytest.approx(10 / (1 - use), rel=0.08), "M/M/1"
        assert metrics["stages"]["by_stage"]["server"]["busy_ratio"] == pytest.approx(use, rel=0.03)
        assert metrics["requests_per_s"] == pytest.approx(rate, rel=0.02)
        assert metrics["quality"]["virtual_s"] == pytest.approx(200_000 / rate, rel=0.02)
        assert metrics["counts"]["requests"] == 200_000
        assert metrics["energy"] is None
        seconds = len((trial / "series.csv").read_text().splitlines()) - 1
        assert seconds == pytest.approx(200_000 / rate, rel=0.02), "virtual time has no limit of 60 s"
        load = study.json(f"{trial.name}/load.json")
        assert (load["origin"], load["epoch_unix_ns"], load["rows"]) == ("simulated", None, 200_000)
        assert load["duration_s"] == pytest.approx(200_000 / rate, rel=0.02)
    planned = study.ask("plan", "-c", "config/scenarios/try.yaml")
    assert "3,600" not in planned.stdout
    assert "of load" in planned.stdout
    assert not (study.results / "deployments").exists()
    assert "Simulated, not measured: queue." in done.stdout
    assert "**Simulated, not measured**: queue" in (study.root / "reports/try/report.md").read_text()
    study.measure(code=0)
    assert max(study.measurements().values()) == 1


@pytest.mark.sweep
def test_the_same_seed_gives_the_same_bytes_and_another_repetition_other_ones(study: StudyFolder) -> None:
    a_study(study, repetitions=2, keep_events=True)
    assert study.measure().returncode == 0
    first = {trial.name: trial for trial in study.trials()}
    names = ("samples.parquet", "events.parquet")
    kept = {(trial, name): (first[trial] / name).read_bytes() for trial in first for name in names}
    assert len(set(kept.values())) == 4
    shutil.rmtree(study.results)
    assert study.measure().returncode == 0
    assert {(trial.name, name): (trial / name).read_bytes() for trial in study.trials() for name in names} == kept
    assert pq.read_table(study.trials()[0] / "samples.parquet").num_rows == 20_000


@pytest.mark.sweep
def test_simulations_run_side_by_side_but_never_beside_a_load(study: StudyFolder) -> None:
    log = study.root / "log.txt"
    a_study(study, repetitions=2, mode="slow", log=str(log), arrivals_rps=[10, 20])
    document = json.loads((study.root / "config/scenarios/try.yaml").read_text())
    load = {"component": "null", "service": "null", "duration_s": 1.0, "warmup_s": 0}
    document["workloads"] = [document.pop("workload"), load]
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    study.measure(code=0)
    lines = [line.split() for line in log.read_text().splitlines()]
    spans = {pid: tuple(float(at) for own, at, _ in lines if own == pid) for pid in {line[0] for line in lines}}
    assert len(spans) == 4
    overlaps = [a < b < c for a, c in spans.values() for b, _ in spans.values()]
    assert any(overlaps), "no two simulations ran at the same time"
    for trial in study.results.glob("null*"):
        load = study.json(f"{trial.name}/load.json")
        began_s = load["epoch_unix_ns"] / 1e9
        assert all(end <= began_s or begin >= began_s + 1.0 for begin, end in spans.values())


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("mode", "category"),
    [("fail", "program_failed"), ("own", "queue_closed"), ("hang", "timeout")],
)
def test_a_simulation_that_fails_is_a_recorded_result_and_can_be_tried_again(study, mode: str, category: str) -> None:
    a_study(study, mode=mode, limit_s=2)
    assert study.measure().returncode == 1
    [trial] = study.trials()
    load = study.json(f"{trial.name}/load.json")
    assert (load["status"], load["category"]) == ("failed", category)
    [reason] = study.json(f"{trial.name}/metrics.json")["reasons"]
    known = FAILURE_CATEGORIES.get(category)
    assert (reason["code"], reason["remedy"]) == (category, known.remedy if known else "Open the queue.")
    study.bench("retry", "-c", "config/scenarios/try.yaml", code=1)
    assert (trial / "attempts" / "1" / "load.json").exists()
    assert not list(study.root.glob(".seamark/scratch/*/*"))
    assert not (trial / ".parts").exists()


def test_only_a_program_without_a_server_can_be_simulated(study: StudyFolder) -> None:
    a_study(study)
    recipe = study.root / "config/services/queue.yaml"
    recipe.write_text(RECIPE.replace("load: program\n", "").replace("limit_s: 60\n", ""))
    refused = study.measure(code=2)
    line = next(number for number, text in enumerate(recipe.read_text().splitlines(), 1) if "origin" in text)
    assert f"queue.yaml:{line}: origin: 'simulated' is for a program without a server." in refused.stderr


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("timeout", "there is a category 'timeout' already. Choose another name."),
        ("Queue closed", "'Queue closed' cannot be a category: use small letters, digits and '_', at most 64."),
    ],
)
def test_a_recipe_s_own_category_of_failures_has_a_name_of_its_own(study: StudyFolder, name: str, line: str) -> None:
    a_study(study)
    (study.root / "config/services/queue.yaml").write_text(RECIPE.replace("queue_closed", name))
    refused = study.ask("plan", "-c", "config/scenarios/try.yaml", code=2)
    assert line in refused.stderr
