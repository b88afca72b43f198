"""docs/extending.md: its code, written into a new study, adds a driver, a pattern, a metric, a check, a service
and a site."""

import csv
import json
import re
from pathlib import Path

import pytest
from study_folder import StudyFolder

pytestmark = pytest.mark.e2e
PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
BLOCK = re.compile(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCENARIO = "config/scenarios/echo.yaml"
TRIALS = 2


@pytest.fixture
def extended(study: StudyFolder) -> StudyFolder:
    """A study with every file that the page shows."""
    for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        path = study.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return study


def metrics_of(study: StudyFolder) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((study.root / "results/echo").glob("*/metrics.json"))]


@pytest.mark.covers("E2", "E-CLI02")
def test_files_of_a_study_add_a_driver_a_pattern_a_metric_a_check_a_service_and_a_site(extended: StudyFolder) -> None:
    extended.bench("submit", "-c", SCENARIO, pages=True, code=0)

    found = metrics_of(extended)
    assert len(found) == TRIALS
    for metrics in found:
        own = metrics["own"]["tail_ratio"]
        assert own["value"] >= 1.0
        assert (own["unit"], own["better"]) == ("ratio", "lower")
        [objective] = metrics["slos"]
        assert (objective["metric"], objective["value"], objective["met"]) == ("tail_ratio", own["value"], True)
        [reason] = [reason for reason in metrics["reasons"] if reason["code"] == "uneven"]
        assert (reason["severity"], reason["text"].endswith("times its median")) == ("note", True)
        assert metrics["quality"] == {"right_ratio": 1.0}
        peak_rps = metrics["config"]["peak_rps"]
        assert metrics["counts"]["requests"] == pytest.approx(peak_rps / 2 * 2.0, abs=2), "half the peak, for 2 s"

    summary = json.loads((extended.root / "results/echo/summary.json").read_text())
    assert all(treatment["own"]["tail_ratio"]["median"] >= 1.0 for treatment in summary["treatments"])
    with (extended.root / "results/echo/summary.csv").open() as file:
        assert all(float(row["own_tail_ratio"]) >= 1.0 for row in csv.DictReader(file))
    page = (extended.root / "reports/echo/index.html").read_text()
    assert "tail ratio" in page
    assert "times its median" in page
    assert "p90 of the response time over its median (ratio)" in page


@pytest.mark.sweep
def test_a_changed_metric_is_derived_again_and_nothing_is_measured(extended: StudyFolder) -> None:
    scenario = extended.root / SCENARIO
    whole = scenario.read_text()
    scenario.write_text(
        re.sub(r"^metrics:.*\n|^checks:.*\n|^  slos:.*\n", "", whole, flags=re.MULTILINE).replace("[200, 400]", "200")
    )
    assert extended.bench("submit", "-c", SCENARIO).returncode == 0
    [before] = metrics_of(extended)
    assert before["own"] == {}

    scenario.write_text(whole.replace("[200, 400]", "200"))
    extended.bench("plan", "-c", SCENARIO, code=0)
    extended.bench("submit", "-c", SCENARIO, code=0)
    [first] = metrics_of(extended)
    assert first["own"]["tail_ratio"]["value"] >= 1.0

    module = extended.root / "my_metrics.py"
    module.write_text(module.read_text().replace("return p90.low / median.low if", "return 0 / 0 if"))
    extended.bench("submit", "-c", SCENARIO, code=0)
    [second] = metrics_of(extended)
    assert second["own"]["tail_ratio"]["value"] is None
    assert second["own"]["tail_ratio"]["error"] == "ZeroDivisionError: division by zero"

    module = extended.root / "my_checks.py"
    module.write_text(module.read_text().replace("ratio is None", "1 / 0"))
    extended.bench("collect", "-c", SCENARIO, code=0)
    [third] = metrics_of(extended)
    texts = {reason["code"]: reason["text"] for reason in third["reasons"]}
    assert texts["own_check_failed"] == "my_checks:uneven: ZeroDivisionError: division by zero"
    assert third["counts"] == before["counts"]

    same = ("trial_id", "trial", "timestamp", "counts")
    assert [[each[name] for name in same] for each in (first, second)] == [[before[name] for name in same]] * 2
