"""Series: the runs of one treatment on one machine in one figure, their change points, and a judgement of the latest.

Pure but for the queries of the index.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any, Literal

from seamark.errors import UserError, did_you_mean
from seamark.history.index import Index
from seamark.history.runs import SHORT
from seamark.model.service import Value
from seamark.stats.change_points import SIGNIFICANCE, e_divisive

Direction = Literal["higher", "lower", "neither"]
Lacks = Literal["no figures", "withheld", "not in latest run"]
Judged = Literal["better", "worse", "changed", "within", "no reference", "range", "lower bound"] | Lacks

DEFAULT_METRICS = ("throughput.value", "latency_ms.p50", "latency_ms.p99")
THRESHOLD_RATIO = 0.05
CONDITIONS = ("seamark", "metrics_version", "service_version", "server", "site")
"""Columns of the index that explain a change besides the commit."""
KEY = ("scenario", "workload", "treatment", "machine", "metric")
LATEST = """
    SELECT scenario, treatment, machine, run_folder, bool_and(server IS NULL) AS nowhere,
        bool_or(status = 'ok' AND verdict <> 'INVALID') AS good
    FROM trials JOIN stamps USING (folder) WHERE NOT copy GROUP BY ALL ORDER BY min(started_at), run_folder
"""
LEAST_COMMIT = 4
"""Digits of a commit that name it."""
QUERY = """
    SELECT scenario, workload, treatment, machine, metric, unit, run_folder,
        any_value(run) AS run, bool_or(kept) AS kept, max_by(levels, started_at) AS levels,
        max_by(better, started_at) AS better, min(started_at) AS started_at,
        max_by(commit, started_at) AS commit, count(DISTINCT commit) AS commits, bool_or(dirty) AS dirty,
        median(value) FILTER (good) AS value, min(value) FILTER (good) AS low, max(value) FILTER (good) AS high,
        coalesce(bool_or(history.lower_bound) FILTER (good), FALSE) AS lower_bound,
        median(CASE WHEN history.lower_bound THEN coalesce(most, 'inf') ELSE value END) FILTER (good) AS most,
        count(*) FILTER (good) AS n, count(*) FILTER (NOT good) AS invalid,
        {conditions}
    FROM (SELECT *, status = 'ok' AND verdict <> 'INVALID' AS good FROM history) AS history
    JOIN stamps USING (folder)
    WHERE NOT copy AND list_contains(?, metric) AND (? IS NULL OR scenario = ?)
    GROUP BY ALL
    ORDER BY scenario, workload, treatment, machine, metric, unit, min(started_at), run_folder
""".format(conditions=", ".join(f"max_by({name}, started_at) AS {name}" for name in CONDITIONS))


@dataclass(frozen=True, kw_only=True)
class RunValue:
    """One run in a series: the median of its `n` repetitions with figures that are not INVALID, their extremes, and
    the number of INVALID ones, which are left out. It is a `lower_bound` if one of them is, of a range up to `most`,
    None without a limit. `commits` above 1: its trials were measured at several, of which `commit` is the latest."""

    run: str
    kept: bool
    folder: str
    started_at: str
    commit: str | None
    commits: int
    dirty: bool | None
    value: float
    low: float
    high: float
    n: int
    invalid: int
    lower_bound: bool
    most: float | None
    conditions: Mapping[str, str | None]

    @property
    def short_commit(self) -> str | None:
        """The commit, shortened; a `+` marks a checkout with changes."""
        return f"{self.commit[:SHORT]}{'+' if self.dirty else ''}" if self.commit else None

    @property
    def place(self) -> str:
        """The name of the run with its commit."""
        return f"{self.run} at {self.short_commit}" if self.commit else self.run


@dataclass(frozen=True, kw_only=True)
class Series:
    """The runs of one treatment on one machine, in the order of their time, in one figure and unit.

    `lacks` is why the latest of these runs is not the latest run of the scenario: `no figures` if the treatment
    failed, is damaged or INVALID there, `withheld` if this figure is, `not in latest run` if it was not measured, or
    in another unit.
    """

    scenario: str
    workload: str
    treatment: str
    levels: Mapping[str, Value]
    machine: str
    metric: str
    unit: str
    better: Direction
    runs: tuple[RunValue, ...]
    lacks: Lacks | None = None


@dataclass(frozen=True, kw_only=True)
class SeriesChange:
    """A change point: the medians of the runs since the last one and until the next one, `ratio` after / before (None
    unless both are positive), the last run before and the first after, and what else differs between these two. Runs
    with a lower bound are on neither side."""

    at: int
    p: float
    before: float
    after: float
    ratio: float | None
    judged: Judged
    last_before: str
    first_after: str
    commit_before: str | None
    commit_after: str | None
    place_before: str
    place_after: str
    also_changed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A series with its change points, and its latest run against a reference: a named run, or the median of the
    `reference_n` earlier runs since the last change point. `ratio` is latest / reference, None where that is no
    number. Past `threshold_ratio` the latest run is better or worse; `changed` where neither direction is better. A
    treatment that the latest run of the scenario lacks is not judged by an older one."""

    series: Series
    changes: tuple[SeriesChange, ...]
    reference: float | None
    reference_n: int
    reference_name: str
    ratio: float | None
    threshold_ratio: float
    judged: Judged


def series_of(index: Index, metrics: Sequence[str], scenario: str | None = None) -> list[Series]:
    """Return the series of these metrics, of one scenario or of all."""
    latest, of_treatment = dict[tuple[str, str], str](), dict[tuple[str, str, str], dict[str, Any]]()
    for row in index.rows(LATEST):
        machines = {machine for known, machine in latest if known == row["scenario"]} if row["nowhere"] else ()
        for machine in {row["machine"], *machines}:
            latest[row["scenario"], machine] = row["run_folder"]
            of_treatment[row["scenario"], machine, row["treatment"]] = row
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    there: set[tuple[str, ...]] = set()
    for row in index.rows(QUERY, [list(metrics), scenario, scenario]):
        if row["value"] is not None:
            key = tuple(row[name] for name in KEY)
            groups.setdefault((*key, row["unit"]), []).append(row)
            there.add((*key, row["run_folder"]))
    found = []
    for key, rows in groups.items():
        row = rows[-1]
        here = of_treatment[row["scenario"], row["machine"], row["treatment"]]
        lacks: Lacks | None = None
        if here["run_folder"] != row["run_folder"] and (*key[:-1], here["run_folder"]) not in there:
            lacks = "withheld" if here["good"] else "no figures"
        elif row["run_folder"] != latest[row["scenario"], row["machine"]]:
            lacks = "not in latest run"
        same = {name: row[name] for name in (*KEY, "unit", "better")}
        found.append(Series(**same, levels=json.loads(row["levels"]), runs=tuple(map(_value, rows)), lacks=lacks))
    return sorted(
        found, key=lambda series: (series.scenario, series.machine, metrics.index(series.metric), *_order(series))
    )


def _order(series: Series) -> tuple[object, ...]:
    """Return the place of a treatment among others: numbers of a factor rise."""
    levels = series.levels.items()
    numbers = [(name, isinstance(value, str), 0 if isinstance(value, str) else value or 0) for name, value in levels]
    return series.workload, numbers, series.treatment


def _value(row: Mapping[str, Any]) -> RunValue:
    same = ("run", "kept", "commit", "commits", "dirty", "value", "low", "high", "n", "invalid", "lower_bound")
    return RunValue(
        **{name: row[name] for name in same},
        most=None if row["most"] == inf else row["most"],
        folder=row["run_folder"],
        started_at=f"{row['started_at'].isoformat(timespec='seconds')}+00:00",
        conditions={name: None if row[name] is None else str(row[name]) for name in CONDITIONS},
    )


def judge(
    series: Series,
    *,
    baseline: str | None = None,
    threshold_ratio: float = THRESHOLD_RATIO,
    significance: float = SIGNIFICANCE,
) -> Judgement:
    """Find the change points of a series and judge its latest run.

    The reference is the run that `baseline` names (its name, or the beginning of its commit; of several the latest,
    but never the latest run itself). Without one it is the median of the earlier runs since the last change point:
    the latest run is then judged against its recent past, until a lasting change is a change point and the new level.
    Runs with a lower bound are no reference, and a latest one is judged only if both of its ends are judged alike.
    """
    known = [at for at, run in enumerate(series.runs) if not run.lower_bound]
    points = e_divisive([series.runs[at].value for at in known], significance=significance)
    ps = {known[point.at]: point.p for point in points}
    places = list(ps)
    changes = tuple(
        _change(series, start, at, end, ps[at], threshold_ratio)
        for start, at, end in zip([0, *places], places, [*places[1:], len(series.runs)], strict=False)
    )
    *earlier, latest = series.runs
    if baseline is None:
        recent = [run for run in earlier[places[-1] if places else 0 :] if not run.lower_bound]
        name = f"median of {len(recent)} earlier runs" if len(recent) > 1 else recent[0].place if recent else ""
    else:
        recent = [run for run in earlier if _is_named(run, baseline) and not run.lower_bound][-1:]
        name = recent[0].place if recent else ""
    reference = median(run.value for run in recent) if recent else None
    unjudged: Judged | None = series.lacks or ("no reference" if reference is None else None)
    return Judgement(
        series=series,
        changes=changes,
        reference=reference,
        reference_n=len(recent),
        reference_name=name,
        ratio=None if reference is None else _ratio(reference, latest.value),
        threshold_ratio=threshold_ratio,
        judged=unjudged or _judged_run(series, reference or 0.0, latest, threshold_ratio),
    )


def _judged_run(series: Series, reference: float, latest: RunValue, threshold_ratio: float) -> Judged:
    judged = _judged(series, reference, latest.value, threshold_ratio)
    if latest.most is None:
        return "lower bound" if judged == "within" or latest.value < reference else judged
    return judged if judged == _judged(series, reference, latest.most, threshold_ratio) else "range"


def _change(series: Series, start: int, at: int, end: int, p: float, threshold_ratio: float) -> SeriesChange:
    earlier, later = (
        [run for run in part if not run.lower_bound] for part in (series.runs[start:at], series.runs[at:end])
    )
    before, after = (median(run.value for run in part) for part in (earlier, later))
    last, first = earlier[-1], later[0]
    return SeriesChange(
        at=at,
        p=p,
        before=before,
        after=after,
        ratio=_ratio(before, after),
        judged=_judged(series, before, after, threshold_ratio),
        last_before=last.run,
        first_after=first.run,
        commit_before=last.commit,
        commit_after=first.commit,
        place_before=last.place,
        place_after=first.place,
        also_changed=tuple(_differences(last, first)),
    )


def _differences(one: RunValue, other: RunValue) -> Iterator[str]:
    for name in CONDITIONS:
        old, new = one.conditions.get(name), other.conditions.get(name)
        if old != new:
            yield f"{name} {_short(name, old)} -> {_short(name, new)}"


def _short(name: str, value: str | None) -> str:
    return "unknown" if value is None else value[:SHORT] if name == "server" else value


def _ratio(before: float, after: float) -> float | None:
    return after / before if before > 0 and after > 0 else None


def _judged(series: Series, before: float, after: float, threshold_ratio: float) -> Judged:
    """Return the direction of a change that is larger than the threshold, as a share of `before`; any change of 0
    is."""
    if abs(after - before) <= threshold_ratio * abs(before) * (1 + 1e-12):
        return "within"
    if series.better == "neither":
        return "changed"
    return "better" if (after > before) == (series.better == "higher") else "worse"


def _is_named(run: RunValue, text: str) -> bool:
    of_commit = len(text) >= LEAST_COMMIT and run.commit is not None and run.commit.startswith(text)
    return run.run == text or of_commit


def require_baseline(found: Sequence[Series], baseline: str) -> None:
    """Raise UserError if no series has a run of that name or commit before its latest."""
    if any(_is_named(run, baseline) for series in found for run in series.runs[:-1]):
        return
    known = dict.fromkeys(run.run for series in found for run in series.runs[:-1])
    if any(_is_named(series.runs[-1], baseline) for series in found):
        raise UserError(
            f"--baseline {baseline}: is the latest run, which is what would be judged. Name an earlier one: "
            f"{_listed(known)}."
        )
    raise UserError(
        f"--baseline {baseline}: no earlier run has that name, or a commit that begins so (at least {LEAST_COMMIT}"
        f" digits). Earlier runs: {_listed(known)}.{did_you_mean(baseline, known)}"
    )


def _listed(names: Mapping[str, None]) -> str:
    return ", ".join(list(names)[-8:]) or "none"


def metric_named(index: Index, text: str) -> str:
    """Return the metric in the index that a word names: its path, its column, or the only one that begins so. Raises
    UserError with the nearest guess."""
    known = [row["metric"] for row in index.rows("SELECT DISTINCT metric FROM figures ORDER BY metric")]
    word = text.replace(".", "_")
    same = [name for name in known if word in (name.replace(".", "_"), name.partition(".")[2].replace(".", "_"))]
    if not same and f"{text}.value" in known:
        same = [f"{text}.value"]
    begin = same or [name for name in known if name.replace(".", "_").startswith(word)]
    if text in known:
        return text
    if not text:
        begin = []
    if len(begin) == 1:
        return str(begin[0])
    if begin:
        raise UserError(f"--metric {text}: names several: {', '.join(begin[:6])}. Choose one.")
    raise UserError(f"--metric {text}: no trial has it.{did_you_mean(text, known)} docs/measurement.md lists all.")


def chosen(found: Sequence[Series], treatment: str) -> list[Series]:
    """Return the series of a treatment: by its id, or by levels such as `concurrency=1,operation=read`. Raises
    UserError if there is none."""
    exact = [series for series in found if treatment in (series.treatment, series.workload)]
    if exact:
        return exact
    wanted = [word.partition("=")[::2] for word in treatment.split(",")]
    of_levels = [
        series for series in found if all(str(series.levels.get(name)) == level for name, level in wanted if name)
    ]
    if of_levels and all(name for name, _ in wanted):
        return of_levels
    known = list(
        dict.fromkeys(",".join(f"{k}={v}" for k, v in series.levels.items()) or series.treatment for series in found)
    )
    raise UserError(
        f"--treatment {treatment}: no such treatment. Known: {'; '.join(known[:8]) or 'none'}"
        f"{'; ...' if len(known) > 8 else ''}.{did_you_mean(treatment, known)}"
    )
