"""Wrong scenarios of evaluations: each mistake is a line with place and remedy, before anything runs."""

import shutil
from pathlib import Path

import pytest
from wrong_files import change, wrong_files

from seamark.errors import UserError
from seamark.planning.study import SHIPPED, Study
from seamark.planning.study_paths import missing_here
from seamark_evaluate.drivers import questions

SCENARIO = """\
scenario: quality
workload:
  component: evaluation
  service: attention
  model: known_reader
  task: needles
  method: [dense, streaming]
  max_requests: 10
  length_words: 256
compare: {baseline: {method: dense}, metrics: [score], quality_margin: 0.05}
"""
OWN = """\
name: own
summary: Rows of a folder that is not there.
licence: none
references: []
source: {folder: FOLDER}
columns: {question: question, references: answer}
template: "{question}"
max_new_tokens: 4
scorer: qa_f1
"""
WRONG = wrong_files(Path(__file__).with_name("wrong_evaluations.yaml"))


def read(text_of: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Do what `bench submit` does with a scenario before it runs anything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(questions, "CACHE", tmp_path / "questions")
    shutil.copytree(SHIPPED / "config/methods", "config/methods")
    Path("scenario.yaml").write_text(text_of, encoding="utf-8")


def check(lanes: str = "") -> None:
    study = Study.at(Path.cwd(), scenario="scenario.yaml", lanes=lanes)
    assert study.plan.trials
    study.require_drivers()
    if missing := missing_here(study):
        raise UserError(*missing)


def test_the_scenario_is_right_before_it_is_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read(SCENARIO, monkeypatch, tmp_path)
    check()


@pytest.mark.covers("B14")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_evaluation_is_a_line_that_says_where_and_what(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = WRONG[name]
    read(SCENARIO, monkeypatch, tmp_path)
    Path("config/benchmarks").mkdir()  # one file of the study's own hides none that ships
    Path("config/benchmarks/own.yaml").write_text(OWN.replace("FOLDER", str(tmp_path / "nothing")))
    change("scenario.yaml", entry["old"], entry["new"])
    with pytest.raises(UserError) as caught:
        check()
    assert caught.value.exit_code == 2
    line, *more = caught.value.lines
    assert not more or entry.get("several"), more
    assert "\n" not in line
    if "line" in entry:
        assert f"scenario.yaml:{entry['line']}:" in line, line
    assert entry["says"] in line, line


def test_metrics_are_named_by_their_paths_in_metrics_json_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read(SCENARIO, monkeypatch, tmp_path)
    more = "costs: [quality.kv_bytes_read, ttft_ms.p50], metrics: [quality.score, throughput.value],"
    change("scenario.yaml", "metrics: [score],", more)
    change("scenario.yaml", "  max_requests: 10\n", '  slos: ["quality.kv_bytes_read <= 100"]\n')
    study = Study.at(Path.cwd(), scenario="scenario.yaml")
    assert study.scenario.compare is not None
    assert study.scenario.compare.costs == ("kv_bytes_read", "ttft_ms.p50")
    assert study.scenario.compare.metrics == ("score", "throughput")
    assert [slo.metric for slo in study.plan.trials[0].slos] == ["kv_bytes_read"]
