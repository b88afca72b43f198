"""Figures of schedules: what is drawn, summed up and chosen, from small schedules counted by hand."""

import numpy as np
import pyarrow as pa
import pytest
from samples import a_metrics, a_trial, a_view

from seamark.analysis.schedule.execution_rows import rows_of
from seamark.analysis.schedule.occupation import bars_of
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.model.results.summary import SummaryRow
from seamark.report.source import ShownWorkload
from seamark_simulate.report.page.gantt import (
    MOST_BARS,
    OTHERS,
    STEPS,
    charts_of,
    figures_of,
    gantt_pictures,
    models_of,
    shared_kinds,
    strips,
)
from seamark_simulate.report.page.schedules import course_pictures, gpu_time_picture, gpu_time_table, use_over_time
from seamark_simulate.report.schedules import (
    Schedules,
    ShownSchedule,
    by_makespan,
    compared_factor,
    median_figures,
    schedule_figures,
)


def rows(executions, gpus):
    """Return executions of (model, GPU, ready, taken, start, end, fetch); all arrive at zero."""
    names = ("model", "gpu", "ready_s", "taken_s", "start_s", "end_s", "fetch")
    columns = {name: [each[at] for each in executions] for at, name in enumerate(names)}
    columns |= {"gpus": [1] * len(executions), "arrival_s": [0.0] * len(executions)}
    table = pa.table(columns)
    return rows_of(table.replace_schema_metadata({b"seamark": f'{{"gpus": {gpus}}}'}))


LITTLE = [
    ("a", 0, 0.0, 0.0, 1.0, 4.0, "load"),
    ("b", 1, 0.0, 0.0, 0.0, 2.0, "none"),
    ("b", 0, 2.0, 4.0, 6.0, 8.0, "switch"),
]


def metrics(makespan_s, executions=3, **more):
    plain = {"requests": 3, "gpus": (), "models": {}, "switches": 1, "switch_s": 2.0, "cold_loads": 1}
    plain |= {"cold_load_s": 1.0, "completion": None, "waiting": None}
    return ScheduleMetrics(makespan_s=makespan_s, executions=executions, **(plain | more))


def trial(repetition=1, makespan_s=8.0, status="ok"):
    seen = a_metrics(origin="simulated", status=status, schedule=metrics(makespan_s))
    return a_view(a_trial(repetition=repetition), seen)


def shown(executions, gpus, group="", curve="", **factors):
    row = SummaryRow(treatment=curve, workload="cluster", service="cluster", factors=factors, repetitions=1)
    read = rows(executions, gpus)
    own = {"figures": median_figures([schedule_figures(metrics(8.0), read)]), "view": trial(), "rows": read}
    return ShownSchedule(treatment=row, label=f"policy {curve}", group=group, curve=curve, **own)


def drawn_for(*schedules, name="cluster"):
    """Return the workload of these schedules."""
    rows_of_it = tuple(schedule.treatment for schedule in schedules)
    return ShownWorkload(results=None, service=name, name=name, treatments=rows_of_it)


def many(count, gpus=2):
    """Return executions in turn on each GPU, of 2 s each, without any load."""
    return [
        ("a", at % gpus, 0.0, 2.0 * (at // gpus), 2.0 * (at // gpus), 2.0 * (at // gpus) + 2, "none")
        for at in range(count)
    ]


@pytest.mark.covers("C11", "E-FR12")
def test_shares_loads_and_waits_of_a_schedule_are_those_counted_by_hand():
    found = median_figures([schedule_figures(metrics(8.0), rows(LITTLE, 2))])
    assert (found["run_ratio"], found["load_ratio"], found["switch_ratio"]) == (7 / 16, 1 / 16, 2 / 16)
    assert found["idle_ratio"] == 6 / 16
    assert (found["queue_mean"], found["queue_most"]) == (2 / 8, 1)
    assert found["lacking_s"] == 0.0, "GPU 1 is free from 2 on"
    assert found["held_back_s"] == pytest.approx(2 / 3)
    assert found["predecessors_s"] == pytest.approx(2 / 3)
    assert use_over_time(rows(LITTLE, 2), 8.0, 4).tolist() == [1.0, 0.5, 0.5, 0.5]


@pytest.mark.slow
@pytest.mark.covers("E-FR12")
def test_a_chart_above_five_thousand_bars_is_summed_up_and_its_caption_says_so():
    few, lots = shown(many(MOST_BARS), 2), shown(many(MOST_BARS + 1), 2)
    assert [chart.is_summed for chart in charts_of([few], ("a",))] == [False]
    assert [chart.is_summed for chart in charts_of([lots], ("a",))] == [True]
    assert [chart.is_summed for chart in charts_of([lots, shown(LITTLE, 2)], ("a", "b"))] == [True, False]
    [picture] = gantt_pictures([few], drawn_for(few))
    assert "Summed up" not in picture.caption
    assert picture.svg.count(b"H") > MOST_BARS
    [picture] = gantt_pictures([lots], drawn_for(lots))
    assert "Summed up, as 5,001 bars are too many to draw: for each GPU" in picture.caption
    assert len(picture.svg) < 100_000


@pytest.mark.slow
def test_more_gpus_than_rows_share_rows():
    wide = shown(many(300, gpus=100), 100)
    [picture] = gantt_pictures([wide], drawn_for(wide))
    assert "Summed up, as there are more than 32 GPUs: for each row of up to 4 GPUs" in picture.caption


def test_a_strip_is_coloured_by_its_shares_from_the_bottom_up():
    shares = np.array([[[0.5, 0.0], [0.25, 1.0]]])
    image = strips(shares, np.array([[1.0, 0, 0], [0, 1.0, 0]]))
    assert image.shape == (STEPS + 2, 2, 3)
    red, green, white = [255, 0, 0], [0, 255, 0], [255, 255, 255]
    left = [image[1 + at, 0].tolist() for at in range(STEPS)]
    assert left == [white] * 4 + [green] * 4 + [red] * 8
    assert all(image[1 + at, 1].tolist() == green for at in range(STEPS))
    assert image[0, 1].tolist() == image[-1, 1].tolist() == white


def test_rare_models_share_a_colour():
    executions = [(f"m{at % 9}", 0, 0.0, float(at), float(at), at + 1.0, "none") for at in range(80)]
    own = shown(executions, 1)
    models = models_of([own])
    assert models == ("m0", "m1", "m2", "m3", "m4", "m5", OTHERS)
    kinds = shared_kinds(bars_of(own.rows), own.rows.models, models).kind
    assert np.bincount(kinds).tolist() == [9, 9, 9, 9, 9, 9, 26]


def test_figures_hold_a_group_that_is_compared_and_are_not_too_high():
    three = [shown(LITTLE, 2, group, curve) for group in "xy" for curve in ("p", "q", "r")]
    assert [len(group) for group in figures_of(three)] == [3, 3]
    assert [len(group) for group in figures_of([shown(LITTLE, 32, str(at)) for at in range(3)])] == [1, 1, 1]


@pytest.mark.covers("E-FR12")
def test_the_trial_that_is_drawn_has_the_median_makespan_or_is_the_repetition_of_those_beside_it():
    trials = [trial(1, 9.0), trial(2, 7.0), trial(3, 8.0), trial(4, 1.0, "failed"), trial(5, 30.0)]
    assert [view.trial.repetition for view, _ in by_makespan(trials)] == [3, 2, 1, 5]
    assert [view.trial.repetition for view, _ in by_makespan(trials, first=5)] == [5, 3, 2, 1]
    assert [view.trial.repetition for view, _ in by_makespan(trials, first=4)] == [3, 2, 1, 5]


def test_policies_are_compared_before_factors_with_more_levels():
    def treatments(**factors):
        return [
            SummaryRow(treatment="t", workload="w", service="s", factors={name: value})
            for name, levels in factors.items()
            for value in levels
        ]

    assert compared_factor(treatments(policy=["a", "b"], cluster_gpus=[1, 2, 4])) == "policy"
    assert compared_factor(treatments(arrivals=["x", "y"], cluster_gpus=[1, 2, 4])) == "cluster_gpus"
    assert compared_factor(treatments(cluster_gpus=list(range(1, 20)))) is None


@pytest.mark.slow
@pytest.mark.covers("E-FR12")
def test_one_execution_on_one_gpu_is_drawn():
    single = shown([("a", 0, 0.0, 0.0, 0.0, 5.0, "none")], 1)
    found, workload = Schedules(shown=(single,)), drawn_for(single)
    assert len(gantt_pictures(found.shown, workload)) == 1
    assert len(course_pictures(found, workload)) == 1
    assert gpu_time_picture(found, workload).svg
    table = gpu_time_table(found, workload)
    values = {each.name: each.cells[0].text for each in table.columns}
    assert (values["execution"], values["idle"], values["too few free"]) == ("100", "0", "0")


@pytest.mark.slow
def test_a_hundred_thousand_executions_take_little_time_and_space():
    import time

    began = time.process_time()
    large = shown(many(100_000, gpus=1000), 1000)
    found, workload = Schedules(shown=(large,)), drawn_for(large)
    pictures = [*gantt_pictures(found.shown, workload), *course_pictures(found, workload)]
    assert time.process_time() - began < 10.0
    assert sum(len(each.svg) for each in pictures) < 500_000
