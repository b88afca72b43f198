"""`bench submit --strict` and `bench load --strict` as gates, and the shipped examples for GitHub and GitLab."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
import yaml
from study_folder import StudyFolder

from seamark.platform.ports import choose_ports
from seamark.services.ephemeral_server import ephemeral_server

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "ci"
FEW = {"pattern": "constant", "rate_rps": 100, "duration_s": 0.5, "concurrency": 4}


def strict(study: StudyFolder, *words: str) -> "subprocess.CompletedProcess[str]":
    return study.bench("submit", "-c", "config/scenarios/try.yaml", "--strict", *words)


def gate(done: "subprocess.CompletedProcess[str]") -> str:
    [line] = [line for line in done.stderr.splitlines() if line.startswith("Gate ")]
    return line


@pytest.mark.sweep
@pytest.mark.covers("E-FR09", "E-NFR04", "B9")
def test_a_gate_is_judged_again_without_measuring_and_counts_with_strict_alone(study):
    study.write(workload=FEW | {"slos": ["latency_p50_s <= 60", "error_rate <= 0.5"]})
    passed = strict(study)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert gate(passed).startswith("Gate passed: 2 trials")
    assert gate(passed).endswith("; 2 objectives met.")
    again = strict(study)
    assert (again.returncode, gate(again)) == (0, gate(passed))

    study.write(workload=FEW | {"slos": ["latency_p50_s <= 1e-9"]})
    missed = strict(study)
    assert missed.returncode == 1
    assert "latency_p50_s <= 1e-09 missed in 2 of 2 trials, at worst " in gate(missed)
    assert study.measure().returncode == 0, "without --strict an objective is a result, not a failure"

    study.write(workload=FEW | {"slos": ["latency_p99_s <= 60"]})
    few = strict(study)
    assert few.returncode == 1
    assert "whether latency_p99_s <= 60 is met is not known in 2 of 2 trials" in gate(few)
    document = json.loads(strict(study, "--json").stdout)
    assert document["gate"]["passed"] is False
    assert len(document["gate"]["reasons"]) == 1
    assert set(study.measurements().values()) == {1}


@pytest.mark.sweep
@pytest.mark.covers("E-FR09")
def test_trials_of_a_server_that_fails_most_requests_do_not_pass(study):
    """Of six requests three get an error and one a reset: two of three fail."""
    faults = {"error_every": 2, "reset_every": 3}
    workload = {"service": "known", "component": "inference", "gen_tokens": 1, "concurrency": 1, "duration_s": 1}
    study.write(repetitions=1, workload=workload | faults)
    done = strict(study)
    assert done.returncode == 1, done.stdout + done.stderr
    assert gate(done).startswith("Gate not passed: known: INVALID (")
    assert "% of the requests failed, most with '503 Service Unavailable" in gate(done)
    assert study.json("summary.json")["verdicts"] == {"INVALID": 1}
    assert study.measure().returncode == 0, "its trial was measured: without --strict that is all"


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04", "B17")
def test_failed_trials_are_named_by_the_gate_and_notified_of(study):
    workload = {"service": "command", "command": {"argv": ["false"]}}
    told = study.root / "told"
    notify = {"command": ["sh", "-c", f"(echo $SEAMARK_EVENT; cat) >> {told}; exit 7"], "events": ["end", "failure"]}
    text = yaml.safe_dump({"scenario": "try", "repetitions": 1, "notify": notify, "workload": workload})
    (study.root / "config/scenarios/try.yaml").write_text(text)
    done = strict(study)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 of 1 trial failed (" in gate(done)
    assert "notify: sh ended with exit code 7" in done.stderr
    lines = told.read_text().splitlines()
    assert lines[-2] == "end"
    assert lines[-1].startswith("try has ended: 0 of 1 trial measured, 1 failed. First failure: ")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("submit", "--strict", "--dry-run"), "a dry run measures nothing that could be judged"),
        (("submit", "--strict=yes"), "--strict"),
        (("submit", "--strict", "-c", "none.yaml"), "none.yaml"),
        (("load", "http://127.0.0.1:9/", "--strict", "--slo", "latency=fast"), "not an objective"),
        (("load", "http://127.0.0.1:9/", "--strict", "--slo", "latencyp99=1"), "no objective 'latencyp99'"),
    ],
)
def test_a_wrong_use_is_one_line_with_exit_code_2(study, words, why):
    done = study.ask(*words, code=2)
    assert why in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.sweep
@pytest.mark.serial
@pytest.mark.covers("E-FR09")
def test_a_trial_beside_processes_that_compute_is_suspect_and_says_what_was_seen(study):
    study.write(
        repetitions=1,
        workload={
            "service": "known",
            "component": "inference",
            "ttft_ms": 5,
            "gen_tokens": 1,
            "concurrency": 1,
            "duration_s": 4,
        },
    )
    with burners(os.cpu_count() or 1):
        done = study.bench("submit", "-c", "config/scenarios/try.yaml", timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning: other load: " in done.stderr
    [trial] = study.trials()
    metrics = study.json(f"{trial.name}/metrics.json")
    assert metrics["verdict"] == "SUSPECT"
    [reason] = [reason for reason in metrics["reasons"] if reason["code"] == "busy_elsewhere"]
    assert reason["text"].startswith("others used ")
    assert "% of the processors of the machine during the window" in reason["text"]


@pytest.mark.sweep
@pytest.mark.serial
def test_loads_too_short_for_telemetry_beside_processes_that_compute_are_suspect(study):
    study.write(repetitions=1, workload=FEW)
    with burners(os.cpu_count() or 1), ephemeral_server("seamark.testservers.null") as port:
        done = study.bench("submit", "-c", "config/scenarios/try.yaml", timeout=1200)
        loaded = study.bench("load", f"http://127.0.0.1:{port}/", "--duration", "3", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    [trial] = study.trials()
    for metrics in (study.json(f"{trial.name}/metrics.json"), json.loads(loaded.stdout)):
        assert metrics["verdict"] == "SUSPECT"
        assert "busy_elsewhere" in {reason["code"] for reason in metrics["reasons"]}


@contextmanager
def burners(count: int) -> Iterator[None]:
    """Run processes that compute; they end with this one."""
    code = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def github_steps() -> list[tuple[str, str]]:
    """Return folder and shell text of each step of the example, in order."""
    [job] = yaml.safe_load((EXAMPLES / "github.yml").read_text())["jobs"].values()
    return [(step.get("working-directory", "."), step["run"]) for step in job["steps"] if "run" in step]


def gitlab_steps() -> list[tuple[str, str]]:
    """Return the example's lines as one script, as a runner joins them; first those of `before_script`."""
    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["benchmark"]
    return [(".", "\n".join(job[part])) for part in ("before_script", "script")]


def variables() -> list[dict[str, str]]:
    [github] = yaml.safe_load((EXAMPLES / "github.yml").read_text())["jobs"].values()
    return [github["env"], yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["benchmark"]["variables"]]


def test_both_examples_install_first_and_have_the_same_variables():
    assert variables()[0] == variables()[1]
    for steps in (github_steps(), gitlab_steps()):
        assert steps[0][1] == 'python -m pip install "$SEAMARK"'


@pytest.mark.covers("E-NFR05")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples wait for the service with curl")
@pytest.mark.parametrize(
    ("steps", "of_address", "limit_s", "codes", "why"),
    [
        pytest.param(
            github_steps(),
            "error_rate=1",
            60,
            [0, 0, 0, 0],
            "Gate passed: 3 trials",
            id="GitHub, passed",
            marks=pytest.mark.sweep,
        ),
        pytest.param(
            gitlab_steps(),
            "error_rate=1",
            60,
            [0],
            "Gate passed: 3 trials",
            id="GitLab, passed",
            marks=pytest.mark.sweep,
        ),
        pytest.param(
            gitlab_steps(),
            "error_rate=1",
            1e-9,
            [1],
            "Gate not passed: null: latency_p99_s <= 1e-09 missed in 3 of 3 trials",
            id="GitLab, a scenario misses its objective",
            marks=pytest.mark.sweep,
        ),
        pytest.param(
            github_steps(),
            "latency_p50=1e-9",
            60,
            [0, 1],
            "Gate not passed: latency_p50_s <= 1e-09 missed",
            id="GitHub, an address misses its objective",
        ),
    ],
)
def test_the_steps_of_an_example_run_and_end_where_an_objective_is_missed(
    tmp_path, steps, of_address, limit_s, codes, why
):
    """All steps but the first, which installs what is installed here."""
    repository, tools = tmp_path / "repository", tmp_path / "tools"
    (repository / "ci").mkdir(parents=True)
    tools.mkdir()
    text = (EXAMPLES / "gate.yaml").read_text()
    assert "latency_p99_s <= 0.05" in text
    (repository / "ci/gate.yaml").write_text(text.replace("latency_p99_s <= 0.05", f"latency_p99_s <= {limit_s}"))
    for name, words in (("python", [sys.executable]), ("bench", [sys.executable, "-m", "seamark.cli.main"])):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (tools / name).chmod(0o755)
    environment = os.environ | variables()[0]
    environment |= {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PORT": str(choose_ports(["http"], "127.0.0.1", Random())["http"]),
        "OBJECTIVE": of_address,
    }
    groups, seen = [], []
    try:
        for number, (folder, script) in enumerate(steps[1:]):
            output = tmp_path / f"step-{number}.log"
            with output.open("wb") as log:
                step = subprocess.Popen(
                    ["bash", "-e", "-c", script],
                    cwd=repository / folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            groups.append(step.pid)
            seen.append(step.wait(timeout=600))
            assert seen == codes[: len(seen)], output.read_text()
            if seen[-1]:
                break
    finally:
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
    assert seen == codes
    assert why in output.read_text()
    if codes[-1] == 0:
        assert (repository / "study/reports/gate/index.html").exists()
        assert (repository / "study/results/gate/summary.csv").exists()
