"""Two runs of one scenario, measured for real at two commits, lie side by side."""

import hashlib
import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.sweep
@pytest.mark.covers("E-FR29")
def test_two_runs_of_one_scenario_at_two_commits_lie_side_by_side(finished):
    scenario = ("-c", "config/scenarios/try.yaml")
    kept = finished.ask("keep", *scenario, "--name", "first", "--commit", "aaaa1111", code=0)
    assert "4 trials" in kept.stdout
    first = finished.root / "results" / "history" / "try" / "first"
    before = contents(first)
    assert sum(name.endswith("samples.parquet") for name in before) == 4

    finished.write(metadata={"git_commit": "bbbb2222"})
    finished.measure(code=0)
    assert set(finished.measurements().values()) == {1}
    assert contents(first) == before

    taken = finished.ask("keep", *scenario, "--name", "first", code=2)
    assert "is there already" in taken.stderr
    assert contents(first) == before

    shown = finished.ask("history", "try", "--metric", "throughput", "--format", "json", code=0)
    series = [each["series"] for each in json.loads(shown.stdout)["series"]]
    assert [each["levels"]["concurrency"] for each in series] == [1, 2]
    for each in series:
        assert [(run["run"], run["commit"], run["n"]) for run in each["runs"]] == [
            ("first", "aaaa1111", 2),
            ("present", "bbbb2222", 2),
        ]
        values = [trial["throughput"]["value"] for trial in _metrics(first, each["treatment"])]
        assert each["runs"][0]["value"] == pytest.approx(sum(values) / 2)

    finished.ask("keep", *scenario, "--name", "second")
    (finished.root / "results" / ".history.duckdb").unlink()
    later = json.loads(finished.ask("history", "--metric", "throughput", "--format", "json").stdout)
    assert [[run["value"] for run in each["series"]["runs"]] for each in later["series"]] == [
        [run["value"] for run in each["runs"]] for each in series
    ]


def _metrics(folder: Path, treatment: str) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{treatment}--r*/metrics.json"))]
