"""kill -9 of any process of a run, at a random moment: submitted again, nothing is measured twice, lost, or left."""

import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from processes import until
from study_folder import StudyFolder
from test_runs import parts_of_a_load

pytestmark = pytest.mark.e2e

ROLES = ("supervisor", "guard", "server", "load", "worker", "fork server", "bench", "snakemake")
ROUNDS = 3
RUN_S = 9.0
"""About how long the run of such a study takes where nothing is killed."""
HANGS_S = 240.0
TRIALS = 4


def of_role(study: StudyFolder, run: "subprocess.Popen[bytes]", role: str) -> list[psutil.Process]:
    """Return the processes of a run that have a role at this moment."""
    if role == "bench":
        return [psutil.Process(run.pid)]
    if role == "snakemake":
        return study.processes(lambda p: any(Path(word).name == "snakemake" for word in p.cmdline()[:4]))
    if role in ("load", "worker", "fork server"):
        name = {"load": "rules_api:load", "worker": "worker:run"}.get(role, role)
        return parts_of_a_load(study).get(name, [])
    [beat] = study.results.glob("deployments/*/endpoint.json")
    endpoint = study.json(str(beat.relative_to(study.results)))
    supervisor = psutil.Process(endpoint["keeper_pid"])
    if role == "server":
        return [psutil.Process(endpoint["server_pid"])]
    return [supervisor if role == "supervisor" else supervisor.parent()]


def kill(study: StudyFolder, run: "subprocess.Popen[bytes]", role: str) -> bool:
    """Kill a process of that role as soon as there is one; return False when the run ends before there is."""
    while run.poll() is None:
        try:
            [victim, *_] = of_role(study, run, role)
            if str(study.root) not in " ".join([*victim.cmdline(), victim.cwd(), *victim.environ().values()]):
                raise ValueError("another study's")
            victim.kill()
            return True
        except (psutil.Error, ValueError, OSError, AttributeError):
            time.sleep(0.02)
    return False


def good_samples(study: StudyFolder) -> dict[str, bytes]:
    """Return the samples of all trials whose record says that they are complete."""
    return {
        trial.name: (trial / "samples.parquet").read_bytes()
        for trial in study.trials()
        if (trial / "samples.json").exists()
    }


@pytest.mark.sweep
@pytest.mark.covers("B2", "E-NFR04", "E-SVR06")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("turn", range(ROUNDS))
def test_after_kill_9_at_a_random_moment_submit_completes_and_nothing_is_lost_or_left(study, role, turn, counted):
    study.write(workload={"duration_s": 0.8})
    run = study.start()
    time.sleep(random.Random(f"{role} {turn}").uniform(0, RUN_S))
    killed = kill(study, run, role)
    try:
        run.wait(HANGS_S)
        until(lambda: not study.processes(), within_s=HANGS_S)
        before = good_samples(study)
        done = study.measure()
        said = done.stdout + done.stderr
        if done.returncode == 1:
            again = study.bench("retry", "-c", "config/scenarios/try.yaml")
            said += again.stdout + again.stderr
        until(lambda: not study.processes(), within_s=HANGS_S)
    except (subprocess.TimeoutExpired, AssertionError):
        counted("kill -9", "hangs")
        raise
    if "Traceback" in said:
        counted("kill -9", "tracebacks")
        pytest.fail(said)
    assert study.json("summary.json")["ok"] == TRIALS, said
    assert study.measurements() == {trial.name: 1 for trial in study.trials()}
    after = good_samples(study)
    assert len(after) == TRIALS
    assert {name: after[name] for name in before} == before, "what was measured is kept as it was"
    counted("kill -9", "survived" if killed else "ended before the kill")
