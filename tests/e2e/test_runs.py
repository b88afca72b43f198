"""Whole runs through Snakemake on the null service: what is measured once, what again, what a kill leaves."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from processes import until

pytestmark = pytest.mark.e2e


@pytest.mark.covers("E-FR01", "E-FR10", "E-FR12", "E-FR15", "E-NFR05", "E-AC05")
def test_one_command_leaves_every_file_of_every_trial_and_a_report(submitted):
    assert len(submitted.trials()) == 4
    for trial in submitted.trials():
        for name in [
            "effective_config.yaml",
            "load.json",
            "samples.parquet",
            "telemetry.parquet",
            "telemetry.csv",
            "series.csv",
            "histogram.json",
            "metrics.json",
            "metrics.csv",
            "meta.json",
            "log.jsonl",
        ]:
            assert (trial / name).exists(), f"{trial.name}/{name}"
    assert submitted.json("summary.json")["ok"] == 4
    assert (submitted.root / "reports" / "try" / "index.html").exists()


@pytest.mark.covers("E-FR08", "E-FR09", "E-SCHEMA")
def test_a_trial_says_on_what_node_it_ran_and_what_energy_it_took_or_why_that_is_not_known(submitted):
    for trial in submitted.trials():
        meta, metrics = submitted.json(f"{trial.name}/meta.json"), submitted.json(f"{trial.name}/metrics.json")
        [(name, node)] = meta["nodes"].items()
        assert name == meta["node"]
        assert node["machine"]["cpu_model"]
        assert node["machine"]["mounts"]["results"]["type"]
        assert node["before"]["monotonic_ns"] < node["after"]["monotonic_ns"]
        if metrics["energy"] is None:
            assert [part.partition(":")[0] for part in metrics["energy_reason"].split("; ")] == [
                "gpu",
                "package",
                "node",
            ]
        else:
            assert metrics["energy"]["value_j"] > 0
            assert metrics["energy"]["method"]
    assert 'id="nodes"' in (submitted.root / "reports" / "try" / "index.html").read_text()


@pytest.mark.sweep
@pytest.mark.covers("B9", "E-NFR04")
def test_a_second_submit_runs_nothing_and_one_more_level_and_objective_only_the_new_trials(finished):
    loads = {path: path.stat().st_mtime_ns for path in finished.results.glob("*/load.json")}
    finished.submit(code=0)
    log = sorted((finished.results / "logs").glob("submit-*"))[-1].read_text()
    assert "Nothing to be done" in log
    finished.write(workload={"concurrency": [1, 2, 3], "slos": ["latency_p50_s <= 1e-9"]})
    assert finished.measure().returncode == 0
    assert finished.json("summary.json")["ok"] == 6
    assert set(finished.measurements().values()) == {1}
    assert {path: path.stat().st_mtime_ns for path in loads} == loads
    for trial in finished.trials():
        [objective] = json.loads((trial / "metrics.json").read_text())["slos"]
        assert (objective["limit"], objective["met"]) == (1e-9, False)


@pytest.mark.sweep
@pytest.mark.covers("B9")
def test_a_trial_whose_samples_were_removed_is_measured_again_and_no_other(finished):
    victim = finished.trials()[1]
    (victim / "samples.parquet").unlink()
    target = (victim / "metrics.json").relative_to(finished.root)
    finished.snakemake(str(target), code=0)
    counts = finished.measurements()
    assert counts.pop(victim.name) == 2
    assert set(counts.values()) == {1}
    until(lambda: not finished.processes())


def begun(study) -> list[Path]:
    """Return the trials whose load runs at this moment."""
    return [path.parent for path in study.results.glob("*/.parts")]


def parts_of_a_load(study) -> dict[str, list[psutil.Process]]:
    """Return the processes of the load that runs at this moment, by what they are."""
    found: dict[str, list[psutil.Process]] = {}
    for process in study.processes():
        with contextlib.suppress(psutil.Error):
            if process.name() in ("rules_api:load", "worker:run"):
                found.setdefault(process.name(), []).append(process)
                found.setdefault("fork server", []).append(process.parent())
            elif any(word.endswith("scripts/load.py") for word in process.cmdline()[:3]):
                found.setdefault("script", []).append(process)
    return found


@pytest.mark.covers("B2", "E-NFR04")
@pytest.mark.parametrize("victim", ["snakemake", "seamark.cli.main"])
def test_after_kill_9_of_snakemake_or_bench_submit_completes_and_measures_nothing_twice(study, victim):
    run = study.start()
    until(lambda: list(study.results.glob("*/load.json")))
    victims = study.processes(lambda p: any(Path(word).name == victim for word in p.cmdline()[:4]))
    assert victims
    for process in victims:
        process.kill()
    run.wait(60)
    until(lambda: not study.processes(), within_s=60)
    assert study.measure().returncode == 0
    assert study.json("summary.json")["ok"] == 4
    assert max(study.measurements().values()) == 1


@pytest.mark.sweep
@pytest.mark.covers("E-SVR06", "E-NFR04")
def test_after_kill_9_of_the_supervisor_no_server_is_left_and_the_run_completes(study):
    study.write(workload={"duration_s": 1.5})
    run = study.start()
    until(lambda: begun(study))
    endpoint = study.json(next(study.results.glob("deployments/*/endpoint.json")).relative_to(study.results))
    os.kill(endpoint["keeper_pid"], signal.SIGKILL)
    until(lambda: not psutil.pid_exists(endpoint["server_pid"]), within_s=10)
    run.wait(120)
    assert study.bench("retry", "-c", "config/scenarios/try.yaml").returncode == 0
    assert study.json("summary.json")["ok"] == 4
    until(lambda: not study.processes())


@pytest.mark.sweep
@pytest.mark.covers("E-SVR06", "E-NFR04")
def test_after_kill_9_of_the_guard_the_running_trial_fails_the_others_are_measured_and_retry_completes(study):
    study.write(workload={"duration_s": 1.5})
    run = study.start()
    until(lambda: begun(study))
    victim = begun(study)[0].name
    endpoint = study.json(next(study.results.glob("deployments/*/endpoint.json")).relative_to(study.results))
    psutil.Process(endpoint["keeper_pid"]).parent().kill()
    until(lambda: not psutil.pid_exists(endpoint["server_pid"]), within_s=10)
    assert run.wait(120) == 1
    load = study.json(f"{victim}/load.json")
    assert (load["status"], load["category"]) == ("failed", "server_died")
    summary = study.json("summary.json")
    assert (summary["ok"], summary["trials"]) == (3, 4)
    assert study.bench("retry", "-c", "config/scenarios/try.yaml").returncode == 0
    assert study.json("summary.json")["ok"] == 4
    assert max(study.measurements().values()) == 1
    until(lambda: not study.processes())


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(
    "part",
    ["rules_api:load", "script", "fork server"],
)
def test_after_kill_9_of_a_load_or_of_what_forked_it_nothing_of_it_is_left_and_submit_completes(study, part):
    study.write(workload={"duration_s": 1.5})
    run = study.start()
    until(lambda: begun(study) and "worker:run" in parts_of_a_load(study))
    parts = parts_of_a_load(study)
    assert set(parts) == {"script", "rules_api:load", "worker:run", "fork server"}
    victims = parts.pop(part)
    for process in victims:
        process.kill()
    parts.pop("fork server", None)  # it serves the next load
    rest = [process for processes in parts.values() for process in processes]
    psutil.wait_procs(rest, timeout=10)
    assert not [process for process in rest if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    run.wait(120)
    assert study.bench("retry", "-c", "config/scenarios/try.yaml").returncode == 0
    assert study.measure().returncode == 0
    assert study.json("summary.json")["ok"] == 4
    assert max(study.measurements().values()) == 1
    until(lambda: not study.processes())


@pytest.mark.covers("E-FR07", "E-NFR04", "B2", "E-AC05")
def test_a_killed_server_fails_its_trial_and_no_other_and_retry_completes(study):
    study.write(workload={"duration_s": 1.5})
    run = study.start()
    until(lambda: begun(study))
    victim = begun(study)[0].name
    time.sleep(0.7)
    endpoint = study.json(next(study.results.glob("deployments/*/endpoint.json")).relative_to(study.results))
    os.kill(endpoint["server_pid"], signal.SIGKILL)
    assert run.wait(120) == 1
    load = study.json(f"{victim}/load.json")
    assert (load["status"], load["category"]) == ("failed", "server_died")
    summary = study.json("summary.json")
    assert (summary["ok"], summary["trials"]) == (3, 4)
    assert [failed["trial"] for failed in summary["failed"]] == [victim]
    study.bench("retry", "-c", "config/scenarios/try.yaml", code=0)
    assert study.json("summary.json")["ok"] == 4
    assert (study.results / victim / "attempts" / "1" / "load.json").exists()
    until(lambda: not study.processes())


@pytest.mark.covers("E-INT01", "E-AC02")
def test_a_wrong_scenario_is_said_in_one_line_and_writes_nothing(study):
    study.write(workload={"concurency": 3})
    before = sorted(study.root.rglob("*"))
    done = study.measure(code=2)
    assert "concurency" in done.stderr
    assert "Did you mean 'concurrency'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(study.root.rglob("*")) == before


@pytest.mark.covers("E-INT03")
def test_stop_ends_the_run_and_its_servers_and_submit_goes_on(study):
    study.write(workload={"duration_s": 1.5})
    run = study.start()
    until(lambda: begun(study))
    assert study.bench("stop", "-c", "config/scenarios/try.yaml").returncode == 0
    run.wait(60)
    until(lambda: not study.processes(), within_s=40)
    assert study.measure().returncode == 0
    assert study.json("summary.json")["ok"] == 4
