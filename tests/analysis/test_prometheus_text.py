"""What is written for Prometheus, as its own client's parser reads it: names, units, labels, figures, telemetry."""

import csv
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from samples import a_load, a_trial, samples_of, write_samples, write_telemetry
from study_folder import StudyFolder

from seamark.analysis.metrics.table import METRICS
from seamark.analysis.prometheus_text import exposed, figures_of, text_of, write_trial
from seamark.analysis.summary import write_metrics
from seamark.model.trial import Trial
from seamark.storage.documents import write
from seamark.storage.paths import TrialFolder
from seamark.telemetry.cut import cut_telemetry

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
PER_BASE = {"ms": 1e3, "MB": 1e-6, "MB/s": 1e-6}


def read(text: str) -> Series:
    """Read the text as Prometheus's client does; two series alike are a mistake."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def one(series: Series, name: str, /, **labels: str) -> float | None:
    """Return the value of the one series with these labels among its own; None when there is none."""
    found = [value for (named, own), value in series.items() if named == name and set(labels.items()) <= own]
    assert len(found) <= 1, found
    return found[0] if found else None


def measured(folder: TrialFolder, **load: Any) -> tuple[Trial, dict[str, Any]]:
    """Write a trial of 2000 requests with its metrics."""
    ended = np.cumsum(np.full(2000, 0.005))
    write_samples(folder.samples, samples_of(ended - 0.005, None, ended, bytes_received=4096, first_s=ended - 0.001))
    write_telemetry(folder.telemetry, [(t, "host", "cpu_ratio", 0.5, "ratio") for t in range(10)])
    write(folder.load, a_load(**({"quality": {"recall_at_10": 0.9}, "node": "n1"} | load)))
    trial = a_trial()
    return trial, write_metrics(trial, folder)


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    return TrialFolder(root=tmp_path / "my-scenario" / "d-1--w-1--r1")


@pytest.mark.slow
@pytest.mark.covers("E-FR11")
def test_prometheus_reads_every_figure_of_metrics_json_in_base_units_and_no_other(folder: TrialFolder) -> None:
    trial, metrics = measured(folder)
    series = read(text_of([figures_of(metrics, trial, {"concurrency": 1})]))
    known = [(each, metrics.figure(each.path)) for each in exposed()]
    units = {metric.path: metric.unit for metric in METRICS}
    for each, figure in known:
        expected = figure if figure is None else pytest.approx(figure / PER_BASE.get(units[each.path], 1), rel=1e-12)
        assert one(series, each.name, **each.labels) == expected, each.path
    assert len(series) == sum(figure is not None for _, figure in known) + 3, "info, start and quality besides"
    assert one(series, "seamark_latency_seconds", statistic="p50") == pytest.approx(0.005)
    assert one(series, "seamark_latency_seconds", statistic="p999") is None, "withheld for want of samples, so absent"
    assert one(series, "seamark_bandwidth_bytes_per_second") == pytest.approx(4096 * 200, rel=0.01)
    assert one(series, "seamark_quality", name="recall_at_10") == 0.9
    assert one(series, "seamark_trial_start_time_seconds") == 1767225600
    assert one(series, "seamark_trial_info", status="ok", verdict=metrics.verdict, unit="replies") == 1


@pytest.mark.slow
@pytest.mark.covers("E-FR11")
def test_a_name_has_one_help_and_one_type_for_all_trials(folder: TrialFolder) -> None:
    trial, metrics = measured(folder)
    second = replace(trial, id="d-1--w-1--r2", repetition=2)
    text = text_of([figures_of(metrics, each, {}) for each in (trial, second)])
    heads = re.findall(r"^# (HELP|TYPE) (\S+)", text, re.MULTILINE)
    assert len(heads) == len(set(heads))
    series = read(text)
    for repetition in "12":
        labels = {"repetition": repetition, "trial": f"d-1--w-1--r{repetition}", "deployment": "d-1"}
        assert one(series, "seamark_throughput_units_per_second", **labels, scenario="my-scenario") is not None
    assert {re.sub(r"{.*", "", line) for line in text.splitlines() if line[0] != "#"} == {name for _, name in heads}


@pytest.mark.covers("E-FR11")
def test_names_are_those_that_prometheus_asks_for() -> None:
    names = [each.name for each in exposed()]
    assert all(re.fullmatch(r"seamark(_[a-z0-9]+)+", name) for name in names)
    strange = re.compile(r"_(ms|mb|mib|s|rps|j|w|milliseconds|megabytes|total|count|sum|bucket)(_|$)")
    assert [name for name in names if strange.search(name)] == []
    assert len({each.path for each in exposed()}) == len(METRICS) - 1, "MiB/s is MB/s in another unit"


@pytest.mark.covers("E-FR11")
@pytest.mark.parametrize("level", ['say "hello"', "C:\\new\\n", "two\nlines", "Zürich, {a=1}", "", True, 0.5])
def test_a_level_is_read_as_it_was_written(folder: TrialFolder, level: Any) -> None:
    trial, metrics = measured(folder)
    series = read(text_of([figures_of(metrics, trial, {"model": level, "größe": 1, "absent": None})]))
    for _, labels in series:
        assert dict(labels)["factor_model"] == {True: "true"}.get(level, str(level))
        assert dict(labels)["factor_gr_u00f6_u00dfe"] == "1"
        assert "factor_absent" not in dict(labels)


@pytest.mark.covers("E-FR11", "E-NFR04")
def test_a_failed_trial_says_so_and_has_no_figures(folder: TrialFolder) -> None:
    trial, metrics = measured(folder, status="failed", category="server_died", reason="gone", quality={})
    series = read(text_of([figures_of(metrics, trial, {})]))
    assert one(series, "seamark_trial_info", status="failed", category="server_died", verdict="INVALID") == 1
    assert {name for name, _ in series} == {"seamark_trial_info", "seamark_trial_start_time_seconds"}


@pytest.mark.covers("E-FR11", "E-MON03")
def test_telemetry_lies_node_by_node_beside_the_figures(folder: TrialFolder, tmp_path: Path) -> None:
    trial, _ = measured(folder)
    seen = [("host", "n1"), ("host@n2", "n2"), ("gpu0@n2", "n2"), ("client", "n1")]
    rows = [(at, source, "util_ratio", 0.25, "ratio") for at, (source, _) in itertools.product((0.5, 1.0), seen)]
    write_telemetry(folder.telemetry, rows)
    files = write_trial(folder, tmp_path / "metrics", trial, {})
    target = tmp_path / "metrics" / "my-scenario"
    assert files == [target / f"{trial.id}.{rest}" for rest in ("prom", "n1.csv", "n2.csv")]
    assert {row["source"] for row in rows_of(files[1])} == {"host", "client"}
    assert {row["source"] for row in rows_of(files[2])} == {"host", "gpu0"}
    assert [float(row["at_s"]) for row in rows_of(files[2])] == [0.5, 0.5, 1.0, 1.0]
    write_telemetry(folder.telemetry, rows[:1])
    assert write_trial(folder, tmp_path / "metrics", trial, {}) == sorted(target.iterdir(), reverse=True)


@pytest.mark.covers("E-MON03")
def test_a_trial_without_telemetry_has_figures_only(folder: TrialFolder, tmp_path: Path) -> None:
    trial, _ = measured(folder)
    cut_telemetry(tmp_path / "none.csv", tmp_path / "none", a_load(), folder)
    assert len(write_trial(folder, tmp_path / "metrics", trial, {})) == 1
    folder.telemetry.unlink()
    assert len(write_trial(folder, tmp_path / "metrics", trial, {})) == 1


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def with_metrics(study: StudyFolder, metrics: str) -> None:
    """Have the study's local site name a folder for Prometheus, and look often enough for its short trials."""
    path = study.root / "config/sites/local.yaml"
    more = {"paths": {"metrics": metrics}, "telemetry_interval_s": 0.05}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | more))


@pytest.mark.sweep
@pytest.mark.e2e
@pytest.mark.covers("E-FR11", "E-MON03", "E-MON02")
def test_each_trial_of_a_run_leaves_its_figures_and_series_in_the_sites_metrics_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = StudyFolder.new(tmp_path / "study")
    nothing = study.bench("export", "prometheus", "-c", "config/scenarios/try.yaml")
    assert (nothing.returncode, "names no folder for Prometheus" in nothing.stderr) == (2, True)
    monkeypatch.setenv("WORK", str(study.root / "work"))
    with_metrics(study, "$WORK/metrics")
    unmeasured = study.bench("export", "prometheus", "-c", "config/scenarios/try.yaml", "-o", "all.prom")
    assert (unmeasured.returncode, "no trial is measured yet" in unmeasured.stderr) == (2, True)
    assert study.submit().returncode == 0

    target = study.root / "work/metrics/try"
    together: Series = {}
    for trial in study.trials():
        series = read((target / f"{trial.name}.prom").read_text())
        document = json.loads((trial / "metrics.json").read_text())
        assert one(series, "seamark_requests_per_second") == pytest.approx(document["requests_per_s"], rel=1e-12)
        factor = str(document["config"]["concurrency"])
        assert one(series, "seamark_trial_info", factor_concurrency=factor, service="null") == 1
        [by_node] = target.glob(f"{trial.name}.*.csv")
        assert by_node.name == f"{trial.name}.{json.loads((trial / 'load.json').read_text())['node']}.csv"
        assert by_node.read_text() == (trial / "telemetry.csv").read_text()
        assert {"host", "server"} <= {row["source"] for row in rows_of(by_node)}
        assert not together.keys() & series.keys()
        together |= series

    written = {path.name: path.read_bytes() for path in target.iterdir()}
    for path in target.iterdir():
        path.unlink()
    again = study.bench("export", "prometheus", "-c", "config/scenarios/try.yaml")
    assert (again.returncode, again.stderr) == (0, "")
    assert {path.name: path.read_bytes() for path in target.iterdir()} == written, "the same of finished trials"
    whole = study.bench("export", "prometheus", "-c", "config/scenarios/try.yaml", "-o", "-")
    assert read(whole.stdout) == together
