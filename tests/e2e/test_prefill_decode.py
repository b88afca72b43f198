"""A prefill and a decode pool behind vLLM's router: each prompt is computed by the one and decoded by the other."""

import json
from pathlib import Path

import pytest
from study_folder import StudyFolder

WORKLOAD = {
    "component": "inference",
    "service": "prefill_decode",
    "prefill": 1,
    "decode": 2,
    "ttft_ms": 20,
    "gap_ms": 4,
    "transfer_ms": 0.02,
    "prompt_len": 500,
    "gen_tokens": 4,
    "concurrency": 4,
    "duration_s": 4.0,
    "warmup_s": 1.5,
}


@pytest.mark.sweep
@pytest.mark.covers("D8")
@pytest.mark.e2e
@pytest.mark.services
def test_each_prompt_is_computed_by_the_one_pool_and_decoded_by_the_other(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path / "study")
    study.write(workload=WORKLOAD, repetitions=1)
    study.submit(code=0)
    [trial] = study.trials()
    metrics = json.loads((trial / "metrics.json").read_text())
    assert (metrics["status"], metrics["failure_rate"]) == ("ok", 0)
    replicas = metrics["replicas"]["by_replica"]
    assert [*replicas] == ["decode-1", "decode-2", "prefill-1"]
    decoded = replicas["decode-1"]["requests"] + replicas["decode-2"]["requests"]
    assert replicas["prefill-1"]["requests"] == pytest.approx(decoded, rel=0.1)
    assert replicas["prefill-1"]["share"] == 1
    assert replicas["decode-1"]["share"] == pytest.approx(0.5, abs=0.1)
    # prefill, the way of 500 tokens, and a step of decoding; the router's own time is added
    assert metrics["ttft_ms"]["p50"] >= 20 + 10 + 4
    page = (study.root / "reports/try/report.md").read_text()
    assert "prefill 1" in page
    assert "decode 2" in page
    gateways = [json.loads(path.read_text()) for path in (study.root / "results/.calibration").glob("*.gateway-*")]
    assert [gateway["replicas"] for gateway in gateways] == [3]
    assert gateways[0]["requests_per_s"] is not None, gateways
    assert not study.processes()
