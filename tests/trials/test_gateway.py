"""Calibration of the gateway of a pool: which gateways are the same, what a slow one carries, what it costs."""

import json
from pathlib import Path
from typing import Any

import pytest
from samples import codes
from shipped import SERVICES
from study_folder import StudyFolder

from seamark.model.results.gateway_ceiling import GatewayCeiling
from seamark.planning.study import Study
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.gateway import gateway_file, known_gateway, replicas_of

PROXY = """
import socket, sys, threading, time

host, port, hop_ms, *urls = sys.argv[1:]
turn = threading.Lock()


def pump(source, sink, slow):
    while data := source.recv(65536):
        if slow:
            with turn:
                time.sleep(float(hop_ms) / 1000)
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)


server = socket.create_server((host, int(port)), backlog=512)
for number in range(1_000_000):
    client, _ = server.accept()
    there, _, at = urls[number % len(urls)].removeprefix("http://").partition(":")
    upstream = socket.create_connection((there, int(at)))
    for one, other in ((client, upstream), (upstream, client)):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=pump, args=(one, other, one is client), daemon=True).start()
"""
"""A gateway that takes replicas in turn, connection by connection, and requests one at a time."""
REFUSAL = """\
        if slow and b"POST" in data:
            return source.shutdown(socket.SHUT_RDWR)"""
RECIPE = """\
extends: inference_pool.yaml
name: slow_pool
environment: null
server:
  command: ["{{python}}", "{proxy}", "{{host}}", "{{ports[main]}}", "{{settings[wait_ms]}}", "{{urls[replica]}}"]
  ports: [main]
  inner_ports: []
  metrics_port: null
settings:
  wait_ms: {{type: float, role: deployment, default: 5.0, minimum: 0.0, unit: ms, help: Time of a request alone.}}
"""
WAIT_S = 0.005


def contexts(root: Path, **workload: Any) -> list[DeploymentContext]:
    """Return the deployments of a scenario of pools, in the order of their ids."""
    whole = {"service": "inference_pool", "duration_s": 1} | workload
    (root / "try.yaml").write_text(json.dumps({"scenario": "try", "repetitions": 1, "workload": whole}))
    study = Study.at(root, scenario="try.yaml")
    return [DeploymentContext.of(study, "try", deployment.id) for deployment in study.plan.deployments]


def test_a_server_that_names_the_copies_of_a_part_is_their_gateway() -> None:
    assert [part.name for part in replicas_of(SERVICES["inference_pool"].server)] == ["replica"]
    for name in ("known", "vllm", "milvus", "fileio"):
        assert replicas_of(SERVICES[name].server) == ()


@pytest.mark.covers("D8")
def test_gateways_are_the_same_by_their_own_settings_and_the_longest_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def files(**workload: Any) -> set[Path | None]:
        return {gateway_file(context) for context in contexts(tmp_path, **workload)}

    [plain] = files()
    assert plain is not None
    assert plain.parent == tmp_path / "results" / ".calibration"
    assert files(ttft_ms=[1, 20], gen_tokens=[4, 8], prompt_len=[16, 128]) == {plain}, "only the replicas differ"
    assert len(files(picker=["none", "prefix"]) - {plain}) == 1
    assert len(files(pool=[2, 3]) - {plain}) == 1
    assert plain not in files(prompt_len=[128, 256])
    assert files(service="known") == {None}


def test_what_was_measured_of_another_gateway_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    none, prefix = sorted(contexts(tmp_path, picker=["none", "prefix"]), key=lambda one: one.deployment.id)
    path = gateway_file(none)
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cores": 2, "replicas": 2, "requests_per_s": 900.0}))
    assert known_gateway(none) == GatewayCeiling(cores=2, replicas=2, requests_per_s=900.0)
    assert known_gateway(prefix) is None


def test_a_reply_costs_a_gateway_itself_and_its_chunks() -> None:
    known = GatewayCeiling(cores=2, replicas=2, requests_per_s=1000.0, chunks_per_s=1e4)
    assert known.for_replies(0) == pytest.approx(1000)
    assert known.for_replies(30) == pytest.approx(250)
    assert GatewayCeiling(cores=2, replicas=2, requests_per_s=1000.0).for_replies(30) == pytest.approx(1000)
    assert GatewayCeiling(cores=2, replicas=2, reason="its pool did not start").for_replies(1) is None


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        ({"requests_per_s": 900.0}, True),
        ({"requests_per_s": 900.0, "others_ratio": 0.19}, True),
        ({"requests_per_s": 900.0, "others_ratio": 0.2}, False),
        ({"reason": "its pool did not start"}, False),
    ],
)
def test_a_gateway_is_measured_again_where_others_used_the_machine_or_nothing_was_measured(
    found: dict[str, Any], holds: bool
) -> None:
    assert GatewayCeiling(cores=2, replicas=2, **found).holds == holds


@pytest.mark.covers("D8", "D9")
@pytest.mark.e2e
@pytest.mark.services
def test_a_slow_gateway_is_measured_once_and_bounds_the_trials_that_come_close_to_it(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path / "study")
    proxy = study.root / "proxy.py"
    proxy.write_text(PROXY)
    (study.root / "config/services/slow_pool.yaml").write_text(RECIPE.format(proxy=proxy))
    workload = {
        "component": "inference",
        "service": "slow_pool",
        "prompt_len": 16,
        "gen_tokens": 2,
        "concurrency": 4,
        "think_time_s": [0.0, 0.2],
        "duration_s": 2.0,
    }
    study.write(workload=workload, repetitions=1)
    study.measure(code=0)
    [path] = (study.root / "results/.calibration").glob("*.gateway-*.json")
    first = path.read_text()
    gateway = json.loads(first)
    assert gateway["replicas"] == 2
    assert gateway["hop_interval_ms"][0] <= gateway["hop_ms"] <= gateway["hop_interval_ms"][1]
    assert gateway["hop_ms"] >= WAIT_S * 1000, "a request waits at least that long in the gateway alone"
    assert 0.2 / WAIT_S < gateway["requests_per_s"] < 1 / WAIT_S < gateway["direct_per_s"]
    assert not list(study.results.glob("deployments/*/members/*")), "nothing stays of the calibrated pool"
    [record] = study.results.glob("deployments/*/deployment.json")
    assert json.loads(record.read_text())["gateway"] == gateway
    for trial in study.trials():
        assert json.loads((trial / "load.json").read_text())["gateway"] == gateway
        metrics = json.loads((trial / "metrics.json").read_text())
        assert ("gateway_bound" in codes(metrics)) == (metrics["config"]["think_time_s"] == 0), metrics["reasons"]
    study.write(workload=workload, repetitions=2)
    study.measure(code=0)
    assert len(study.trials()) == 4
    if GatewayCeiling(**gateway).holds:  # other tests may use the machine
        assert path.read_text() == first
    assert not study.processes()


@pytest.mark.sweep
@pytest.mark.covers("D9")
@pytest.mark.e2e
@pytest.mark.services
def test_a_gateway_that_refuses_requests_is_recorded_with_the_reason_and_its_trials_fail(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path / "study")
    proxy = study.root / "proxy.py"
    proxy.write_text(PROXY.replace("        if slow:", f"{REFUSAL}\n        if slow:"))
    (study.root / "config/services/slow_pool.yaml").write_text(RECIPE.format(proxy=proxy))
    workload = {"component": "inference", "service": "slow_pool", "prompt_len": 16, "gen_tokens": 2, "concurrency": 1}
    study.write(workload=workload | {"duration_s": 0.5}, repetitions=1)
    study.measure()
    [path] = (study.root / "results/.calibration").glob("*.gateway-*.json")
    gateway = json.loads(path.read_text())
    assert gateway["requests_per_s"] is None
    assert gateway["reason"]
    [trial] = study.trials()
    assert json.loads((trial / "metrics.json").read_text())["verdict"] == "INVALID"
    assert not study.processes()
