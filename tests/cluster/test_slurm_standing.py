"""Persistent servers as jobs of a real Slurm, where its programs can be had."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from processes import eventually
from slurm import slurm, why_no_slurm
from standing_study import StandingStudy, kill, standing_study

pytestmark = [pytest.mark.cluster, pytest.mark.services]
LEASE_S = 4.0
NODES = {"nodes": 2, "cpus": 2, "mem_gb": 15}
TWIN = {
    "name": "twin",
    "nodes": "others",
    "command": [
        "{python}",
        "{package}/platform/isolated_main.py",
        "seamark.testservers.null",
        "--host={host}",
        "--port={ports[twin]}",
    ],
    "ports": ["twin"],
    "health": {"probe": "http", "port": "twin", "path": "/health"},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := why_no_slurm():
        pytest.skip(reason)
    with slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=2) as told:
        yield told


@pytest.fixture
def study(cluster: dict[str, str], tmp_path: Path) -> Iterator[StandingStudy]:
    with standing_study(tmp_path / "study", cluster) as study:
        login = "ssh -p 8822 login.example"
        partitions = {"all": NODES, "planned": NODES}
        study.site(
            "cluster", profile="slurm", partitions=partitions, qos={"short": 1800}, lease_s=LEASE_S, login=login
        )
        yield study
        study.bench("servers", "stop", "--all", "--site", "cluster")


def at_cluster(*words: str) -> tuple[str, ...]:
    return (*words, "--site", "cluster", "--partition", "all", "--account", "p1")


@pytest.fixture
def over_two(study: StandingStudy) -> dict[str, Any]:
    """A persistent server with a process on each of two nodes, as `bench servers start` told of it."""
    twins = {"extends": "null.yaml", "name": "twins", "server": {"fewest_nodes": 2, "parts": [TWIN]}}
    (study.root / "config" / "services" / "twins.yaml").write_text(yaml.safe_dump(twins))
    return study.started(*at_cluster("twins", "--name", "two", "--nodes", "2"))


def says(study: StandingStudy, *words: str) -> str:
    return subprocess.run(words, env=dict(study.environment), capture_output=True, text=True, check=True).stdout


def is_snakemake(process: psutil.Process) -> bool:
    """Return whether that is the Snakemake of a run, and not one of a job."""
    return "snakemake" in " ".join(process.cmdline()[:4]) and "--executor" not in process.cmdline()


def in_queue(study: StandingStudy) -> list[str]:
    return says(study, "squeue", "--noheader", "--states=PENDING,RUNNING,COMPLETING", "--format=%A").split()


@pytest.mark.covers("E-SVR01", "E-SVR03", "E-SVR04", "E-MR06", "E-MR08", "E-LOG01", "E-MON01", "E-MLX04")
def test_a_persistent_server_is_a_job_that_is_listed_checked_measured_and_stopped(study: StandingStudy) -> None:
    started = study.started(*at_cluster("null", "--time", "10m"))
    job, port = started["job"], started["ports"]["main"]
    assert started["id"] == "null-1"
    assert started["tunnel"] == f"ssh -p 8822 login.example -N -L {port}:127.0.0.1:{port}"
    assert says(study, "squeue", "-h", "-j", job, "-o", "%j %T %N %P").split() == [
        "seamark-null-1",
        "RUNNING",
        started["node"],
        "all",
    ]
    row = study.listed("--site", "cluster")["null-1"]
    assert (row["state"], row["job"], row["node"]) == ("running", job, started["node"])
    study.bench("servers", "check", "null-1", "--site", "cluster", code=0)
    loaded = study.bench("load", "standing/null-1", "--duration", "0.3", "--json")
    assert json.loads(loaded.stdout)["counts"]["ok"] > 0
    study.bench("servers", "stop", "null-1", "--site", "cluster", code=0)
    assert in_queue(study) == []
    assert study.processes() == []
    assert json.loads((study.folder("null-1") / "logs" / f"seamark-null-1_{job}.out").read_text().splitlines()[-1])
    assert study.json("null-1", "summary.json")["telemetry"]["host.ram_used_bytes"]["n"] >= 2


@pytest.mark.sweep
@pytest.mark.covers("E-CLI01", "E-INT02")
def test_jobs_of_clients_measure_a_persistent_server_of_another_job(study: StandingStudy) -> None:
    started = study.started(*at_cluster("null", "--name", "one"))
    study.site("elsewhere", runtime="external", address="standing/one", partitions={"all": NODES})
    study.scenario("try", partition="all", account="p1")
    load = [
        sys.executable,
        "-m",
        "seamark.cli.main",
        "submit",
        "-c",
        "config/scenarios/try.yaml",
        "--site",
        "elsewhere",
    ]
    done = subprocess.run(
        ["srun", "--partition=all", "--ntasks=1", f"--chdir={study.root}", *load],
        env=dict(study.environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [meta, *_] = [json.loads(path.read_text()) for path in (study.root / "results" / "try").glob("*/meta.json")]
    assert meta["slurm"]["slurm_job_id"] not in (None, started["job"])


@pytest.mark.covers("E-SVR06")
@pytest.mark.parametrize("how", ["scancel", pytest.param("kill", marks=pytest.mark.sweep)])
def test_nothing_is_left_of_a_persistent_server_whose_job_is_ended_by_force(study: StandingStudy, how: str) -> None:
    started = study.started(*at_cluster("null", "--name", "one"))
    if how == "scancel":
        says(study, "scancel", started["job"])
    else:
        [holder] = study.processes(lambda process: "seamark.services.persistent.start" in process.cmdline())
        kill(holder.pid)
    assert eventually(lambda: study.processes() == [], LEASE_S + 15)
    assert eventually(lambda: in_queue(study) == [], 15)
    assert study.listed("--site", "cluster") == {}
    assert study.listed("--site", "cluster", "--all")["one"]["state"] == "ended"


@pytest.mark.sweep
@pytest.mark.covers("E-SVR01", "E-SVR03", "E-FR04", "E-MON01")
def test_a_persistent_server_over_two_nodes_is_one_job_that_a_scenario_measures_and_stop_ends_on_both(
    study: StandingStudy, over_two: dict[str, Any]
) -> None:
    assert says(study, "squeue", "-h", "-j", over_two["job"], "-o", "%D %N").split() == ["2", "n[1-2]"]
    assert study.listed("--site", "cluster")["two"]["nodes"] == over_two["server_nodes"] == ["n1", "n2"]
    endpoint = study.json("two", "endpoint.json")
    [twin] = endpoint["parts"]
    pids = {"n1": endpoint["server_pid"], "n2": twin["pid"]}
    assert {name: psutil.Process(pid).environ()["SLURMD_NODENAME"] for name, pid in pids.items()} == {
        "n1": "n1",
        "n2": "n2",
    }
    study.site("elsewhere", runtime="external", address="standing/two")
    study.scenario("try", workload={"service": "twins"})
    study.bench("submit", "-c", "config/scenarios/try.yaml", "--site", "elsewhere", code=0)
    loads = [json.loads(path.read_text()) for path in (study.root / "results" / "try").glob("*/load.json")]
    assert [load["status"] for load in loads] == ["ok", "ok"]
    assert study.json("two", "endpoint.json") == endpoint
    study.bench("servers", "stop", "two", "--site", "cluster", code=0)
    assert in_queue(study) == []
    assert study.processes() == []
    seen = study.json("two", "summary.json")["telemetry"]
    assert {"host.cpu_ratio", "host@n2.cpu_ratio", "server.rss_bytes", "twin@n2.rss_bytes"} <= set(seen)


@pytest.mark.sweep
@pytest.mark.covers("E-SVR06", "E-NFR04")
@pytest.mark.parametrize("how", ["scancel", "part"])
def test_nothing_is_left_on_either_node_of_a_persistent_server_that_is_ended_by_force(
    study: StandingStudy, over_two: dict[str, Any], how: str
) -> None:
    if how == "scancel":
        says(study, "scancel", over_two["job"])
    else:
        kill(study.json("two", "endpoint.json")["parts"][0]["pid"])
    assert eventually(lambda: study.processes() == [], LEASE_S + 15)
    assert eventually(lambda: in_queue(study) == [], 15)
    row = study.listed("--site", "cluster", "--all")["two"]
    assert row["state"] == "ended"
    if how == "part":
        assert row["why"] == "The part 'twin' of the server on n2 ended with SIGKILL."


@pytest.mark.sweep
@pytest.mark.covers("E-INT03", "E-SVR06", "E-MR08")
def test_stop_ends_the_jobs_of_a_run_whose_snakemake_was_killed(study: StandingStudy) -> None:
    study.started(*at_cluster("null", "--name", "one"))
    study.scenario("try", site="cluster", partition="all", account="p1", workload={"duration_s": 60.0})
    assert study.bench("start", "try").returncode == 0

    def job() -> str | None:
        parts = json.loads(study.bench("status", "-c", "config/scenarios/try.yaml", "--json").stdout)["components"]
        return next((each["job"] for each in parts if each["kind"] == "job" and each["state"] == "running"), None)

    assert eventually(lambda: job() is not None, 40)
    assert len(in_queue(study)) == 2
    held, others = (
        says(
            study, "sbatch", "--parsable", "--hold", f"--chdir={folder}", "--output=/dev/null", "--wrap=true"
        ).strip()
        for folder in (study.root, study.root.parent)
    )
    for process in study.processes(is_snakemake):
        process.kill()
    stopped = study.bench("stop", "-c", "config/scenarios/try.yaml", code=0)
    assert "Still running: persistent server one" in stopped.stdout
    left = in_queue(study)
    assert held not in left
    assert {says(study, "squeue", "-h", "-j", number, "-o", "%j").strip() for number in left} == {
        "seamark-one",
        "wrap",
    }
    says(study, "scancel", others)


@pytest.mark.sweep
@pytest.mark.covers("E-SVR01")
def test_a_server_whose_time_is_over_ends_by_itself_before_slurm_ends_it(study: StandingStudy) -> None:
    study.started(*at_cluster("null", "--name", "one", "--time", "3s"))
    assert eventually(lambda: in_queue(study) == [], 20)
    assert study.json("one", "deployment.json")["ended"]["why"] == "time-limit"
    assert study.processes() == []


@pytest.mark.sweep
@pytest.mark.covers("E-SVR01")
def test_a_server_that_waits_for_a_node_is_pending_and_can_be_stopped(study: StandingStudy) -> None:
    for name in ("one", "two"):
        study.started(*at_cluster("null", "--name", name, "--cpus", "2"))
    study.bench("servers", "start", *at_cluster("null", "--name", "three", "--cpus", "2", "--no-wait"), code=0)
    row = study.listed("--site", "cluster")["three"]
    assert (row["state"], row["why"] in ("Resources", "Priority", "None")) == ("pending", True)
    study.bench("servers", "stop", "--all", "--site", "cluster", code=0)
    assert in_queue(study) == []
    assert study.processes() == []


@pytest.mark.covers("E-SVR01", "E-SVR06")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--partition", "gpus", "--account", "p1"), 2, "is not at the site"),
        (("--partition", "all"), 2, "account"),
        (("--partition", "all", "--account", "p1", "--nodes", "2", "--gpus", "2"), 2, "GPUs"),
        (("--partition", "all", "--account", "p1", "--nodes", "2"), 2, "would be idle"),
        (("--partition", "all", "--account", "p1", "--qos", "short", "--time", "31m"), 2, "would never start"),
        (("--partition", "planned", "--account", "p1"), 3, "sbatch refuses"),
    ],
)
def test_what_slurm_or_the_site_cannot_give_is_said_and_leaves_nothing(
    study: StandingStudy, words: tuple[str, ...], code: int, said: str
) -> None:
    done = study.bench("servers", "start", "null", "--site", "cluster", *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert list((study.root / "results").glob("standing/*")) == []
    assert in_queue(study) == []


def test_slurm_that_is_not_there_is_the_sites_lack(study: StandingStudy) -> None:
    without = StandingStudy(root=study.root, environment={"PATH": "/usr/bin:/bin"})
    done = without.bench("servers", "start", *at_cluster("null"))
    assert (done.returncode, "no `sbatch` here" in done.stderr) == (3, True)
