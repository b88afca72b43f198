"""Runs with parties: slowdowns as arithmetic says, a member that dies, a party that runs out, trials that stay."""

import json
import os
import shutil
import signal
import urllib.request
from pathlib import Path
from statistics import mean
from typing import Any

import psutil
import pytest
import yaml
from processes import until
from study_folder import StudyFolder

from seamark.platform.pinning import cores_in
from seamark.services.ephemeral_server import ephemeral_server

pytestmark = pytest.mark.e2e

RECIPE = """\
schema_version: 1
name: working
component: vectordb
summary: calls of a known CPU time or sleep
why: a test
version: "1"
licence: Apache-2.0
driver: working_driver:Working
workers: threads
server: null
container: null
settings:
  work_ms: {type: float, role: workload, default: 0, help: CPU time of a call.}
  sleep_ms: {type: float, role: workload, default: 0, help: Sleep of a call.}
"""
ONE_CORE = """\
from seamark.dispatch.placement import Place

def one_core(parties, machine):
    core = machine.cores[:1]
    return {party.name: Place(server_cores=() if party.in_client else core, load_cores=core) for party in parties}
"""


def write(study: StudyFolder, parties: dict[str, Any], *, repetitions: int = 1, **workload: Any) -> None:
    settings = {"name": "both", "duration_s": 1.5, "warmup_s": 0.25, "parties": parties, **workload}
    document = {"scenario": "try", "repetitions": repetitions, "workload": settings}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


def parties_of(study: StudyFolder, name: str = "metrics.json") -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return a document of every party by the set that was under load, its name and the repetition."""
    found = {}
    for trial in study.trials():
        level = json.loads((trial / "trial.json").read_text())["trials"][0]["settings"]["sets"]
        for path in trial.glob(f"parties/*/{name}"):
            found[level, path.parent.name, int(trial.name.rpartition("--r")[2])] = json.loads(path.read_text())
    return found


@pytest.mark.serial
@pytest.mark.sweep
def test_parties_on_one_core_slow_each_other_as_arithmetic_says_in_every_repetition(study: StudyFolder) -> None:
    """Two users with 4 ms of CPU time each on one core take twice as long together; sleeping ones do not."""
    shutil.copy(Path(__file__).parent / "working_driver.py", study.root)
    (study.root / "one_core.py").write_text(ONE_CORE)
    (study.root / "config/services/working.yaml").write_text(RECIPE)
    burn, rest = {"service": "working", "work_ms": 4}, {"service": "working", "sleep_ms": 10}
    sets = [["a"], ["b"], ["a", "b"], ["c"], ["d"], ["c", "d"]]
    parties = {"a": burn, "b": burn, "c": rest, "d": rest}
    write(study, parties, repetitions=3, sets=sets, placement="one_core:one_core")
    study.measure(code=0)
    found = parties_of(study)
    assert len(found) == 3 * 8
    for repetition in (1, 2, 3):
        for names, slowdown in (("ab", 2.0), ("cd", 1.0)):
            alone = [found[name, name, repetition]["latency_ms"]["mean"] for name in names]
            together = [found["+".join(names), name, repetition]["latency_ms"]["mean"] for name in names]
            assert mean(together) / mean(alone) == pytest.approx(slowdown, rel=0.3), (names, repetition)
    assert {record["client"]["cores"][0] for record in parties_of(study, "load.json").values()} == {
        min(os.sched_getaffinity(0))
    }


def test_each_party_has_servers_and_figures_of_its_own_and_nothing_is_measured_twice(study: StudyFolder) -> None:
    parties = {
        "search": {"service": "known", "pattern": "poisson", "rate_rps": 40, "ttft_ms": 1, "gen_tokens": 2},
        "ingest": {"service": "null", "concurrency": 1},
    }
    write(study, parties, duration_s=0.6)
    study.submit(code=0)
    loads = parties_of(study, "load.json")
    assert sorted(loads) == [
        ("ingest", "ingest", 1),
        ("search", "search", 1),
        ("search+ingest", "ingest", 1),
        ("search+ingest", "search", 1),
    ]
    both = [loads["search+ingest", name, 1] for name in parties]
    assert both[0]["epoch_unix_ns"] == both[1]["epoch_unix_ns"]
    assert both[0]["window_s"] == both[1]["window_s"] == pytest.approx([0.25, 0.85])
    assert [load["beside"] for load in both] == [["ingest"], ["search"]]
    assert all(load["others_before"] is not None for load in loads.values()), "the window has one reading"
    [deployment] = study.results.glob("deployments/*/")
    members = {
        path.parent.name: json.loads(path.read_text()) for path in deployment.glob("members/*/deployment.json")
    }
    assert {name: record["service"] for name, record in members.items()} == {"search": "known", "ingest": "null"}
    assert {record["ended"]["why"] for record in members.values()} == {"teardown"}
    rows = (study.results / "summary.csv").read_text().splitlines()
    assert len(rows) == 1 + 4
    page = (study.root / "reports/try/report.md").read_text()
    assert "in one start" in page or "within each of" not in page
    before = study.measurements()
    assert set(before.values()) == {1}
    assert study.measure().returncode == 0
    assert study.measurements() == before
    parties["ingest"]["concurrency"] = 2
    write(study, parties, duration_s=0.6)
    assert study.measure().returncode == 0
    again = {name: count for name, count in study.measurements().items() if name not in before}
    assert len(again) == 2, "the one that is alone is the same trial"
    assert all(study.measurements()[name] == 1 for name in before)
    assert study.processes() == []


@pytest.mark.sweep
def test_a_member_that_dies_fails_its_party_and_no_other_and_the_next_trial_has_a_new_one(study: StudyFolder) -> None:
    parties = {"one": {"service": "null", "concurrency": 1}, "two": {"service": "known", "ttft_ms": 2}}
    write(study, parties, duration_s=6, sets=[["one", "two"]])
    run = study.start()
    client = until(lambda: next(iter(study.results.glob("*--r1/.parts/*/two/client.csv")), None))
    until(lambda: len(client.read_text().splitlines()) > 10, within_s=20)  # the load has lasted for a second
    endpoint = json.loads(next(study.results.glob("deployments/*/members/two/endpoint.json")).read_text())
    psutil.Process(endpoint["server_pid"]).send_signal(signal.SIGKILL)
    assert run.wait(120) == 1
    loads, metrics = parties_of(study, "load.json"), parties_of(study)
    failed, good = loads["one+two", "two", 1], loads["one+two", "one", 1]
    assert (failed["status"], failed["category"]) == ("failed", "server_died")
    assert good["status"] == "ok"
    assert good["ended_early"] == "two"
    start_s, end_s = good["window_s"]
    assert start_s == 0.25 < end_s < 6.25
    figures = metrics["one+two", "one", 1]
    assert figures["status"] == "ok"
    assert figures["requests_per_s"] > 10
    assert "party_ended_early" in [reason["code"] for reason in figures["reasons"]]
    [whole] = study.trials()
    record = json.loads((whole / "load.json").read_text())
    assert (record["status"], record["category"]) == ("failed", "server_died")
    assert record["reason"].startswith("two: ")
    again = study.bench("retry", "-c", "config/scenarios/try.yaml", f"{whole.name[:-4]}@two--r1")
    assert again.returncode == 0, "the whole trial is measured again for its party"
    assert (whole / "attempts/1/parties/two/load.json").exists()
    write(study, parties, duration_s=0.5, sets=[["one", "two"]])
    assert study.submit().returncode == 0, "another trial, with members that live"
    assert study.processes() == []


@pytest.mark.sweep
def test_a_party_that_is_moved_and_one_that_never_answers_make_the_cells_of_their_set_doubtful(
    study: StudyFolder,
) -> None:
    parties = {
        "one": {"service": "null", "concurrency": 1},
        "two": {"service": "known", "ttft_ms": 400, "timeout_s": 0.2},
    }
    write(study, parties, duration_s=3, sets=[["one", "two"]], placement="split")
    run = study.start()
    until(lambda: next(iter(study.results.glob("*--r1/.parts/*/two/client.csv")), None))
    endpoint = json.loads(next(study.results.glob("deployments/*/members/one/endpoint.json")).read_text())
    [core] = endpoint["pinning"]["server"]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(endpoint["server_pid"], cores)
    run.wait(120)
    loads = parties_of(study, "load.json")
    place = loads["one+two", "one", 1]["place"]
    assert (place["server_cores"], place["threads"], place["niceness"], place["all_threads"]) == ([core], 1, 0, 2)
    assert place["looks"] >= 2
    [departure] = place["departures"]
    assert (departure["role"], departure["what"], departure["pid"]) == ("server", "cores", endpoint["server_pid"])
    assert (cores_in(departure["asked"]), cores_in(departure["seen"])) == ((core,), tuple(cores))
    assert loads["one+two", "two", 1]["place"]["departures"] == []
    codes = [reason["code"] for reason in parties_of(study)["one+two", "one", 1]["reasons"]]
    assert {"party_silent", "placement_not_kept"} <= set(codes)
    assert loads["one+two", "two", 1]["moved"] == ["one"]


@pytest.mark.sweep
def test_a_party_that_runs_out_ends_the_window_of_all_unless_it_is_kept_busy(study: StudyFolder) -> None:
    parties = {
        "short": {"service": "known", "ttft_ms": 5, "gen_tokens": 1, "requests": 150},
        "long": {"service": "null", "concurrency": 1},
    }
    write(study, parties, duration_s=4, sets=[["short", "long"]], keep_busy=[False, True])
    study.measure(code=0)
    loads = {}
    for trial in study.trials():
        busy = json.loads((trial / "trial.json").read_text())["trials"][0]["settings"]["keep_busy"]
        loads[busy] = json.loads((trial / "parties/long/load.json").read_text())
    assert loads[False]["ended_early"] == "short"
    assert 0.25 < loads[False]["window_s"][1] < 4
    assert "ended_early" not in loads[True]
    assert loads[True]["window_s"] == [0.25, 4.25]


@pytest.mark.sweep
def test_a_run_with_parties_that_is_killed_leaves_nothing_and_goes_on(study: StudyFolder) -> None:
    write(study, {"one": {"service": "null"}, "two": {"service": "known", "ttft_ms": 1}}, duration_s=1, repetitions=2)
    run = study.start()
    until(lambda: any(study.measurements().values()))
    [snakemake] = [each for each in psutil.Process(run.pid).children() if "snakemake" in " ".join(each.cmdline())]
    for process in (snakemake, run):
        process.kill()
    run.wait()
    done = {name for name, count in study.measurements().items() if count}
    study.measure(code=0)
    counts = study.measurements()
    assert len(counts) == 6
    assert {counts[name] for name in done} == {1}
    until(lambda: not study.processes())


@pytest.mark.sweep
def test_a_placement_that_the_machine_cannot_have_is_a_recorded_failure_with_the_reason(study: StudyFolder) -> None:
    (study.root / "wrong.py").write_text("def nobody(parties, machine):\n    return {}\n")
    write(
        study,
        {"one": {"service": "null"}, "two": {"service": "null"}},
        placement="wrong:nobody",
        sets=[["one", "two"]],
    )
    done = study.measure()
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (1, False)
    loads = parties_of(study, "load.json")
    assert {load["category"] for load in loads.values()} == {"setup_failed"}
    assert all("one" in load["reason"] for load in loads.values())
    assert study.processes() == []


@pytest.mark.parametrize("runtime", ["external", pytest.param("venv", marks=pytest.mark.sweep)])
def test_parties_load_servers_that_run_already_beside_those_that_seamark_starts(
    study: StudyFolder, runtime: str
) -> None:
    site = {"name": "mine", "summary": "a site of mine", "runtime": runtime, "telemetry_interval_s": 0.1}
    (study.root / "config/sites/mine.yaml").write_text(yaml.safe_dump(site))
    with (
        ephemeral_server("seamark.testservers.reference", "--ttft-ms", "5", "--host", "127.0.0.1") as first,
        ephemeral_server("seamark.testservers.reference", "--ttft-ms", "1", "--host", "127.0.0.1") as second,
    ):
        ports = {"search": first, "models": second}
        named = {name: {"external": {"address": f"127.0.0.1:{port}"}} for name, port in ports.items()}
        parties: dict[str, Any] = {
            "search": {"service": "known", "gen_tokens": 2, "concurrency": 2, **named["search"]},
            "models": {"service": "http", "path": "/v1/models", "concurrency": 1, **named["models"]},
        }
        parties |= {"own": {"service": "null", "concurrency": 1}} if runtime == "venv" else {}
        write(study, parties, duration_s=1, sets="all")
        study.measure("--site", "mine", code=0)
        for port in ports.values():
            assert urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).status == 200
    loads = {name: load for (_, name, _), load in parties_of(study, "load.json").items()}
    assert loads.keys() == parties.keys()
    for name, load in loads.items():
        member = json.loads(next(study.results.glob(f"deployments/*/members/{name}/deployment.json")).read_text())
        where = load["server_identity"]
        assert (load["status"], member["status"]) == ("ok", "ok")
        if name in ports:
            assert (member["server_pid"], member["ports"]) == (None, {"main": ports[name]})
            assert (where["runtime"], where["address"]) == ("external", f"127.0.0.1:{ports[name]}")
        else:
            assert member["server_pid"] is not None
            assert where["runtime"] == runtime
    assert all("server.cpu_ratio" in metrics["telemetry"] for metrics in parties_of(study).values())
    assert study.processes() == []
