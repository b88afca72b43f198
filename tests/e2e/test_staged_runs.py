"""Runs with events: stages in metrics and report, a trace for Perfetto, and clear words where there are none."""

import json
import shutil
from pathlib import Path

import pytest
from study_folder import StudyFolder

pytestmark = pytest.mark.e2e

RECIPE = """\
schema_version: 1
name: staged
component: vectordb
summary: two stages with a thread each
why: a test
version: "1"
licence: Apache-2.0
driver: staged_driver:Staged
workers: threads
server: null
container: null
settings:
  encode_ms: {type: float, role: workload, default: 4, help: Time of the first stage.}
  search_ms: {type: float, role: workload, default: 1, help: Time of the second stage.}
"""


def a_study(study: StudyFolder, **workload: object) -> None:
    shutil.copy(Path(__file__).parents[1] / "load" / "staged_driver.py", study.root)
    (study.root / "config/services/staged.yaml").write_text(RECIPE)
    settings = {"service": "staged", "concurrency": 4, "duration_s": 1.5, "warmup_s": 0.25, **workload}
    document = {"scenario": "try", "repetitions": 1, "workload": settings}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


@pytest.mark.sweep
def test_the_stages_of_requests_are_in_metrics_report_and_trace(study: StudyFolder) -> None:
    a_study(study, keep_events=True)
    study.submit(code=0)
    [trial] = study.trials()
    stages = study.json(f"{trial.name}/metrics.json")["stages"]
    encode, search = (stages["by_stage"][name] for name in ("encode", "search"))
    assert encode["busy_ratio"] > 1.5 * search["busy_ratio"], "four users wait for the slower stage"
    assert encode["wait_ms"]["p50"] > encode["run_ms"]["p50"] >= 4
    assert encode["run_ms"]["p50"] > search["run_ms"]["p50"] >= 1
    assert encode["critical_ratio"] + search["critical_ratio"] + stages["outside_ratio"] == pytest.approx(1)
    assert study.json(f"{trial.name}/load.json")["events"] == stages["events"] > 4 * stages["requests"]
    page = (study.root / "reports/try/report.md").read_text()
    assert "| encode |" in page
    assert "staged-stages.png" in page
    assert (study.root / "reports/try/figures/staged-stages.png").stat().st_size > 5_000
    study.ask("export", "perfetto", "-c", "config/scenarios/try.yaml", trial.name, "-o", "t.json", code=0)
    for target in ("/dev/null", "-", "", "config"):
        refused = study.ask("export", "perfetto", "-c", "config/scenarios/try.yaml", trial.name, "-o", target)
        assert (refused.returncode, "Traceback" in refused.stderr) == (2, False), refused.stderr
    assert Path("/dev/null").is_char_device()
    names = {entry["name"] for entry in json.loads((study.root / "t.json").read_text())["traceEvents"]}
    assert names == {"process_name", "thread_name", "encode", "encode: wait", "search", "search: wait"}


@pytest.mark.sweep
def test_without_events_there_are_no_stages_and_the_export_says_how_to_get_them(study: StudyFolder) -> None:
    a_study(study)
    assert study.measure().returncode == 0
    [trial] = study.trials()
    assert "stages" not in study.json(f"{trial.name}/metrics.json")
    assert not (trial / "events.parquet").exists()
    scenario = ("-c", "config/scenarios/try.yaml")
    for arguments, message in {
        (trial.name,): "it has no events. Set `keep_events: true` in the workload",
        (trial.name[:-1] + "7",): f"Did you mean '{trial.name}'?",
        (trial.name, "--from", "2", "--to", "1"): "--to 1: must be after --from (2).",
        (trial.name, "--to", "-1"): "Invalid value for '--to'",
        (trial.name, "--from", "nan"): "nan is no finite number",
    }.items():
        refused = study.ask("export", "perfetto", *scenario, *arguments)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
        assert "Traceback" not in refused.stderr


def test_events_of_a_driver_without_stages_are_a_mistake_of_the_plan(study: StudyFolder) -> None:
    a_study(study, service="null", keep_events=True)
    refused = study.measure(code=2)
    assert "has no stages, and so no events. Remove keep_events from the scenario." in refused.stderr
