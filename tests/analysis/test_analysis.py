"""The summary of a scenario: what is pooled, what is listed, and what a damaged file does to it (nothing)."""

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.analysis.summary import summarise, write_metrics, write_summary
from seamark.model.sample import Failure
from seamark.model.scenario import Slo
from seamark.model.trial import Deployment, Plan
from seamark.storage.codec import encode
from seamark.storage.documents import write, write_json
from seamark.storage.paths import ScenarioFolder

approx = pytest.approx


def a_deployment(name, **changes):
    fields = {"id": name, "service": "fileio", "settings": {}, "nodes": 1, "gpus": 0, "cpus_per_task": 1, "mem_gb": 1}
    return Deployment(**(fields | changes))


def a_plan(trials, deployments=(), **changes):
    fields = {
        "scenario": "s",
        "source": "s.yaml",
        "seed": 1,
        "repetitions": max(trial.repetition for trial in trials),
        "max_retries": 0,
        "factors": {},
        "deployments": tuple(deployments),
        "trials": tuple(trials),
    }
    return Plan(**(fields | changes))


def named(workload="w-1", deployment="d-1", repetition=1, settings=None, **other):
    return a_trial(
        settings,
        repetition=repetition,
        id=f"{deployment}--{workload}--r{repetition}",
        workload=workload,
        deployment=deployment,
        **other,
    )


@pytest.fixture
def folder(tmp_path):
    return ScenarioFolder(root=tmp_path / "s")


def measure(folder, trial, reply_s, load=None, **samples):
    """Leave the files of a trial whose one user got replies after `reply_s`."""
    ended = np.cumsum(reply_s)
    own = folder.trial(trial.id)
    write_samples(own.samples, samples_of(ended - reply_s, None, ended, **samples))
    write(own.load, load or a_load())
    return encode(write_metrics(trial, own))


def three_repetitions(folder):
    trials = [named(repetition=r) for r in (1, 2, 3)]
    for trial, reply_s in zip(trials, (0.001, 0.002, 0.010), strict=True):
        measure(folder, trial, np.full(int(10 / reply_s), reply_s))
    return trials


@pytest.mark.covers("E-MON04")
def test_percentiles_are_of_all_requests_together_and_never_a_mean_of_percentiles(folder):
    trials = three_repetitions(folder)
    summary = encode(summarise(a_plan(trials), folder))
    times = summary["treatments"][0]["latency_ms"]
    # 10,000 requests of 1 ms, 5,000 of 2 ms, 1,000 of 10 ms: the median is 1 ms, that of the medians 2 ms
    assert times["n"] == 16_000
    assert times["p50"] == approx(1.0, rel=0.005)
    assert times["p90"] == approx(2.0, rel=0.005)
    assert times["p95"] == approx(10.0, rel=0.005)
    assert times["mean"] == approx(30_000 / 16_000, rel=1e-6)
    assert summary["percentiles"]["relative_error"] == 0.005


def test_pooled_repetitions_bear_percentiles_that_one_of_them_does_not(folder):
    trials = [named(repetition=r) for r in (1, 2)]
    documents = [measure(folder, trial, np.full(600, 0.016)) for trial in trials]
    assert all(document["latency_ms"]["p99"] is None for document in documents)
    assert encode(summarise(a_plan(trials), folder))["treatments"][0]["latency_ms"]["p99"] == approx(16, rel=0.005)


def test_throughput_is_given_over_trials_best_median_and_worst(folder):
    trials = three_repetitions(folder)
    found = encode(summarise(a_plan(trials), folder))["treatments"][0]["throughput"]
    assert found["median"] == approx(500, rel=0.001)
    assert (found["min"], found["max"]) == (approx(100, rel=0.001), approx(1000, rel=0.001))
    assert found["mean"] == approx(1600 / 3, rel=0.001)
    assert found["cv"] == approx(np.std([1000, 500, 100], ddof=1) / (1600 / 3), rel=0.001)
    assert found["unit"] == "replies_per_s"


def test_a_summary_names_the_factors_that_have_one_start_for_each_level(folder):
    trials = three_repetitions(folder)
    assert encode(summarise(a_plan(trials), folder))["factors_without_p"] == []
    factors = {"deployment": {"files": (1, 2)}, "workload": {"concurrency": (1, 2)}}
    found = encode(summarise(a_plan(trials, factors=factors), folder))
    assert found["factors_without_p"] == ["files"]
    assert "each level of files is measured on one start of the server" in found["why_no_p"]


@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(
    ("name", "content", "status"),
    [
        ("metrics", None, "missing"),
        ("metrics", "{", "damaged"),
        ("metrics", "[]", "damaged"),
        ("metrics", "{}", "damaged"),
        ("metrics", '{"status": "ok"}', "damaged"),
        ("metrics", "\x00\x00", "damaged"),
        ("metrics", '{"status": "failed", "reasons": [1]}', "damaged"),
    ],
)
def test_a_missing_or_damaged_file_is_named_and_changes_nothing_else(folder, name, content, status):
    trials = three_repetitions(folder)
    path = getattr(folder.trial(trials[2].id), name)
    path.unlink() if content is None else path.write_text(content)
    summary = encode(write_summary(a_plan(trials), folder))
    assert (summary["trials"], summary["ok"]) == (3, 2)
    assert [(bad["trial"], bad["status"]) for bad in summary["failed"]] == [(trials[2].id, status)]
    assert path.name in summary["failed"][0]["reason"]
    treatment = summary["treatments"][0]
    assert (treatment["repetitions"], treatment["planned"]) == (2, 3)
    assert treatment["latency_ms"]["n"] == 15_000
    assert treatment["throughput"]["min"] == approx(500, rel=0.001)
    assert treatment["verdict"] == "SUSPECT", "fewer repetitions than planned"


@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(
    "content", [None, '{"histograms": {"response_ns": {}}}', "{}", '{"histograms": {}}', '{"histogra']
)
def test_a_trial_without_a_readable_histogram_is_in_every_figure_but_pooled_times_and_suspect(folder, content):
    trials = three_repetitions(folder)
    path = folder.trial(trials[2].id).histogram
    path.unlink() if content is None else path.write_text(content)
    summary = encode(write_summary(a_plan(trials), folder))
    assert (summary["ok"], summary["failed"]) == (3, [])
    treatment = summary["treatments"][0]
    assert (treatment["repetitions"], treatment["latency_ms"]["n"]) == (3, 15_000)
    assert treatment["throughput"]["min"] == approx(100, rel=0.001)
    assert treatment["trial_verdicts"][2] == "SUSPECT"
    assert ("damaged_file", 1) in [(reason["code"], reason["count"]) for reason in treatment["reasons"]]
    rows = list(csv.DictReader((folder.root / "summary.csv").open()))
    assert ["damaged_file" in row["reasons"].split() for row in rows] == [False, False, True]


@pytest.mark.covers("E-NFR04", "E-CLI05")
def test_a_failed_trial_is_listed_with_its_category_and_in_no_figure(folder):
    trials = three_repetitions(folder)
    died = a_load(status="failed", category="server_died", reason="the server died: Killed")
    measure(folder, trials[1], np.full(2000, 0.002), load=died)
    summary = encode(summarise(a_plan(trials), folder))
    assert summary["failed"] == [
        {
            "trial": trials[1].id,
            "status": "failed",
            "category": "server_died",
            "reason": "the server died: Killed",
        }
    ]
    treatment = summary["treatments"][0]
    assert treatment["latency_ms"]["n"] == 11_000
    assert ("server_died", 1) in [(reason["code"], reason["count"]) for reason in treatment["reasons"]]
    assert treatment["trials"] == [trial.id for trial in trials]


@pytest.mark.covers("E-NFR04")
def test_samples_that_cannot_be_read_fail_their_trial_only(folder):
    trials = three_repetitions(folder)
    own = folder.trial(trials[0].id)
    own.samples.write_bytes(own.samples.read_bytes()[:500])
    own.metrics.unlink()
    write_metrics(trials[0], own)
    summary = encode(summarise(a_plan(trials), folder))
    assert (summary["ok"], summary["failed"][0]["category"]) == (2, "no_samples")
    assert "samples.parquet" in summary["failed"][0]["reason"]


@pytest.mark.covers("E-NFR04")
def test_a_treatment_without_one_good_trial_stands_there_with_nulls(folder):
    trials = [named(repetition=r) for r in (1, 2)]
    summary = encode(write_summary(a_plan(trials), folder))
    treatment = summary["treatments"][0]
    assert (treatment["repetitions"], treatment["planned"], treatment["verdict"]) == (0, 2, "INVALID")
    assert treatment["throughput"]["median"] is None
    assert treatment["latency_ms"]["p50"] is None
    assert treatment["errors"]["rate"] is None


def test_the_worst_verdict_of_the_trials_is_the_treatment_s_and_reasons_are_counted(folder):
    trials = [named(repetition=r) for r in (1, 2, 3)]
    measure(folder, trials[2], np.full(10_000, 0.001))
    busy = a_load(workers=[{"worker": 0, "ok": True, "wall_s": 10.0, "cpu_s": 9.5}])
    for trial in trials[:2]:
        measure(folder, trial, np.full(10_000, 0.001), load=busy)
        write_metrics(trial, folder.trial(trial.id), client_is_server=False)
    treatment = encode(summarise(a_plan(trials), folder))["treatments"][0]
    assert treatment["verdict"] == "SUSPECT"
    assert treatment["reasons"][0]["code"] == "client_cpu"
    assert treatment["reasons"][0]["count"] == 2
    assert treatment["trial_verdicts"] == ["SUSPECT", "SUSPECT", "VALID"]


def failing(folder, trial, failed, cancelled=0):
    """Leave the files of a trial of 2,000 requests with so many errors, and as many that were cut off by its end."""
    due, failure = np.arange(2000) / 200, np.zeros(2000, dtype=int)
    failure[:failed] = Failure.SERVER_ERROR
    failure[2000 - cancelled :] = Failure.CANCELLED
    own = folder.trial(trial.id)
    write_samples(
        own.samples, samples_of(due, None, np.where(failure == Failure.CANCELLED, 10, due + 0.001), failure=failure)
    )
    write(own.load, a_load())
    return encode(write_metrics(trial, own))


@pytest.mark.parametrize("failed", [(60, 1500), (1500, 60)])
def test_a_reason_of_a_treatment_is_as_grave_as_in_its_gravest_trial(folder, failed):
    trials = [named(repetition=r, settings={"pattern": "constant", "rate_rps": 200.0}) for r in (1, 2)]
    documents = [failing(folder, trial, count) for trial, count in zip(trials, failed, strict=True)]
    treatment = encode(summarise(a_plan(trials), folder))["treatments"][0]
    assert treatment["trial_verdicts"] == [document["verdict"] for document in documents]
    assert set(treatment["trial_verdicts"]) == {"SUSPECT", "INVALID"}
    assert treatment["verdict"] == "INVALID"
    [reason] = [reason for reason in treatment["reasons"] if reason["code"] == "error_rate"]
    assert (reason["severity"], reason["count"], reason["text"]) == ("invalid", 2, "75.0 % of the requests failed")


@pytest.mark.parametrize(
    ("failed", "per_s", "rate", "of"),
    [((0, 1500, 1500), 200, 0.0, 1), ((1500, 100, 0), 195, 0.025, 2), ((1500, 1500), 50, 0.75, 2)],
    ids=["one", "two", "none valid"],
)
def test_figures_of_a_treatment_are_of_its_repetitions_that_are_not_invalid(folder, failed, per_s, rate, of):
    slos = (Slo(metric="error_rate", op="<=", limit=0.01),)
    settings = {"pattern": "constant", "rate_rps": 200.0}
    trials = [named(repetition=r, settings=settings, slos=slos) for r in range(1, len(failed) + 1)]
    for trial, count in zip(trials, failed, strict=True):
        failing(folder, trial, count)
    treatment = encode(summarise(a_plan(trials), folder))["treatments"][0]
    assert treatment["requests_per_s"]["median"] == approx(per_s, rel=0.01)
    assert treatment["errors"]["rate"] == approx(rate)
    assert treatment["latency_ms"]["n"] == approx(2000 * of * (1 - rate))
    assert treatment["slos"][0]["of"] == of
    assert (treatment["verdict"], treatment["repetitions"]) == ("INVALID", len(failed))
    assert treatment["trial_verdicts"].count("INVALID") == failed.count(1500)
    assert failed.count(1500) <= next(each["count"] for each in treatment["reasons"] if each["code"] == "error_rate")


def test_the_error_rate_of_one_trial_is_that_of_its_treatment(folder):
    trial = named(settings={"pattern": "constant", "rate_rps": 200.0})
    document = failing(folder, trial, 20, cancelled=1000)
    assert document["errors"]["rate"] == approx(0.01), "of all that were sent, also of those that were cut off"
    assert encode(summarise(a_plan([trial]), folder))["treatments"][0]["errors"]["rate"] == approx(0.01)


@pytest.mark.covers("E-FR26")
def test_factors_are_what_varies_within_a_service(folder):
    trials = [
        named(f"w-{c}", deployment, settings={"concurrency": c, "mode": mode})
        for c in (1, 4)
        for deployment, mode in (("d-1", "a"), ("d-2", "b"))
    ]
    trials.append(named("w-9", "d-9", settings={"concurrency": 77}, service="faiss"))
    deployments = [a_deployment("d-1", gpus=1), a_deployment("d-2", gpus=2), a_deployment("d-9")]
    treatments = encode(summarise(a_plan(trials, deployments), folder))["treatments"]
    assert [treatment["factors"] for treatment in treatments] == [
        {"concurrency": 1, "mode": "a", "gpus": 1},
        {"concurrency": 1, "mode": "b", "gpus": 2},
        {"concurrency": 4, "mode": "a", "gpus": 1},
        {"concurrency": 4, "mode": "b", "gpus": 2},
        {},
    ]


@pytest.mark.covers("E-MON04", "E-FR12")
def test_the_tables_have_a_row_for_every_planned_trial_and_say_the_same(folder):
    trials = [named(f"w-{c}", repetition=r, settings={"concurrency": c}) for c in (1, 2) for r in (1, 2)]
    for trial in trials[:3]:
        measure(folder, trial, np.full(2000, 0.005), load=a_load(quality={"recall_at_10": 0.9}))
    write_summary(a_plan(trials), folder)
    rows = list(csv.DictReader((folder.root / "summary.csv").open()))
    table = pq.read_table(folder.root / "summary.parquet").to_pylist()
    assert [row["trial"] for row in rows] == [row["trial"] for row in table] == [trial.id for trial in trials]
    assert [row["factor_concurrency"] for row in table] == [1, 1, 2, 2]
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "missing"]
    assert float(rows[0]["latency_ms_p50"]) == table[0]["latency_ms_p50"] == approx(5)
    assert (rows[3]["latency_ms_p50"], table[3]["latency_ms_p50"]) == ("", None)
    assert table[0]["quality_recall_at_10"] == approx(0.9)
    assert json.loads(folder.summary.read_text())["ok"] == 3


@pytest.mark.covers("E-MON04")
def test_watched_series_have_least_mean_and_greatest_over_all_trials(folder):
    trials = [named(repetition=r) for r in (1, 2)]
    for trial, (low, mean, high, n) in zip(trials, [(0.1, 0.2, 0.4, 10), (0.0, 0.5, 0.9, 30)], strict=True):
        document = measure(folder, trial, np.full(2000, 0.005))
        seen = {"unit": "ratio", "n": n, "min": low, "mean": mean, "p50": mean, "p95": high, "max": high}
        write_json(folder.trial(trial.id).metrics, document | {"telemetry": {"host.cpu_ratio": seen}})
    seen = encode(summarise(a_plan(trials), folder))["treatments"][0]["telemetry"]["host.cpu_ratio"]
    assert (seen["min"], seen["mean"], seen["max"], seen["n"]) == (0.0, approx(0.425), 0.9, 40)
