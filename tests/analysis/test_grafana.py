"""The dashboard for Grafana: each metric of the table has one panel, and its query finds what is exported."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from samples import a_load, a_trial, samples_of, write_samples, write_telemetry

from seamark.analysis.grafana import dashboard, dashboard_text
from seamark.analysis.metrics.table import METRICS
from seamark.analysis.prometheus_text import exposed, figures_of, text_of
from seamark.analysis.summary import write_metrics
from seamark.storage.documents import write
from seamark.storage.paths import TrialFolder

SELECTOR = re.compile(r'([a-z_][a-z0-9_]*)\{((?:[a-z_]+=~"[^"]*"(?:, )?)*)\}')


def answered(query: str, samples: list, **variables: str) -> list:
    """Answer a query as Prometheus does once Grafana has put in its variables: name and anchored patterns."""
    for name, value in variables.items():
        query = query.replace(f"${name}", value)
    name, conditions = SELECTOR.fullmatch(query).groups()
    wanted = dict(re.findall(r'([a-z_]+)=~"([^"]*)"', conditions))
    return [
        sample
        for sample in samples
        if sample.name == name
        and all(re.fullmatch(pattern, sample.labels.get(label, "")) for label, pattern in wanted.items())
    ]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list:
    """The series of one measured trial, as a Prometheus would scrape them."""
    folder = TrialFolder(root=tmp_path_factory.mktemp("s") / "t")
    folder.root.mkdir()
    ended = np.cumsum(np.full(2000, 0.005))
    write_samples(folder.samples, samples_of(ended - 0.005, None, ended, bytes_received=4096, first_s=ended - 0.001))
    write_telemetry(folder.telemetry, [(t, "host", "cpu_ratio", 0.5, "ratio") for t in range(10)])
    write(folder.load, a_load(quality={"recall_at_10": 0.9}, node="n1"))
    trial = a_trial()
    text = text_of([figures_of(write_metrics(trial, folder), trial, {})])
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


@pytest.mark.covers("E-FR28", "E2")
def test_each_metric_has_one_panel_and_the_file_is_whole():
    panels = dashboard()["panels"]
    names = [target["expr"].split("{")[0] for panel in panels for target in panel["targets"]]
    assert len(names) == len(set(names)) == len(panels)
    assert {gauge.name for gauge in exposed(METRICS)} <= set(names)
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len(set(places)) == len(places)
    assert json.loads(dashboard_text()) == dashboard()
    written = Path(__file__).parents[2] / "docs/grafana.json"
    assert json.loads(written.read_text()) == dashboard()


@pytest.mark.covers("E-FR28")
def test_every_exported_series_is_found_by_one_panel_and_none_of_another_scenario(samples):
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    everything = {"scenario": ".*", "service": ".*", "trial": ".*"}
    found = [sample for query in queries for sample in answered(query, samples, **everything)]
    assert len(samples) > 50
    key = lambda sample: (sample.name, sorted(sample.labels.items()))  # noqa: E731
    assert sorted(map(key, found)) == sorted(map(key, samples))
    assert not [sample for query in queries for sample in answered(query, samples, **everything | {"scenario": "x"})]


@pytest.mark.covers("E-FR28")
def test_variables_are_labels_that_the_series_have_and_units_fit_the_names(samples):
    for variable in dashboard()["templating"]["list"][1:]:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
        assert label == variable["name"]
        assert [sample.labels[label] for sample in samples if sample.name == metric]
        assert all(label in sample.labels for sample in samples)
    units = {panel["title"]: panel["fieldConfig"]["defaults"]["unit"] for panel in dashboard()["panels"]}
    assert units["seamark_latency_seconds"] == "s"
    assert units["seamark_bandwidth_bytes_per_second"] == "Bps"
    assert units["seamark_resource_cpu_util_ratio"] == "percentunit"
