"""The life of a deployment as an exported job runs it: to its end, cut short, killed, and beside another job."""

import json
import signal
from pathlib import Path

import psutil
import pytest
from exported import Exporting
from processes import until

pytestmark = [pytest.mark.services]


def make(root: Path, **workload: object) -> tuple[Exporting, str, list[str]]:
    """Return a study of one deployment with four trials, the deployment, and its trials in order."""
    study = Exporting.at(root / "study", workload={"reply_bytes": 2, **workload})
    plan = json.loads(study.bench("plan", "--json").stdout)["plan"]
    [deployment] = plan["deployments"]
    trials = sorted(plan["trials"], key=lambda trial: int(trial["position"]))
    return study, deployment["id"], [trial["id"] for trial in trials]


def loads(study: Exporting) -> dict[str, str]:
    found = study.results.glob("*--*/load.json")
    return {path.parent.name: json.loads(path.read_text())["status"] for path in found}


def processes(study: Exporting) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(study.root) in f"{process.cmdline()} {process.cwd()}":
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.sweep
@pytest.mark.covers("E-FR03")
def test_a_deployment_is_served_measured_and_torn_down_and_what_is_missing_is_measured_alone(tmp_path):
    study, deployment, trials = make(tmp_path)
    done = study.run_deployment(deployment)
    assert (done.returncode, done.stderr) == (0, "")
    assert loads(study) == dict.fromkeys(trials, "ok")
    folder = study.results / "deployments" / deployment
    assert json.loads((folder / "deployment.json").read_text())["trials"] == {"n": 4, "ok": 4}
    assert not (folder / "endpoint.json").exists()
    assert not (folder / "warmup.json").exists()
    logs = {path.parent.name for path in study.results.glob("logs/*/*.log")}
    assert {"serve", "warmup", "load", "teardown"} <= logs
    assert "all trials are measured" in study.run_deployment(deployment).stdout

    for name in ("load.json", "samples.json"):
        (study.results / trials[2] / name).unlink()
    before = {path: path.stat().st_mtime_ns for path in study.results.glob("*--*/samples.parquet")}
    assert study.run_deployment(deployment).returncode == 0
    after = {path: path.stat().st_mtime_ns for path in study.results.glob("*--*/samples.parquet")}
    assert {path.parent.name for path in after if after[path] != before[path]} == {trials[2]}


@pytest.mark.sweep
@pytest.mark.covers("E-CLI05")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_deployment_cut_short_keeps_what_is_measured_and_leaves_no_process(tmp_path, number):
    study, deployment, trials = make(tmp_path, duration_s=2)
    process = study.start_deployment(deployment)
    until(lambda: loads(study) and list(study.results.glob("*--*/.parts/*")))
    other = study.run_deployment(deployment)
    assert (other.returncode, "another job is at work on it" in other.stdout) == (0, True)
    process.send_signal(number)
    _, complained = process.communicate(timeout=60)
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert "What is measured is kept; submit again to go on." in complained
        assert (study.results / "deployments" / deployment / "deployment.json").exists()
    until(lambda: not processes(study))
    kept = loads(study)
    assert 1 <= len(kept) < len(trials)
    assert set(kept.values()) == {"ok"}
    samples = {path: path.stat().st_mtime_ns for path in study.results.glob("*--*/samples.json")}
    done = study.run_deployment(deployment)
    assert done.returncode == 0, done.stderr
    assert loads(study) == dict.fromkeys(trials, "ok")
    assert all(path.stat().st_mtime_ns == at_ns for path, at_ns in samples.items())
