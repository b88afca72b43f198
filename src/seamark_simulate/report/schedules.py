"""Schedules of workflows on GPUs that a report shows: one trial of each treatment to draw, and figures of all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from seamark.analysis.metrics.samples import DamagedError
from seamark.analysis.schedule.execution_rows import FETCHES, ExecutionRows, read_rows
from seamark.analysis.schedule.occupation import bars_of, counts_over_time
from seamark.analysis.schedule.waiting import waiting_causes
from seamark.analysis.trial_view import TrialView
from seamark.model.plurals import counted
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.model.results.summary import SummaryRow
from seamark.report.numbers import level, levels_text
from seamark.report.ordering import levels_of
from seamark.report.source import ShownWorkload
from seamark_simulate.report.policies import POLICY

MOST_TREATMENTS, MOST_CURVES = 24, 7
MOST_EXECUTIONS = 1_000_000
"""Of a workload: further repetitions are left out of its figures, but one trial of each treatment takes part."""


@dataclass(frozen=True, kw_only=True)
class ShownSchedule:
    """One trial of a treatment. `label` has all levels of the treatment; `curve` is that of the factor that is
    compared, `group` has those of all others. `figures` are medians over `trials` repetitions, see
    `schedule_figures`."""

    treatment: SummaryRow
    label: str
    group: str
    curve: str
    view: TrialView
    rows: ExecutionRows
    figures: Mapping[str, float] = field(default_factory=dict)
    trials: int = 1


@dataclass(frozen=True, kw_only=True)
class Schedules:
    """What a report shows of a workload, group by group: within one, treatments differ by `compares` alone and are
    shown by the same repetition, so that all have the same requests. `notes` say what is not shown."""

    compares: str | None = None
    shown: tuple[ShownSchedule, ...] = ()
    notes: tuple[str, ...] = ()


def schedules_of(workload: ShownWorkload) -> Schedules:
    """Read the schedules of a workload. Damaged and missing files are left out and counted in a note."""
    views = {row.treatment: workload.results.trials_of(row) for row in workload.treatments}
    able = [
        row
        for row in workload.treatments
        if any(view.metrics and view.metrics.schedule for view in views[row.treatment])
    ]
    compares, varying = compared_factor(able), _varying(workload.treatments)
    others = [name for name in varying if name != compares]
    groups: dict[str, list[SummaryRow]] = {}
    for treatment in able:
        groups.setdefault(label_of(treatment, others), []).append(treatment)
    ordered = [(group, treatment) for group, members in groups.items() for treatment in members]
    shown: list[ShownSchedule] = []
    budget, unread = MOST_EXECUTIONS, 0
    for group, treatment in ordered[:MOST_TREATMENTS]:
        beside = [schedule.view.trial.repetition for schedule in shown if schedule.group == group]
        first: tuple[TrialView, ExecutionRows] | None = None
        repeats: list[Mapping[str, float]] = []
        for view, metrics in by_makespan(views[treatment.treatment], first=beside[0] if beside else None):
            if first is not None and metrics.executions > budget:
                continue
            try:
                rows = read_rows(view.folder.executions)
            except DamagedError:
                unread += 1
                continue
            budget -= metrics.executions
            if len(rows.model):
                repeats.append(schedule_figures(metrics, rows))
                first = first or (view, rows)
        if first is not None:
            shown.append(
                ShownSchedule(
                    treatment=treatment,
                    label=label_of(treatment, varying) or treatment.workload,
                    group=group,
                    curve=level(treatment.factors.get(compares), compares) if compares else "",
                    view=first[0],
                    rows=first[1],
                    figures=median_figures(repeats),
                    trials=len(repeats),
                )
            )
    notes = []
    if unread:
        notes.append(f"Left out: executions.parquet of {counted(unread, 'trial')} is missing or damaged.")
    if (more := len(able) - MOST_TREATMENTS) > 0:
        notes.append(f"Schedules of {counted(more, 'more treatment')} are not shown.")
    return Schedules(compares=compares, shown=tuple(shown), notes=tuple(notes))


def compared_factor(treatments: Sequence[SummaryRow]) -> str | None:
    """Return the factor whose levels are shown beside each other: the policy, else that with the most levels that can
    be told apart; None where nothing varies or there are too many levels."""
    able = {name: count for name, count in _varying(treatments).items() if count <= MOST_CURVES}
    return POLICY if POLICY in able else max(able, key=lambda name: able[name], default=None)


def _varying(treatments: Sequence[SummaryRow]) -> dict[str, int]:
    """Return the factors that vary, with their numbers of levels."""
    return {name: len(values) for name, values in levels_of(treatments).items() if len(values) > 1}


def by_makespan(views: Sequence[TrialView], first: int | None = None) -> list[tuple[TrialView, ScheduleMetrics]]:
    """Return good trials of one treatment with the figures of their schedules: the repetition `first`, if it is
    there, then that of the (lower) median makespan, then those nearest to it."""
    good = [(view, view.good.schedule) for view in views if view.good and view.good.schedule]
    good.sort(key=lambda pair: (pair[1].makespan_s, pair[0].trial.repetition))
    middle = (len(good) - 1) // 2
    far = {view.id: (view.trial.repetition != first, abs(at - middle), at) for at, (view, _) in enumerate(good)}
    return sorted(good, key=lambda pair: far[pair[0].id])


def label_of(treatment: SummaryRow, names: Iterable[str]) -> str:
    """Return a treatment's levels of some factors: `policy easy, generated_requests 50`."""
    return levels_text({name: treatment.factors[name] for name in names if name in treatment.factors})


def schedule_figures(metrics: ScheduleMetrics, rows: ExecutionRows) -> dict[str, float]:
    """Return the figures of one trial: shares of the time of all GPUs until the makespan, numbers (those of its
    metrics.json) and seconds of first loads and switches, nodes that wait for GPUs, and seconds a node waits by
    cause."""
    bars, models = bars_of(rows), len(rows.models)
    whole_s, took_s = rows.makespan_s * rows.gpus, bars.end_s - bars.begin_s
    kinds = {"run": bars.kind < models, **{name: bars.kind == models + at for at, name in enumerate(FETCHES)}}
    _, waiting = counts_over_time(rows.ready_s, rows.taken_s)
    waited_s = float((rows.taken_s - rows.ready_s).clip(0.0).sum())
    return {
        **{f"{name}_ratio": float(took_s[own].sum()) / whole_s if whole_s else 0.0 for name, own in kinds.items()},
        "loads": metrics.cold_loads,
        "load_s": metrics.cold_load_s,
        "switches": metrics.switches,
        "switch_s": metrics.switch_s,
        "queue_mean": waited_s / rows.makespan_s if rows.makespan_s else 0.0,
        "queue_most": float(waiting.max(initial=0)),
        **{name: float(seconds.mean()) for name, seconds in vars(waiting_causes(rows)).items()},
    }


def median_figures(repeats: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the medians of figures over repetitions, and the share of the time of all GPUs that these leave."""
    medians = {name: median(figures[name] for figures in repeats) for name in repeats[0]}
    used = sum(medians[f"{name}_ratio"] for name in ("run", *FETCHES))
    return medians | {"idle_ratio": max(0.0, round(1.0 - used, 12))}
