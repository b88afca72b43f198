"""Series of runs: medians over repetitions, change points between commits, and the latest run against a reference."""

import json

import pytest
from made_runs import Night, nights

from seamark.errors import UserError
from seamark.history.index import open_index
from seamark.history.series import chosen, judge, metric_named, require_baseline, series_of
from seamark.history.text import as_text, document, failures, trend
from seamark.model.service import Quality
from seamark.model.trial import Plan
from seamark.storage.documents import write
from seamark.storage.paths import ScenarioFolder

STEP = [100, 101, 99, 100, 102, 98, 80, 81, 79, 80, 82, 81]


def judged(results, metric="throughput.value", **options):
    with open_index(results) as index:
        scanned = index.update({"present": results})
        found = series_of(index, (metric,))
    return [judge(series, **options) for series in found], scanned


def test_the_value_of_a_run_is_the_median_of_its_good_repetitions(tmp_path):
    Night(number=0, throughputs={1: (10, 50, 20)}).write(tmp_path / "history" / "made" / "a")
    [one], _ = judged(tmp_path)
    [run] = one.series.runs
    assert (run.value, run.low, run.high, run.n, run.invalid) == (20, 10, 50, 3, 0)
    assert one.judged == "no reference"


@pytest.mark.slow
def test_a_planted_step_is_found_between_its_two_commits(tmp_path):
    made = nights(tmp_path, STEP, users=(1, 4))
    for one in judged(tmp_path)[0]:
        [change] = one.changes
        users = one.series.levels["concurrency"]
        assert (change.last_before, change.first_after) == ("night-5", "night-6")
        assert (change.commit_before, change.commit_after) == (made[5].commit, made[6].commit)
        assert (change.before, change.after) == pytest.approx((100 * users, 80.5 * users))
        assert change.judged == "worse"
        assert change.also_changed == ()
        assert one.judged == "within"  # the new level is the reference
        assert one.reference_n == 5


def test_what_else_changed_with_the_commit_is_named(tmp_path):
    nights(tmp_path, STEP[:6])
    for number, level in enumerate(STEP[6:], 6):
        night = Night(number=number, throughputs={1: (level,)}, seamark="0.2.0")
        night.write(tmp_path / "history" / "made" / f"night-{number}")
    [one], _ = judged(tmp_path)
    assert one.changes[0].also_changed == ("seamark 0.1.0 -> 0.2.0",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "threshold", "said"),
    [(100, 0.05, "within"), (96, 0.05, "within"), (94, 0.05, "worse"), (106, 0.05, "better"), (94, 0.1, "within")],
)
def test_the_latest_run_is_judged_against_the_median_of_those_before(tmp_path, level, threshold, said):
    nights(tmp_path, [100, 100, 100, 100, level])
    [one], _ = judged(tmp_path, threshold_ratio=threshold)
    assert (one.judged, one.reference, one.reference_n) == (said, 100, 4)
    assert one.ratio == pytest.approx(level / 100)


def test_a_metric_that_is_better_when_lower_is_worse_when_it_grows(tmp_path):
    for number, p99_ms in enumerate((5, 5, 9)):
        night = Night(number=number, throughputs={1: (1,)}, p99_ms=p99_ms)
        night.write(tmp_path / "history" / "made" / f"{number}")
    [one], scanned = judged(tmp_path, metric="latency_ms.p99")
    assert one.judged == "worse"
    assert "9.00" in as_text([one], scanned, every_run=True)


def test_times_above_ten_seconds_are_in_seconds(tmp_path):
    for number, p99_ms in enumerate((50_000.0, 50_000.0, 90_000.0)):
        night = Night(number=number, throughputs={1: (1,)}, p99_ms=p99_ms)
        night.write(tmp_path / "history" / "made" / f"{number}")
    found, scanned = judged(tmp_path, metric="latency_ms.p99")
    text = as_text(found, scanned, every_run=True)
    assert "latency_ms.p99 (s, " in text
    assert [figure in text for figure in (" 90.0 ", " 50.0 ", "0,000")] == [True, True, False]
    assert " 90.0 s " in failures(found, "worse")[0]


@pytest.mark.parametrize("name", ["night-1", "0001abcdef"])
def test_a_baseline_is_named_by_run_or_by_commit(tmp_path, name):
    nights(tmp_path, [100, 50, 100, 100])
    [one], _ = judged(tmp_path, baseline=name)
    assert (one.reference, one.judged) == (50, "better")


def test_a_baseline_that_is_none_is_refused_with_those_that_are(tmp_path):
    nights(tmp_path, [100, 50, 100])
    series = [each.series for each in judged(tmp_path)[0]]
    for wrong, said in (("night-9", "Did you mean"), ("000", "no earlier run"), ("night-2", "is the latest run")):
        with pytest.raises(UserError, match=said):
            require_baseline(series, wrong)
    require_baseline(series, "night-1")


def test_runs_of_two_machines_are_two_series(tmp_path):
    nights(tmp_path, [100, 100])
    Night(number=5, throughputs={1: (10,)}, machine="node2").write(tmp_path / "made")
    found, _ = judged(tmp_path)
    assert [(each.series.machine, len(each.series.runs)) for each in found] == [("node1", 2), ("node2", 1)]


@pytest.mark.parametrize("fault", [{"verdict": "INVALID"}, {"throughputs": {1: (None, None)}}])
def test_a_latest_run_without_figures_fails_the_gate_and_is_not_judged_by_the_one_before(tmp_path, fault):
    nights(tmp_path, [100, 100])
    Night(number=5, **{"throughputs": {1: (100, 100)}, **fault}).write(tmp_path / "made")
    found, _ = judged(tmp_path)
    assert [each.judged for each in found] == ["no figures"]
    for fail_on in ("worse", "change"):
        [line] = failures(found, fail_on)
        assert "has no value in the latest run" in line


def test_invalid_repetitions_are_left_out_and_counted(tmp_path):
    nights(tmp_path, [100])
    path = tmp_path / "history" / "made" / "night-0" / "one--concurrency-1--r1" / "metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"verdict": "INVALID"}))
    [one], _ = judged(tmp_path)
    assert (one.series.runs[0].n, one.series.runs[0].invalid) == (2, 1)


def test_a_treatment_that_the_latest_run_does_not_have_is_not_judged(tmp_path):
    nights(tmp_path, [100, 100, 50], users=(1, 4))
    Night(number=5, throughputs={1: (100,)}).write(tmp_path / "made")
    found = {each.series.levels["concurrency"]: each.judged for each in judged(tmp_path)[0]}
    assert found == {1: "within", 4: "not in latest run"}


def test_the_gate_names_the_worse_or_every_change(tmp_path):
    nights(tmp_path, [100, 100, 100, 120])
    found, _ = judged(tmp_path)
    assert failures(found, "worse") == []
    [line] = failures(found, "change")
    assert line.startswith("better: made null concurrency=1: throughput.value 120 replies/s in night-3 at 0003abcd")


def test_metrics_are_named_by_path_column_or_beginning(tmp_path):
    nights(tmp_path, [100])
    with open_index(tmp_path) as index:
        index.update({"present": tmp_path})
        for word, path in {
            "throughput": "throughput.value",
            "throughput.value": "throughput.value",
            "latency_ms_p99": "latency_ms.p99",
            "recall_at_10": "quality.recall_at_10",
        }.items():
            assert metric_named(index, word) == path
        with pytest.raises(UserError, match=r"Did you mean 'latency_ms\.p99'"):
            metric_named(index, "latency_ms.q99")
        with pytest.raises(UserError, match="no trial has it"):
            metric_named(index, "")


def test_a_treatment_is_chosen_by_id_workload_or_levels(tmp_path):
    nights(tmp_path, [100, 100], users=(1, 4))
    series = [each.series for each in judged(tmp_path)[0]]
    assert [each.treatment for each in chosen(series, "concurrency=4")] == ["one--concurrency-4"]
    assert [each.treatment for each in chosen(series, "one--concurrency-1")] == ["one--concurrency-1"]
    assert len(chosen(series, "null")) == 2
    for wrong in ("concurrency=5", "concurency=4", "nothing", "", "="):
        with pytest.raises(UserError, match="no such treatment"):
            chosen(series, wrong)


def test_text_markdown_and_json_show_the_same_changes(tmp_path):
    nights(tmp_path, STEP)
    found, scanned = judged(tmp_path)
    text = as_text(found, scanned, every_run=True)
    assert "12 runs, 2026-01-01 to 2026-01-12" in text
    assert "-19.5 % (100 -> 80.5, worse, p 0.002) between night-5 at 0005abcd and night-6 at 0006abcd" in text
    assert "change point" in text
    assert "| null | concurrency=1 | 12 |" in as_text(found, scanned, every_run=False, markdown=True)
    made = json.loads(json.dumps(document(found, scanned), allow_nan=False))
    assert made["series"][0]["changes"][0]["at"] == 6
    assert len(made["series"][0]["series"]["runs"]) == 12


def test_a_trend_goes_from_the_least_to_the_largest():
    assert trend([1, 2, 3, 8]) == "▁▂▃█"
    assert trend([5, 5]) == "▄▄"


def present(results, night):
    return night.write(results / "made")


def test_figures_of_two_units_are_two_series(tmp_path):
    nights(tmp_path, [100, 101, 99, 100])
    present(tmp_path, Night(number=9, throughputs={1: (1600,)}, unit="tokens_per_s"))
    found, _ = judged(tmp_path)
    assert [(one.series.unit, len(one.series.runs), one.judged) for one in found] == [
        ("replies/s", 4, "not in latest run"),
        ("tokens/s", 1, "no reference"),
    ]
    assert failures(found, "worse") == []


def test_runs_on_two_partitions_of_a_cluster_are_two_series(tmp_path):
    for number, (partition, level) in enumerate((("cpu", 100), ("cpu", 100), ("gpu", 50))):
        night = Night(number=number, throughputs={1: (level,)}, machine="cluster", partition=partition)
        night.write(tmp_path / "history" / "made" / f"night-{number}")
    found, _ = judged(tmp_path)
    assert {one.series.machine: one.judged for one in found} == {
        "cluster, partition cpu": "within",
        "cluster, partition gpu": "no reference",
    }


@pytest.mark.slow
@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize(
    ("bound_ms", "said"), [(2_000.0, "lower bound"), (3_010.0, "lower bound"), (4_000.0, "worse")]
)
def test_a_lower_bound_is_never_better_and_worse_only_past_the_threshold(tmp_path, bound_ms, said):
    for number in range(4):
        night = Night(number=number, throughputs={1: (100,)}, p99_ms=3_000.0)
        night.write(tmp_path / "history" / "made" / f"night-{number}")
    present(tmp_path, Night(number=9, throughputs={1: (100,)}, p99_ms=bound_ms, p99_bound=True))
    found, scanned = judged(tmp_path, "latency_ms.p99")
    assert [one.judged for one in found] == [said]
    assert f"≥ {bound_ms:,.0f}" in as_text(found, scanned, every_run=True)
    assert len(failures(found, "worse")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends_ms", "said"),
    [((2_000.0, 2_500.0), "better"), ((2_500.0, 4_000.0), "range"), ((3_300.0, 4_000.0), "worse")],
)
def test_a_range_is_judged_where_both_of_its_ends_are_judged_alike(tmp_path, ends_ms, said):
    low_ms, high_ms = ends_ms
    for number in range(4):
        night = Night(number=number, throughputs={1: (100,)}, p99_ms=3_000.0)
        night.write(tmp_path / "history" / "made" / f"night-{number}")
    present(tmp_path, Night(number=9, throughputs={1: (100,)}, p99_ms=low_ms, p99_bound=True, p99_most=high_ms))
    found, scanned = judged(tmp_path, "latency_ms.p99")
    assert [one.judged for one in found] == [said]
    assert f"{low_ms:,.0f}–{high_ms:,.0f}" in as_text(found, scanned, every_run=True)
    assert len(failures(found, "worse")) == (said != "better")


def test_runs_with_a_lower_bound_are_no_reference_and_in_no_change_point(tmp_path):
    for number, level in enumerate([*STEP[:6], 1, 1, *STEP[6:]]):
        night = Night(number=number, throughputs={1: (100,)}, p99_ms=level, p99_bound=level == 1)
        night.write(tmp_path / "history" / "made" / f"night-{number:02d}")
    [one], _ = judged(tmp_path, "latency_ms.p99")
    [change] = one.changes
    assert (change.last_before, change.first_after) == ("night-05", "night-08")
    assert (change.before, change.after) == (100, 80.5)


@pytest.mark.covers("E-FR29")
def test_a_latest_run_with_damaged_files_fails_the_gate(tmp_path):
    nights(tmp_path, [100, 100, 100])
    folder = present(tmp_path, Night(number=9, throughputs={1: (100, 100)}))
    for path in folder.glob("*--*/metrics.json"):
        path.write_text("{")
    found, scanned = judged(tmp_path)
    assert [one.judged for one in found] == ["no figures"]
    assert len(scanned.damaged) == 2
    assert "which failed, is damaged or INVALID" in failures(found, "worse")[0]


def test_a_figure_that_is_withheld_in_the_latest_run_is_said_to_be(tmp_path):
    nights(tmp_path, [100, 100, 100])
    present(tmp_path, Night(number=9, throughputs={1: (100,)}, p99_ms=None))
    found, _ = judged(tmp_path, "latency_ms.p99")
    assert [one.judged for one in found] == ["withheld"]
    assert "is withheld in the latest run, whose samples are too few for it" in failures(found, "worse")[0]


def test_a_score_has_the_direction_that_its_recipe_declares(tmp_path):
    nights(tmp_path, [100, 100, 100])
    folder = present(tmp_path, Night(number=9, throughputs={1: (100,)}, score=0.3))
    assert [one.judged for one in judged(tmp_path, "quality.score")[0]] == ["changed"]
    plan = Plan(
        scenario="made",
        source="",
        seed=0,
        repetitions=1,
        max_retries=0,
        factors={},
        deployments=(),
        trials=(),
        qualities={"score": Quality(better="higher")},
    )
    write(ScenarioFolder(root=folder).plan, plan)
    [one] = judged(tmp_path, "quality.score")[0]
    assert one.judged == "worse"
