"""The four files of a trial: what they hold, that they match their schema, and a damaged load.json."""

import csv
import json
from dataclasses import fields, replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import a_load, a_metrics, a_trial, samples_of, write_samples, write_telemetry

from seamark.analysis.metrics.document import GROUPS
from seamark.analysis.metrics.schema import metrics_schema, schema_text
from seamark.analysis.metrics.table import METRICS, VERSION
from seamark.analysis.summary import write_metrics
from seamark.analysis.trial_view import histogram_of, marked, read_histograms, record_of
from seamark.model.results.trial_meta import Gpu, Gpus, Machine, TrialMeta
from seamark.model.results.trial_metrics import HistogramRecord, TrialMetrics, VerdictReason
from seamark.model.scenario import Slo
from seamark.model.trial import Deployment
from seamark.stats.histogram import of
from seamark.storage.codec import decode, encode
from seamark.storage.documents import write, write_json
from seamark.storage.paths import TrialFolder

ROOT = Path(__file__).resolve().parents[2]

DEPLOYMENT = Deployment(id="d-1", service="fileio", settings={}, nodes=2, gpus=4, cpus_per_task=8, mem_gb=32)


@pytest.fixture
def folder(tmp_path):
    return TrialFolder(root=tmp_path / "my-scenario" / "d-1--w-1--r1")


def a_measured_trial(folder, **changes):
    ended = np.cumsum(np.full(2000, 0.005))
    rows = samples_of(
        ended - 0.005, None, ended, bytes_received=4096, first_s=ended - 0.001, kind=np.arange(2000) % 2
    )
    write_samples(folder.samples, rows)
    write_telemetry(folder.telemetry, [(t, "host", "cpu_ratio", 0.5, "ratio") for t in range(10)])
    write(folder.load, a_load(kinds=["get", "put"], quality={"recall_at_10": 0.9}, **changes))
    return a_trial(slos=(Slo(metric="latency_s", op="<=", limit=1.0),))


def valid(document):
    jsonschema.Draft202012Validator(metrics_schema()).validate(document)
    return True


@pytest.mark.covers("E-SCHEMA", "E-FR10")
def test_the_published_schema_is_the_one_that_the_table_gives():
    published = (ROOT / "workflow/schemas/metrics.schema.json").read_text()
    assert published == schema_text(), (
        "python -m seamark.analysis.metrics.schema > workflow/schemas/metrics.schema.json"
    )
    jsonschema.Draft202012Validator.check_schema(json.loads(published))


@pytest.mark.covers("E-SCHEMA", "E-FR10", "E-FR09")
def test_a_measured_trial_matches_the_schema_and_has_every_key_that_is_asked_for(folder):
    trial = a_measured_trial(folder)
    document = encode(write_metrics(trial, folder, DEPLOYMENT))
    assert json.loads(folder.metrics.read_text()) == document
    assert valid(document)
    assert document["scenario"] == "my-scenario"
    assert {name: document["config"][name] for name in ("gpus", "nodes", "concurrency", "batch")} == {
        "gpus": 4,
        "nodes": 2,
        "concurrency": 1,
        "batch": None,
    }
    assert document["throughput"]["unit"] == "replies_per_s"
    assert set(document["latency_ms"]) >= {"p50", "p90", "p99"}
    assert set(document["resource"]) >= {"gpu_util", "gpu_mem_mb", "cpu_util", "ram_mb"}
    assert set(document["errors"]) >= {"rate", "timeouts"}
    assert document["quality"] == {"recall_at_10": 0.9}


@pytest.mark.covers("E-SCHEMA")
@pytest.mark.parametrize(
    "wrong",
    [
        {"verdict": "FINE"},
        {"throughput": {"value": 1.0}},
        {"latency_ms": None},
        {"surplus": 1},
        {"resource": {"cpu_util": "much"}},
        {"timestamp": 5},
    ],
)
def test_the_schema_refuses_what_is_not_a_metrics_document(folder, wrong):
    document = encode(write_metrics(a_measured_trial(folder), folder, DEPLOYMENT))
    with pytest.raises(jsonschema.ValidationError):
        valid(document | wrong)


@pytest.mark.covers("E-FR10")
def test_metrics_csv_is_one_row_with_every_metric(folder):
    document = encode(write_metrics(a_measured_trial(folder), folder, DEPLOYMENT))
    rows = list(csv.DictReader(folder.metrics_csv.open()))
    assert len(rows) == 1
    row = rows[0]
    assert {metric.column for metric in METRICS} <= set(row)
    assert float(row["latency_ms_p50"]) == document["latency_ms"]["p50"]
    assert row["latency_ms_p999"] == "", "what is not known is empty"
    assert row["config_gpus"] == "4"
    assert row["verdict"] == "VALID"
    assert row["quality_recall_at_10"] == "0.9"


@pytest.mark.covers("E-CLI04")
def test_the_series_and_the_histogram_say_what_the_samples_say(folder):
    write_metrics(a_measured_trial(folder), folder)
    series = list(csv.DictReader(folder.series.open()))
    assert list(series[0]) == [
        "second",
        "requests",
        "units",
        "failures",
        "throughput",
        "latency_p50_s",
        "latency_p90_s",
        "latency_p99_s",
        "in_flight",
        "latency_histogram",
    ]
    assert [int(row["requests"]) for row in series] == [199, *[200] * 8, 201]
    kept, _ = read_histograms(folder)
    streamed = {"ttft_ns", "ttft_response_ns", "ttfo_ns", "tpot_ns", "inter_chunk_ns"}
    assert set(kept) == {"response_ns", "service_ns", *streamed}
    assert kept["response_ns"].count == 2000
    assert kept["response_ns"].quantile(0.5) == pytest.approx(5e6, rel=0.005)


@pytest.mark.covers("E-NFR04", "E-SCHEMA")
@pytest.mark.parametrize("content", [None, "", "{", "[1]", '{"status": "failed", "category": "disk_full"}', "{}"])
def test_a_missing_damaged_or_failed_load_still_gives_four_files_that_match_the_schema(folder, content):
    folder.root.mkdir(parents=True)
    if content is not None:
        folder.load.write_text(content)
    document = encode(write_metrics(a_trial(), folder))
    assert valid(document)
    assert document["status"] == "failed"
    assert document["reason"]
    assert document["category"] == ("disk_full" if "disk_full" in str(content) else "client_died")
    for path in (folder.metrics, folder.metrics_csv, folder.series, folder.histogram):
        assert path.is_file()


@pytest.mark.covers("E-NFR04")
def test_a_failed_trial_keeps_what_its_load_counted(folder):
    a_measured_trial(folder, status="failed", category="server_died", reason="gone", sent=900, failures={"reset": 7})
    document = encode(write_metrics(a_trial(), folder))
    assert valid(document)
    assert document["counts"]["requests"] == 900
    assert document["errors"]["by_category"]["reset"] == 7
    assert document["throughput"]["value"] is None
    assert len(list(csv.DictReader(folder.series.open()))) == 10, "the series shows until when it went well"


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(
    "strange",
    [
        {"workers": None},
        {"workers": [{"worker": 0}]},
        {"workers": [{"ok": True, "cpu_s": None, "wall_s": 0, "loop_lag_ns": None, "lag_ns": None}]},
        {"quality": None},
        {"unit": None, "kinds": None},
        {"warmup_s": None, "duration_s": None, "scheduled": None},
    ],
)
def test_nulls_in_load_json_are_not_errors(folder, strange):
    document = encode(write_metrics(a_measured_trial(folder) and a_trial(), folder))
    write_json(folder.load, encode(a_load()) | strange)
    document = encode(write_metrics(a_trial(), folder))
    assert valid(document)
    assert document["status"] == "ok"


FULL_HZ = 1.98e9


def throttled(folder, of_gpus, most_hz=()):
    """Derive a trial whose GPUs have these (utilisation, clock from 1 s on), after a second at full clock where it is
    below. Its meta.json has GPUs with these highest clocks."""
    sent = np.arange(1000) / 100
    write_samples(folder.samples, samples_of(sent, None, sent + 0.001))
    write(folder.load, a_load())
    series = [
        row
        for at_s in np.arange(0, 10.5, 0.5).tolist()
        for number, (used, clock_hz) in enumerate(of_gpus)
        for row in (
            (at_s, f"gpu{number}", "util_ratio", used, "ratio"),
            (at_s, f"gpu{number}", "clock_hz", FULL_HZ if at_s < 1 and not most_hz else clock_hz, "Hz"),
        )
    ]
    write_telemetry(folder.telemetry, series)
    machine = Machine(gpu=Gpus(devices=tuple(Gpu(most_sm_hz=each) for each in most_hz)))
    write(folder.meta, TrialMeta(node="n1", machine=machine))
    reasons = write_metrics(a_trial({"pattern": "constant", "rate_rps": 100.0}), folder).reasons
    return [reason.text for reason in reasons if reason.code == "gpu_throttled"]


def test_each_gpu_is_throttled_by_its_own_use_and_clock(folder):
    assert throttled(folder, [(1.0, FULL_HZ), (0.1, 0.345e9)]) == [], "an idle one slows down"
    [text] = throttled(folder, [(0.8, 0.99e9), (0.1, 0.345e9)])
    assert text == "the mean clock of a GPU that was 80 % busy was 54 % of its highest"


@pytest.mark.parametrize(("most_hz", "told"), [([FULL_HZ] * 2, True), ([FULL_HZ, 1.41e9], False), ([0.9e9], False)])
def test_a_gpu_that_is_slow_all_the_time_is_known_by_the_clock_of_its_model(folder, most_hz, told):
    """Which GPU of a node with several models was used is not known: then the highest clock seen counts."""
    assert bool(throttled(folder, [(1.0, 0.9e9)], most_hz)) is told


def test_a_code_of_an_older_version_is_read_by_its_present_name():
    older = {"code": "machine_full", "severity": "note", "text": "97 % busy", "remedy": "Use more cores."}
    assert decode(older, VerdictReason).code == "host_cpu_saturated"
    assert decode(older | {"code": "saturated"}, VerdictReason).code == "saturated"


@pytest.mark.parametrize("version", [0, 1])
def test_figures_of_an_older_version_have_a_reason_and_those_of_a_failed_trial_none(version):
    good = a_metrics(metrics_version=version)
    assert [reason.code for reason in marked(good).reasons] == ["older_rule"]
    assert marked(good).verdict == "SUSPECT"
    assert marked(replace(good, status="failed")).reasons == ()
    assert marked(replace(good, metrics_version=VERSION)) == replace(good, metrics_version=VERSION)


@given(st.lists(st.integers(0, 2**62), max_size=50))
def test_a_histogram_survives_its_file_to_the_last_bit(numbers):
    histogram = of(np.array(numbers, dtype=np.int64))
    text = json.dumps(encode(record_of(histogram)))
    assert histogram_of(decode(json.loads(text), HistogramRecord)) == histogram


OTHER_BINS = {"indexes": [0, 2**62, 2**63 - 1], "counts": [1, 1, 1]}


@pytest.mark.parametrize(
    "damage",
    [
        {"count": 5},
        {"counts": [1]},
        {"zeros": None},
        {"indexes": "x"},
        OTHER_BINS,
        OTHER_BINS | {"indexes": [-1, 0, 1]},
        {"relative_error": 0.0},
        {"relative_error": 1.0},
    ],
)
def test_a_histogram_that_contradicts_itself_is_refused(damage):
    document = encode(record_of(of(np.array([1, 2, 3])))) | damage
    with pytest.raises(ValueError):
        histogram_of(decode(document, HistogramRecord))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.path)
def test_every_metric_of_the_table_has_its_place_in_the_file(folder, metric):
    group, _, rest = metric.path.partition(".")
    noun = GROUPS.get(group)
    assert group in {field.name for field in fields(TrialMetrics)}
    if noun is not None:
        assert rest.partition(".")[0] in {field.name for field in fields(noun)}
