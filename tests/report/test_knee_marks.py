"""Marks of a figure against a factor: knees, a sentence or a table below them, and lower bounds."""

import json
import re
from pathlib import Path

import pytest
from make_results import Made, make_results

from seamark.report.figures.factors import factor_blocks, measured
from seamark.report.page.render import write_report
from seamark.report.source import read_results

pytestmark = pytest.mark.slow


def a_service(name: str, cap_rps: float, **factors: tuple) -> Made:
    return Made(
        service=name, component="inference", unit="token", service_ms=10.0, cap_rps=cap_rps, factors={**factors}
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on sweeps that end before the knee, enclose it, and enclose it at two levels."""
    root = tmp_path_factory.mktemp("knees")
    users = (1, 2, 4, 8, 16)
    services = (
        a_service("below", 1e6, concurrency=users[:4]),
        a_service("one", 320.0, concurrency=users),
        a_service("two", 320.0, operation=("read", "write"), concurrency=users),
        a_service("three", 320.0, concurrency=users[:3]),
    )
    results = make_results(root / "results", services=services, fail=(), suspect=(), repetitions=2, telemetry=False)
    write_report(results, root / "reports")
    return root


@pytest.mark.covers("E-FR12")
def test_the_summary_has_a_knee_of_every_sweep_of_four_levels_or_more(made: Path):
    found = json.loads((made / "results" / "made" / "summary.json").read_text())["knees"]
    assert [(one["workload"], one["fixed"], one["place"]) for one in found] == [
        ("below", {}, "last"),
        ("one", {}, "inside"),
        ("two", {"operation": "read"}, "inside"),
        ("two", {"operation": "write"}, "inside"),
    ]
    assert found[1]["knee"] in (2, 4), "320/s of 10 ms each are 3.2 users"
    assert found[1]["of"] == 2


def test_the_report_says_where_the_knee_is_or_that_there_is_none(made: Path):
    found = json.loads((made / "results" / "made" / "summary.json").read_text())["knees"]
    folder = made / "reports" / "made"
    for text in ((folder / "report.md").read_text(), (folder / "index.html").read_text()):
        assert f"Knee by concurrency: at {found[1]['knee']} (it lies between" in text
        assert "No knee by concurrency: not in the measured range, power still grows at the highest level, 8" in text
        assert "Knee of each sweep by concurrency" in text
        assert text.count("Dotted lines mark knees.") == 2, "of `one` and `two` only"


def test_the_figure_marks_the_knee_and_names_it(made: Path):
    figures = made / "reports" / "made" / "figures"
    found = json.loads((made / "results" / "made" / "summary.json").read_text())["knees"]
    assert (figures / "one-by-concurrency.svg").read_text().count(f"knee {found[1]['knee']}") == 2, "in both panels"
    for name in ("below", "three"):
        assert "knee" not in (figures / f"{name}-by-concurrency.svg").read_text()
    assert "knee" not in (figures / "two-by-operation.svg").read_text()


def test_a_summary_of_before_there_were_knees_is_drawn_without(tmp_path: Path):
    service = a_service("one", 320.0, concurrency=(1, 2, 4, 8))
    results = make_results(tmp_path, services=(service,), fail=(), suspect=(), repetitions=1, telemetry=False)
    summary = json.loads((results / "summary.json").read_text())
    del summary["knees"]
    (results / "summary.json").write_text(json.dumps(summary))
    page = write_report(results, tmp_path / "reports").read_text()
    assert "Knee" not in page


@pytest.mark.covers("E-FR09")
def test_a_lower_bound_is_drawn_as_an_arrow_taller_than_a_point(tmp_path: Path):
    service = a_service("one", 320.0, concurrency=(1, 2))
    folder = make_results(tmp_path, services=(service,), fail=(), suspect=(), repetitions=1, telemetry=False)

    def drawn() -> tuple[bool, float]:
        (picture,) = factor_blocks(read_results(folder).services["one"][0])
        marks = [part.split('<g id="')[0] for part in picture.svg.decode().split('<g id="PathCollection_')[1:]]
        forms = [form for part in marks for form in re.findall(r'<path[^>]*? d="([^"]+)"', part)]
        ends = [
            [float(y) for _, y in re.findall(r"(\S+) (\S+)(?= |$)", re.sub("[A-Zz]", "", form))] for form in forms
        ]
        return "An arrow up marks the lower end" in picture.caption, max(max(own) - min(own) for own in ends if own)

    before = drawn()
    for path in folder.glob("*--r1/metrics.json"):
        document = json.loads(path.read_text())
        document["latency_ms"]["ranges"] = {"p50": [document["latency_ms"]["p50"], None]}
        path.write_text(json.dumps(document))
    after = drawn()
    assert (before[0], after[0]) == (False, True)
    assert after[1] > 1.5 * before[1]


def test_a_p99_that_the_repetitions_have_together_alone_is_drawn_as_the_tables_have_it(tmp_path: Path):
    service = a_service("one", 320.0, concurrency=(1, 2))
    folder = make_results(tmp_path, services=(service,), fail=(), suspect=(), repetitions=2, telemetry=False)
    for path in folder.glob("*--r*/metrics.json"):
        document = json.loads(path.read_text())
        document["latency_ms"]["p99"] = None
        path.write_text(json.dumps(document))
    results = read_results(folder)
    frame = measured(results, results.treatments)
    drawn = frame[frame["measure"] == "p99"]
    assert sorted(drawn["value"]) == sorted(row.latency_ms.p99 for row in results.treatments if row.latency_ms.p99)
    assert len(drawn) == 2
