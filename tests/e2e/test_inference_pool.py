"""Pools of replicas behind a router: what a picker does to the caches, who served what, and a replica that dies."""

import json
from pathlib import Path
from typing import Any

import pytest
from study_folder import StudyFolder

POOL = {
    "component": "inference",
    "service": "inference_pool",
    "pool": 2,
    "prefill_ms": 0.005,
    "cache_tokens": 8192,
    "prompt_len": 600,
    "prefix_len": 512,
    "prefix_groups": 24,
    "gen_tokens": 2,
    "concurrency": 2,
    "duration_s": 4.0,
    "warmup_s": 1.5,
}


@pytest.mark.covers("D1", "D8", "D9")
@pytest.mark.e2e
@pytest.mark.services
def test_a_picker_by_prefix_finds_more_in_the_caches_and_every_replica_is_counted(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path / "study")
    study.write(workload=POOL | {"picker": ["none", "prefix"]}, repetitions=1)
    study.submit(code=0)
    metrics: dict[str, Any] = {}
    for trial in study.trials():
        document = json.loads((trial / "metrics.json").read_text())
        metrics[document["config"]["picker"]] = document
    assert {name: document["status"] for name, document in metrics.items()} == dict.fromkeys(("none", "prefix"), "ok")
    for document in metrics.values():
        found = document["replicas"]["by_replica"]
        assert [*found] == ["replica-1", "replica-2"]
        rate = sum(replica["requests"] for replica in found.values()) / document["replicas"]["counted_s"]
        assert rate == pytest.approx(document["requests_per_s"], rel=0.25)
    # All groups fit into both caches together, and two thirds of them into each. The router divides them by chance:
    # 12 and 12 have a ratio of 0.85, 16 and 8 of 0.73, and all of them in each, without a picker, of 0.47.
    assert metrics["prefix"]["replicas"]["prefix_hit_ratio"] > 0.6 > metrics["none"]["replicas"]["prefix_hit_ratio"]
    assert metrics["none"]["replicas"]["imbalance"] < 1.1
    page = (study.root / "reports/try/report.md").read_text()
    assert "most over mean" in page
    assert "one replica alone" in page
    files = (study.root / "results/.calibration").glob("*.gateway-*.json")
    gateways = {gateway["asked"]["picker"]: gateway for gateway in (json.loads(path.read_text()) for path in files)}
    assert {picker: gateway["requests_per_s"] is None for picker, gateway in gateways.items()} == dict.fromkeys(
        ("none", "prefix"), False
    ), gateways
    for trial in study.trials():
        load = json.loads((trial / "load.json").read_text())
        assert load["gateway"] == gateways[load["gateway"]["asked"]["picker"]]
    records = [json.loads(path.read_text()) for path in study.results.glob("deployments/*/deployment.json")]
    assert [len(record["parts"]) for record in records] == [2, 2]
    assert not study.processes()


@pytest.mark.sweep
@pytest.mark.covers("D9")
@pytest.mark.e2e
@pytest.mark.services
def test_a_pool_of_which_one_replica_never_answers_is_not_measured(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path / "study")
    path = study.root / "config/services/inference_pool.yaml"
    text = path.read_text()
    health = "health: {probe: http, port: replica, path: /health, timeout_s: 20}"
    assert health in text
    text = text.replace(health, "health: {probe: http, port: replica, path: /health, timeout_s: 4}")
    # the second replica listens to nobody
    silent = ["sh", "-c", """'[ "$1" = 2 ] && exec sleep 60; shift; exec "$@"'""", "replica", '"{number}"']
    own = "      command:\n"
    at = text.index(own + '        - "{python}"') + len(own)
    path.write_text(text[:at] + "".join(f"        - {word}\n" for word in silent) + text[at:])
    study.write(workload=POOL, repetitions=1)
    study.measure()
    [trial] = study.trials()
    load = json.loads((trial / "load.json").read_text())
    assert (load["status"], load["category"]) == ("failed", "server_never_healthy")
    assert not study.processes()
