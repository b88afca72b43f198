"""Persistent servers on this machine: started, listed, checked, measured, ended."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from processes import eventually
from standing_study import StandingStudy, kill, standing_study

from seamark.dispatch.job import resources_of
from seamark.dispatch.slurm.commands import sbatch_options
from seamark.errors import UserError
from seamark.services.persistent.instance import ServerRequest
from seamark.services.persistent.request import new_instance

pytestmark = pytest.mark.services


@pytest.fixture
def study(tmp_path: Path) -> Iterator[StandingStudy]:
    with standing_study(tmp_path / "study") as study:
        yield study


@pytest.mark.covers("E-SVR01", "E-SVR03", "E-SVR04", "E-MON04")
def test_a_persistent_server_is_started_listed_checked_and_stopped(study: StandingStudy) -> None:
    started = study.started("null", "--name", "one")
    url = f"http://{started['host']}:{started['ports']['main']}/"
    assert urllib.request.urlopen(url, timeout=5).status == 200
    row = study.listed()["one"]
    assert (row["service"], row["state"], row["job"]) == ("null", "running", None)
    assert row["endpoint"] == url.removeprefix("http://").rstrip("/")
    checked = study.bench("servers", "check", "one", code=0)
    assert row["endpoint"] in checked.stdout
    study.bench("servers", "stop", "one", code=0)
    assert study.listed() == {}
    assert study.bench("servers", "check", "one").returncode == 1
    assert study.processes() == []
    assert study.listed("--all")["one"]["state"] == "ended"
    assert study.json("one", "deployment.json")["ended"]["why"] == "stop"
    memory = study.json("one", "summary.json")["telemetry"]["host.ram_used_bytes"]
    assert memory["min"] <= memory["p50"] <= memory["p95"] <= memory["max"]


@pytest.mark.covers("E-SVR01", "E-FR04")
def test_the_gpus_of_a_persistent_server_are_spread_over_all_its_nodes(study: StandingStudy) -> None:
    study.site("wide", profile="slurm", partitions={"gpu": {"nodes": 2, "cpus": 8, "mem_gb": 8, "gpus": 4}})
    worker = {"name": "worker", "nodes": "others", "command": ["sleep", "9"]}
    recipe = {"extends": "null.yaml", "name": "wide", "server": {"parts": [worker]}}
    (study.root / "config" / "services" / "wide.yaml").write_text(yaml.safe_dump(recipe))
    asked = ServerRequest(
        service="wide", site="wide", settings={}, time_s=60, partition="gpu", account="p1", nodes=2, gpus=8
    )
    _, wanted = new_instance(study.root, study.root / "results", asked, None)
    assert (
        sbatch_options(resources_of(wanted.study.plan, wanted.deployment, wanted.service), wanted.study.site)["gres"]
        == "gpu:4"
    )
    with pytest.raises(UserError, match="5 a node, but a node of the partition 'gpu' has 4 GPUs"):
        new_instance(study.root, study.root / "results", replace(asked, gpus=9), None)


@pytest.fixture(scope="module")
def empty_study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandingStudy]:
    """A study for calls that leave nothing."""
    with standing_study(tmp_path_factory.mktemp("empty") / "study") as study:
        yield study


@pytest.mark.covers("E-SVR04")
def test_a_server_that_is_stopped_in_its_tracks_is_found_unwell(study: StandingStudy) -> None:
    study.started("null", "--name", "one")
    pid = study.json("one", "endpoint.json")["server_pid"]
    server = next(process for process in study.processes() if process.pid == pid)
    server.suspend()
    checked = study.bench("servers", "check", "one", "--timeout", "0.5")
    server.resume()
    assert checked.returncode == 1
    assert "does not answer" in checked.stdout
    assert study.bench("servers", "check", "one").returncode == 0


@pytest.mark.covers("E-SVR01", "E-SVR06")
def test_a_persistent_server_ends_when_its_time_is_over_or_its_supervisor_is_killed(study: StandingStudy) -> None:
    study.started("null", "--name", "short", "--time", "2s")
    study.started("null", "--name", "killed")
    supervisor = study.json("killed", "endpoint.json")["keeper_pid"]
    kill(supervisor)
    assert eventually(lambda: study.processes() == [], 15)
    assert {name: row["state"] for name, row in study.listed("--all").items()} == {
        "short": "ended",
        "killed": "ended",
    }
    assert study.json("short", ".keeper/end.json")["why"] == "lease"


@pytest.mark.covers("E-SVR01")
def test_a_persistent_server_that_cannot_come_up_says_why_and_leaves_nothing(study: StandingStudy) -> None:
    recipe = study.root / "config" / "services" / "null.yaml"
    recipe.write_text(recipe.read_text().replace("seamark.testservers.null", "seamark.services.nil"))
    done = study.bench("servers", "start", "null", "--name", "one", code=1)
    assert done.stderr.startswith("one: server_never_healthy: ")
    assert "No module named 'seamark.services.nil'" in done.stderr
    assert study.processes() == []
    assert study.listed("--all")["one"]["state"] == "failed"


@pytest.mark.covers("E-SVR01", "E-SVR05")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["start", "postgress"], 2, "Did you mean 'postgres'?"),
        (["start", "fileio"], 2, "runs inside the load"),
        (["start", "postgres", "--set", "scal=4"], 2, "Did you mean 'scale'?"),
        (["start", "postgres", "--set", "scale=many"], 2, "expected a whole number"),
        (["start", "postgres", "--set", "scale=[1"], 2, "--set scale=[1: while parsing a flow sequence"),
        (["start", "vllm", "--set", "prompt_len=4"], 2, "a setting of a load"),
        (["start", "null", "--time", "soon"], 2, "Give one as"),
        (["start", "null", "--site", "nowhere"], 2, "no such file in config/sites"),
        (["check", "one"], 2, "no server of that id"),
        (["stop", "one"], 2, "no persistent server of that id"),
        (["stop"], 2, "--all"),
    ],
)
def test_a_mistake_with_a_persistent_server_is_said_and_leaves_nothing(
    empty_study: StandingStudy, words: list[str], code: int, said: str
) -> None:
    done = empty_study.bench("servers", *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert list((empty_study.root / "results").glob("standing/*")) == []


@pytest.mark.covers("E-CLI01", "E-INT02")
def test_a_scenario_and_a_quick_load_measure_a_persistent_server_and_leave_it_running(study: StandingStudy) -> None:
    started = study.started("null", "--name", "one")
    study.site("elsewhere", runtime="external", address="standing/one")
    study.scenario("try")
    study.bench("submit", "-c", "config/scenarios/try.yaml", "--site", "elsewhere", code=0)
    [record] = (study.root / "results" / "try" / "deployments").glob("*/deployment.json")
    deployment = json.loads(record.read_text())
    assert (deployment["runtime"], deployment["ports"]) == ("external", started["ports"])
    loaded = study.bench("load", "standing/one", "--duration", "0.5", "--json")
    assert json.loads(loaded.stdout)["counts"]["ok"] > 0, loaded.stderr
    assert study.bench("servers", "check", "one").returncode == 0


def test_an_address_of_a_persistent_server_that_does_not_run_is_said_so(empty_study: StandingStudy) -> None:
    done = empty_study.bench("load", "standing/none")
    assert (done.returncode, "no persistent server of that id runs" in done.stderr) == (3, True)
