"""The scripts of `bench export slurm`: what they ask Slurm for, and how they read."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exported import ACCOUNT, Exporting, options

from seamark.dispatch.slurm.commands import clock
from seamark.workflow.export_slurm import shell_path

pytestmark = pytest.mark.slow
Make = Callable[..., Exporting]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda **changes: Exporting.at(tmp_path / "study", **changes)


def ids_in(script: Path) -> list[str]:
    """Return the deployments that a script serves."""
    lines = script.read_text().splitlines()
    start = lines.index("deployments=(")
    return [line.strip() for line in lines[start + 1 : lines.index(")", start)]]


@pytest.mark.covers("E-FR03", "E-MLX01", "E-MR02", "E-MR08")
def test_each_script_states_everything_a_job_asks_for(make: Make) -> None:
    resources = {"nodes": 2, "gpus": 4, "cpus_per_task": 32, "mem_gb": 64}
    folder = make(site={"qos": {"short": 21600}}, qos="short", resources=resources).export()
    asked = options(folder / "deployments.sbatch")
    assert {name: asked[name] for name in ("partition", "account", "qos")} == {
        "partition": "all",
        "account": ACCOUNT,
        "qos": "short",
    }
    assert (asked["nodes"], asked["ntasks"], asked["gres"]) == ("2", "2", "gpu:4")
    assert (asked["cpus-per-task"], asked["mem"], asked["job-name"]) == ("32", "64G", "try")
    assert (asked["output"], asked["error"]) == ("logs/try/%x_%A_%a.out", "logs/try/%x_%A_%a.err")
    assert asked["signal"] == "B:TERM@120"
    report = options(folder / "report.sbatch")
    assert {"partition", "account", "qos", "nodes", "ntasks", "cpus-per-task", "mem", "time"} < set(report)
    assert report["output"] == "logs/try/%x_%j.out"


@pytest.mark.covers("E-FR03")
def test_deployments_that_ask_for_the_same_are_one_array_and_the_others_have_their_own(make: Make) -> None:
    study = make(resources={"cpus_per_task": [1, 4]}, workload={"reply_bytes": [2, 64, 128]})
    folder = study.export("--at-once", "2")
    scripts = sorted(folder.glob("deployments*.sbatch"))
    assert [options(script)["array"] for script in scripts] == ["0-2%2", "0-2%2"]
    assert sorted(options(script)["cpus-per-task"] for script in scripts) == ["1", "4"]
    plan = json.loads(study.bench("plan", "--json").stdout)["plan"]
    assert sorted(each for script in scripts for each in ids_in(script)) == sorted(
        each["id"] for each in plan["deployments"]
    )
    assert len({options(script)["job-name"] for script in scripts}) == 2


def test_a_single_deployment_is_a_plain_job_and_an_earlier_export_leaves_nothing(make: Make) -> None:
    study = make()
    folder = study.export()
    assert options(folder / "deployments.sbatch")["array"] == "0-1%50"  # `jobs` of the site's profile
    study.ask(resources={"cpus_per_task": [1, 2]})
    study.export()
    assert len(list(folder.glob("deployments-?.sbatch"))) == 2
    study.ask(workload={"reply_bytes": 2})
    study.export()
    asked = options(folder / "deployments.sbatch")
    assert "array" not in asked
    assert asked["output"] == "logs/try/%x_%j.out"
    assert sorted(each.name for each in folder.iterdir()) == ["deployments.sbatch", "report.sbatch", "submit.sh"]


def test_a_job_asks_for_the_sum_of_its_phases(make: Make) -> None:
    short = options(make().export() / "deployments.sbatch")["time"]
    assert short == clock(10 + 2 + 4 + 2)  # four loads of 0.25 s and a time-out of 30 s, with what is spare
    assert [clock(9), clock(90), clock(24 * 60 + 5)] == ["00:09:00", "01:30:00", "1-00:05:00"]


def test_a_job_longer_than_its_qos_is_cut_to_it_and_said_so(make: Make) -> None:
    study = make(site={"qos": {"short": 17 * 60}}, qos="short")
    said = study.bench("export", "slurm")
    assert options(study.root / "slurm/try/deployments.sbatch")["time"] == "00:17:00"
    assert "QoS 'short' ends a job after 00:17:00" in said.stdout


def test_an_array_keeps_to_the_jobs_a_user_may_have_and_more_than_these_are_said(make: Make) -> None:
    study = make(site={"qos": {"short": 21600}, "qos_max_submit": {"short": 2}}, qos="short")
    said = study.bench("export", "slurm").stdout
    assert options(study.root / "slurm/try/deployments.sbatch")["array"] == "0-1%2"
    assert "A user may have 2 jobs here, and these are 3: submit.sh submits them part by part" in said


@pytest.mark.parametrize(
    ("words", "changes", "says"),
    [
        (
            (),
            {"site": {"qos": {"short": 600}}, "qos": "short"},
            "qos: 'short' ends a job after 10 min, but one trial",
        ),
        (("-o", "../elsewhere"), {}, "not a folder below the study"),
        ((), {"site": {"profile": "default", "partitions": {}}}, "it has no batch system"),
    ],
)
def test_what_cannot_be_exported_is_said_in_one_line_and_writes_nothing(
    make: Make, words: tuple[str, ...], changes: dict[str, Any], says: str
) -> None:
    study = make(**changes)
    done = study.bench("export", "slurm", *words)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert not (study.root / "slurm").exists()


@pytest.mark.parametrize(("text", "code"), [("jobs: [1\n", 2), ("a: !!timestamp b\n", 2), ("", 0), ("[jobs]\n", 0)])
def test_a_profile_that_cannot_be_read_is_said_with_its_file(make: Make, text: str, code: int) -> None:
    study = make()
    profile = study.root / "profiles" / "slurm"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "config.yaml").write_text(text)
    done = study.bench("export", "slurm")
    assert done.returncode == code, done.stderr
    if code:
        assert "config.yaml: this profile of Snakemake cannot be read" in done.stderr
        assert not (study.root / "slurm").exists()


@pytest.mark.covers("E-MR03", "E-MLX02")
def test_scripts_are_bash_with_the_sites_modules_and_no_path_of_this_machine(make: Make) -> None:
    site = {"modules": ["env/1.0", "Apptainer/1.3"], "module_init": "$LMOD_PKG/init/bash"}
    folder = make(site=site | {"paths": {"results": "$WORK/my results"}}).export()
    for script in folder.iterdir():
        assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
        text = script.read_text()
        assert str(folder.parents[1]) not in text
        assert sys.prefix not in text
        assert str(Path.home()) not in text
    job = (folder / "deployments.sbatch").read_text()
    assert job.index('. "$LMOD_PKG/init/bash"\nmodule load env/1.0 Apptainer/1.3\n') < job.index("set -u")


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("results", "results"),
        ("$WORK/results", '"$WORK/results"'),
        ("~/results", '"$HOME/results"'),
        ("/a b/`c`/$(d)", r'"/a b/\`c\`/\$(d)"'),
    ],
)
def test_a_path_of_a_site_is_one_word_of_bash_whose_variables_live(path: str, word: str) -> None:
    assert shell_path(path) == word


def test_the_interpreter_of_the_jobs_can_be_named(make: Make) -> None:
    folder = make().export("--python", "$HOME/envs/seamark/bin/python")
    for script in folder.iterdir():
        assert 'python=${SEAMARK_PYTHON:-"$HOME/envs/seamark/bin/python"}\n' in script.read_text()


def test_a_submit_without_an_interpreter_that_has_seamark_says_so_and_submits_nothing(make: Make) -> None:
    folder = make().export()
    env = {"PATH": "/usr/bin:/bin", "SEAMARK_PYTHON": "/bin/false"}
    done = subprocess.run([folder / "submit.sh"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "/bin/false: no interpreter that has seamark. Name one in SEAMARK_PYTHON." in done.stderr
    assert done.stdout == ""


def test_what_was_written_is_told_as_json(make: Make) -> None:
    told = json.loads(make().bench("export", "slurm", "--json").stdout)
    [job] = told["jobs"]
    assert (job["script"], len(job["deployments"]), job["time_min"]) == ("deployments.sbatch", 2, job["needs_min"])


@pytest.mark.covers("E-NFR05")
def test_trials_of_another_server_stop_a_submission_unless_they_are_to_be_measured_anew(
    make: Make, tmp_path: Path
) -> None:
    study = make(repetitions=1)
    folder = study.export("--python", sys.executable)
    trials = json.loads(study.bench("plan", "--json").stdout)["plan"]["trials"]
    server = {"digest": "another", "runtime": "venv", "site": "other", "machine": "far"}
    for trial in trials:
        own = study.results / trial["id"]
        own.mkdir(parents=True, exist_ok=True)
        (own / "samples.parquet").write_bytes(b"")
        record = {"status": "ok", "config_hash": trial["config_hash"], "samples_bytes": 0}
        (own / "samples.json").write_text(json.dumps({**record, "server_identity": server}))
    for name, says in (("sbatch", 'echo "$SEAMARK_MEASURE_ANEW" >> asked; echo 7'), ("squeue", "true")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    refused = subprocess.run([folder / "submit.sh"], env=env, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "4 trials were measured on site 'other' (venv, on far); this run asks for site 'here'" in refused.stderr
    assert not (study.root / "asked").exists(), "nothing was submitted"

    words = [folder / "submit.sh", "--measure-anew"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (study.root / "asked").read_text().split() == ["yes", "yes"]

    first = trials[0]["deployment"]
    own = sorted(trial["id"] for trial in trials if trial["deployment"] == first)
    refused = study.run_deployment(first)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "2 trials were measured on site 'other'" in refused.stderr
    done = study.run_deployment(first, SEAMARK_MEASURE_ANEW="yes")
    assert done.returncode == 0, done.stderr
    moved = [trial["id"] for trial in trials if (study.results / trial["id"] / "attempts/1/samples.json").exists()]
    assert sorted(moved) == own, "those of its own deployment, once"
    assert [json.loads((study.results / name / "load.json").read_text())["status"] for name in own] == ["ok", "ok"]
    assert "all trials are measured" in study.run_deployment(first, SEAMARK_MEASURE_ANEW="yes").stdout
