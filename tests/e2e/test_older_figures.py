"""Figures that an older version made are made again from their samples; where these are gone, they are marked."""

import json

import pytest

from seamark.analysis.metrics.table import VERSION

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

RULE = "mser5+trend over 0.01 s windows"


def aged(study):
    """Give all trials the figures of an older version, and prune the samples of the first; return their folders."""
    trials = study.trials()
    for trial in trials:
        document = json.loads((trial / "metrics.json").read_text())
        window = document["window"] | {"start_s": 0.1, "rule": RULE, "steady": True, "reason": None}
        document.pop("steady_state", None)
        document |= {"metrics_version": 1, "window": window, "verdict": "VALID", "reasons": []}
        (trial / "metrics.json").write_text(json.dumps(document))
    record = trials[0] / "samples.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"pruned_at": "2026-01-01T00:00:00+00:00"}))
    (trials[0] / "samples.parquet").unlink(missing_ok=True)
    summary = study.results / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"metrics_version": 1}))
    return trials


@pytest.mark.sweep
@pytest.mark.parametrize(
    "words",
    [("report",), ("submit",), ("collect",)],
    ids=" ".join,
)
def test_figures_of_an_older_version_are_made_again_by_the_rule_of_this_one(finished, words):
    trials, measured = aged(finished), finished.measurements()
    finished.bench(*words, "-c", "config/scenarios/try.yaml", pages=True, code=0)
    found = [json.loads((trial / "metrics.json").read_text()) for trial in trials]
    assert [document["metrics_version"] for document in found] == [1, VERSION, VERSION, VERSION]
    assert [document["window"]["start_s"] for document in found] == [0.1, 0.0, 0.0, 0.0]
    assert found[0]["window"]["rule"] == RULE
    summary = finished.json("summary.json")
    assert summary["metrics_version"] == VERSION
    reasons = [reason for treatment in summary["treatments"] for reason in treatment["reasons"]]
    (older,) = [reason for reason in reasons if reason["code"] == "older_rule"]
    assert older["text"].startswith(
        f"figures by the rule '{RULE}' of version 1 of the metrics: what was due before 0.1 s"
    )
    assert "older_rule" in (finished.root / "reports" / "try" / "index.html").read_text()
    assert finished.measurements() == measured


@pytest.mark.sweep
def test_a_report_after_an_edit_of_compare_shows_the_new_comparison(finished):
    assert finished.json("summary.json")["comparisons"]["margin"] == 0.05
    measured = finished.measurements()
    finished.write(compare={"margin": 0.2, "metrics": ["requests_per_s"]})
    for again in (True, False):
        run = finished.bench("report", "try", code=0)
        assert ("compared again" in run.stdout) is again
        assert finished.json("summary.json")["comparisons"]["margin"] == 0.2
    assert finished.measurements() == measured
