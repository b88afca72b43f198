"""From `bench submit` of a judged study to verdicts on its answers; the judge plants what each method has right."""

import csv
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planted_answers import plant
from study_folder import StudyFolder

pytestmark = pytest.mark.e2e


@pytest.mark.sweep
@pytest.mark.covers("E-FR29")
def test_answers_of_one_run_are_compared_item_by_item_by_command_and_report(study: StudyFolder) -> None:
    plant(study, compare={"quality_margin": 0.01, "costs": ["ttft_ms.p50"]})
    study.submit(code=0)
    shown = study.ask("compare", "try", "--fail-on", "worse", code=1)
    lines = shown.stdout.splitlines()
    assert (
        "method same against dense: score 0 (-0.0095 to +0.0095), 400 items, 0 differ, p = 1.00 (Holm), equivalent"
        in lines
    )
    [lossy] = [line for line in lines if line.startswith("method lossy against dense: score")]
    assert lossy.startswith(
        "method lossy against dense: score -0.100 (-0.133 to -0.0743), 400 items, 40 differ (0 higher, 40 lower)"
    )
    assert lossy.endswith("(Holm), worse")
    document = json.loads(study.ask("compare", "try", "--format", "json").stdout)
    summed = study.json("summary.json")["comparisons"]
    assert summed["comparisons"] == document["comparisons"]
    page = (study.root / "reports/try/report.md").read_text()
    assert "not worse than dense in score" in page

    [front] = document["fronts"]
    assert (front["cost"], front["items"], front["blocks"], front["margin"]) == ("ttft_ms.p50", 400, 1, 0.01)
    assert [(each["level"], each["quality"], each["not_worse"]) for each in front["points"]] == [
        ("dense", 0.8, None),
        ("same", 0.8, True),
        ("lossy", 0.7, False),
    ]
    assert "## Quality against cost" in page
    drawn = (study.root / "reports/try/figures/fronts.svg").read_text()
    assert re.search(r"\d\s+dense<", drawn), "points are drawn and named"

    assert "20 of 40 items with another score" in page
    assert "by facts of the items" in page
    assert study.ask("compare", "try", "--changed", "changed.csv").returncode == 0
    changed = list(csv.DictReader((study.root / "changed.csv").open()))
    assert {int(row["id"].removeprefix("q")) % 8 for row in changed} == {1}
    assert len(changed) == 40
    assert {(row["base_score"], row["new_score"], row["new_answer"]) for row in changed} == {("1.0", "0.0", "no")}
    assert study.ask("compare", "try", "--changed", "changed.txt").returncode == 2

    trial = next(path for path in study.trials() if "lossy" in path.name)
    table = pq.read_table(trial / "answers.parquet")
    failed = pa.array(["http_5xx", *[None] * (table.num_rows - 1)], pa.string())
    place = table.column_names.index("failure")
    pq.write_table(table.set_column(place, "failure", failed), trial / "answers.parquet")
    again = study.ask("compare", "try")
    assert "399 items" in again.stdout
    assert "up to 1 of a baseline and 0 of another side are left out" in again.stdout
