"""Derives the metrics of one trial from its load record, samples and telemetry. Writes no file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, TypeVar

from seamark.analysis.checks import CheckedTrial, gravest_first, judge, worst
from seamark.analysis.checks.result import trial_failed
from seamark.analysis.metrics.distribution import QUANTILES, TimeDistribution
from seamark.analysis.metrics.metric import MetricInputs, own_metrics
from seamark.analysis.metrics.metric_inputs import metric_inputs
from seamark.analysis.metrics.objectives import CHUNKS, judged_objectives
from seamark.analysis.metrics.processors import others_unknown, processors_of
from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.metrics.table import BOUNDED, METRICS, SELDOM, TIMES, VERSION, error_ranges, goodput_ranges
from seamark.analysis.metrics.telemetry import Key, SeriesSummary
from seamark.analysis.metrics.timeline import Second, series_of
from seamark.analysis.metrics.window import RULE_OF_PARTIES
from seamark.analysis.metrics.window_counts import KindCounts
from seamark.model.dotted import mark_of
from seamark.model.plurals import plural
from seamark.model.results.answers import AnswersRecord
from seamark.model.results.calibration import WireCeiling
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.replicas import ANSWERS, PREFIX_HITS, PREFIX_QUERIES, REQUESTS, ReplicaFigures, Replicas
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.model.results.times import (
    BoundedDistribution,
    BoundedKindTimes,
    Distribution,
    KindTimes,
    LagDistribution,
)
from seamark.model.results.trial_metrics import (
    Bandwidth,
    EnergyFigures,
    Errors,
    Goodput,
    KindFigures,
    MeasuredWindow,
    PercentileMethod,
    RequestCounts,
    Sessions,
    Throughput,
    TrialMetrics,
)
from seamark.model.trial import SCHEMA_VERSION, Deployment, Trial
from seamark.stats.histogram import Histogram
from seamark.storage.paths import TrialFolder
from seamark.storage.redaction import redacted

Value = TypeVar("Value")

GROUPS: Mapping[str, type] = {
    "throughput": Throughput,
    "sessions": Sessions,
    "bandwidth": Bandwidth,
    **dict.fromkeys(BOUNDED, BoundedDistribution),
    **dict.fromkeys(("tpot_ms", "inter_chunk_ms", "normalised_latency_ms"), Distribution),
    "schedule_lag_ms": LagDistribution,
    "counts": RequestCounts,
    "errors": Errors,
    "goodput": Goodput,
    "energy": EnergyFigures,
}
"""Nouns of the groups into which the paths of the table of metrics nest; other groups are mappings."""
ALWAYS = ("throughput", "latency_ms", "service_time_ms", "counts", "errors", "resource")
"""Groups that are not replaced by None where nothing of them is known."""


@dataclass(frozen=True, kw_only=True)
class DerivedMetrics:
    """Everything derived from one trial's samples. `series` and `histograms` are empty if the samples cannot be read.
    `censored` has lower bounds of the times of unanswered requests, under the names of `histograms`."""

    metrics: TrialMetrics
    series: Sequence[Second] = ()
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    censored: Mapping[str, Histogram] = field(default_factory=dict)


def derive_metrics(
    trial: Trial,
    load: LoadRecord,
    folder: TrialFolder,
    *,
    scenario: str,
    deployment: Deployment | None = None,
    client_is_server: bool | None = None,
    ceiling: WireCeiling | None = None,
    answers: AnswersRecord | None = None,
    schedule: Callable[[], ScheduleMetrics] | None = None,
    gpu_hz: float | None = None,
) -> DerivedMetrics:
    """Return the metrics of a trial with their verdict, its series and its histograms.

    `client_is_server`: the service runs inside the client; None: it does when there is no telemetry of a server.
    `ceiling` is the client's own limit, `answers` says how its kept replies were scored: scores are withheld where
    items have no answer, as a mean of the rest is that of an easier task. `schedule` reads the figures of simulated
    workflows and raises DamagedError. `gpu_hz` is the highest clock of the GPUs, by provenance. A failed load or
    damaged samples give metrics of status failed, with a reason in place of figures.
    """
    metrics = _without_figures(trial, load, scenario, deployment)
    if answers is not None:
        whole = not answers.unanswered(load.items)
        scores = {name: score.mean if whole else None for name, score in answers.scores.items()}
        metrics = replace(metrics, quality={**load.quality, **scores}, quality_version=answers.quality_version)
    series: Sequence[Second] = ()
    try:
        samples = open_samples(folder.samples, trial.config_hash)
        series = tuple(series_of(samples, trial.load, simulated=load.virtual_clock))
        if not load.ok:
            return DerivedMetrics(metrics=_failed(metrics, _as_the_server_says(load, answers)), series=series)
        inputs = metric_inputs(trial, load, samples, folder, deployment)
        if not inputs.counts.rows:
            raise DamagedError("no request was recorded")
        figures = None if schedule is None else schedule()
    except DamagedError as damage:
        return DerivedMetrics(metrics=_failed(metrics, load, str(damage)))
    metrics = _with_figures(metrics, trial, load, inputs)
    metrics = replace(metrics, slos=judged_objectives(trial.slos, metrics), schedule=figures)
    if client_is_server is None:
        client_is_server = bool(inputs.telemetry) and not any(source == "server" for source, _ in inputs.telemetry)
    view = CheckedTrial(
        trial=trial,
        load=load,
        metrics=metrics,
        counts=inputs.counts,
        processors=processors_of(inputs.telemetry, client_is_server=client_is_server),
        others_unknown=others_unknown(inputs.telemetry, client_is_server=client_is_server),
        client_is_server=client_is_server or trial.component == "null",
        ceiling=ceiling,
        gpu_hz=gpu_hz,
        answers=answers,
    )
    verdict, reasons = judge(view, trial.checks)
    kept = (name for group, name in TIMES.items() if group != "normalised_latency_ms")
    times: dict[str, TimeDistribution] = {f"{name}_ns": getattr(inputs.counts, name) for name in kept}
    return DerivedMetrics(
        metrics=_rounded(replace(metrics, verdict=verdict, reasons=reasons)),
        series=series,
        histograms={name: distribution.histogram for name, distribution in times.items()},
        censored={name: distribution.bounds for name, distribution in times.items() if distribution.bounds.count},
    )


def metrics_of_whole(
    trial: Trial,
    load: LoadRecord,
    parties: Mapping[str, TrialMetrics],
    *,
    scenario: str,
    deployment: Deployment | None = None,
) -> TrialMetrics:
    """Return the metrics of a trial with parties: it has no figures of its own, and the reasons of all of them."""
    metrics = _without_figures(trial, load, scenario, deployment)
    if not load.ok:
        return _failed(metrics, load)
    reasons = gravest_first(
        replace(reason, text=f"{name}: {reason.text}") for name, party in parties.items() for reason in party.reasons
    )
    start_s, end_s = load.window_s or (None, None)
    return replace(
        metrics,
        window=MeasuredWindow(start_s=start_s, end_s=end_s, rule=RULE_OF_PARTIES),
        verdict=worst([party.verdict for party in parties.values()]),
        reasons=reasons,
    )


def _without_figures(trial: Trial, load: LoadRecord, scenario: str, deployment: Deployment | None) -> TrialMetrics:
    """Return the metrics of a trial of which nothing is derived yet: what it is, and what its load says."""
    settings = trial.settings
    return TrialMetrics(
        schema_version=SCHEMA_VERSION,
        metrics_version=VERSION,
        trial_id=trial.trial_id,
        trial=trial.id,
        scenario=scenario,
        treatment=trial.treatment,
        timestamp=load.started_at or load.finished_at,
        component=trial.component,
        service=trial.service,
        origin=load.origin,
        status="ok",
        category=None,
        reason=None,
        repetition=trial.repetition,
        block=trial.block,
        position=trial.position,
        config={
            **redacted(settings),
            "gpus": deployment.gpus if deployment else None,
            "batch": settings.get("batch", settings.get("batch_size")),
            "concurrency": trial.load.concurrency,
            "nodes": deployment.nodes if deployment else None,
        },
        changed=redacted(trial.changed),
        **_groups(None, load),
        over_saturated_at_s=load.over_saturated_at_s,
        search=load.search,
        slos=(),
        quality=load.quality,
        telemetry={},
        verdict="VALID",
        reasons=(),
        own=own_metrics(trial.metrics, None),
        own_checks=tuple(map(mark_of, trial.checks)),
    )


def _failed(metrics: TrialMetrics, load: LoadRecord, damage: str | None = None) -> TrialMetrics:
    """Return the metrics of a trial without figures; its counts come from load.json."""
    if load.ok:
        category, reason = "no_samples", damage or ""
    else:
        category = load.category or ("timeout" if load.status == "timeout" else "client_died")
        reason = load.reason or damage or f"the load ended as {load.status}"
    failure = trial_failed(category, reason, load.remedy)
    counts, errors, failures = metrics.counts, metrics.errors, load.failures
    known = {name: count for name, count in failures.items() if name in errors.by_category or name in SELDOM}
    return replace(
        metrics,
        counts=replace(counts, requests=load.sent, failed=sum(failures.values()) if failures else None),
        errors=replace(errors, by_category={**errors.by_category, **known}),
        status="failed",
        category=category,
        reason=reason,
        verdict=failure.verdict,
        reasons=(failure,),
    )


def _as_the_server_says(load: LoadRecord, answers: AnswersRecord | None) -> LoadRecord:
    """Return the record of a failed load with the category that the server itself gave its errors."""
    if answers is None or answers.category is None:
        return load
    count = answers.errors.get(answers.category, 0)
    reason = f"{load.reason}: the server says '{answers.category}' of {count}"
    return replace(load, category=answers.category, remedy=answers.remedy, reason=reason)


def _with_figures(metrics: TrialMetrics, trial: Trial, load: LoadRecord, inputs: MetricInputs) -> TrialMetrics:
    groups = _groups(inputs, load)
    counts, window, kinds = inputs.counts, inputs.window, load.kinds
    return replace(
        metrics,
        **groups | {"saturated": groups["saturated"] or load.over_saturated_at_s is not None},
        window=MeasuredWindow(start_s=window.start_ns / 1e9, end_s=window.end_ns / 1e9, rule=window.rule),
        warmup_auto=inputs.start_up,
        steady_state=inputs.steady,
        percentiles=PercentileMethod()
        if counts.response.exact
        else PercentileMethod(method="histogram", relative_error=counts.response.histogram.relative_error),
        energy_reason=inputs.energy_reason,
        by_kind={
            kinds[number] if number < len(kinds) else str(number): _kind(kind)
            for number, kind in sorted(counts.by_kind.items())
        }
        if len(counts.by_kind) > 1
        else None,
        stages=inputs.stages,
        replicas=replica_figures(inputs.telemetry),
        telemetry={f"{source}.{name}": series.record for (source, name), series in sorted(inputs.telemetry.items())},
        own=own_metrics(trial.metrics, inputs),
    )


def _groups(inputs: MetricInputs | None, load: LoadRecord) -> dict[str, Any]:
    """Return the values of the table of metrics, nested by their paths; all None without inputs."""
    nested: dict[str, Any] = {}
    for metric in METRICS:
        *groups, last = metric.path.split(".")
        target = nested
        for group in groups:
            target = target.setdefault(group, {})
        target[last] = None if inputs is None else metric.value(inputs)
    for group in nested.keys() - ALWAYS:
        if isinstance(nested[group], dict) and all(value is None for value in nested[group].values()):
            nested[group] = None
    if inputs is not None:
        counts, lost = inputs.counts, inputs.lost_in_window
        unseen = counts.cancelled + counts.unsent
        ranges = {group: getattr(counts, name).ranges_ms() for group, name in TIMES.items()}
        ranges["errors"] = error_ranges(failed=counts.failed + lost, due=counts.due + lost, unseen=unseen)
        ranges["goodput"] = goodput_ranges(inputs)
        for group in (group for group in ranges if nested[group] is not None):
            nested[group]["ranges"] = ranges[group]
        if nested["energy"] is not None:
            nested["energy"] |= {"scope": inputs.energy.scope, "method": inputs.energy.method}
    by_category, nested["errors"]["own"] = nested["errors"]["by_category"], load.errors
    for name in SELDOM & by_category.keys():
        if by_category[name] is None:
            del by_category[name]
    counts_units = inputs is None or inputs.counts.counts_units
    nested["throughput"]["unit"] = f"{plural(load.unit or 'reply')}_per_s" if counts_units else CHUNKS
    return {
        name: GROUPS[name](**value) if isinstance(value, dict) and name in GROUPS else value
        for name, value in nested.items()
    }


def _kind(counts: KindCounts) -> KindFigures:
    return KindFigures(
        requests=counts.due,
        ok=counts.ok,
        failed=counts.failed,
        units=counts.units,
        latency_ms=_bounded(counts.response),
        service_time_ms=_bounded(counts.service),
        ttft_ms=_bounded(counts.ttft) if counts.ttft.count else None,
        tpot_ms=KindTimes(**_quantiles(counts.tpot)) if counts.tpot.count else None,
    )


def _bounded(times: TimeDistribution) -> BoundedKindTimes:
    return BoundedKindTimes(**_quantiles(times), censored=times.bounds.count)


def _quantiles(times: TimeDistribution) -> dict[str, Any]:
    names = ("mean", *QUANTILES)
    return {name: times.statistic_ms(name) for name in names} | {"ranges": times.ranges_ms(names)}


def _rounded(value: Value) -> Value:
    """Nine significant digits: more were not measured, and the files stay small and readable."""
    rounded: Any = value
    kind: Any = type(value)
    if isinstance(value, float):
        rounded = float(f"{value:.9g}")
    elif isinstance(value, tuple):
        rounded = tuple(map(_rounded, value))
    elif isinstance(value, dict):
        rounded = {name: _rounded(part) for name, part in value.items()}
    elif is_dataclass(value):
        rounded = kind(**{name: _rounded(part) for name, part in vars(value).items()})
    kept: Value = rounded
    return kept


SAME_SPAN = 0.9
"""Least ratio of the shortest to the longest time in which replicas were counted, for their requests to be shares."""


def replica_figures(telemetry: Mapping[Key, SeriesSummary]) -> Replicas | None:
    """Return the figures of each replica that counters were asked of; None without any."""
    names = sorted((source for source, series in telemetry if series == ANSWERS), key=_number)
    if not names:
        return None
    grew = {key: series.increase for key, series in telemetry.items() if series.increase is not None}
    requests = {name: grew[name, REQUESTS] for name in names if (name, REQUESTS) in grew}
    spans = [telemetry[name, REQUESTS].span_s or 0.0 for name in requests]
    whole = len(requests) == len(names) and min(spans) >= SAME_SPAN * max(spans)
    total = sum(requests.values()) if whole else 0.0
    return Replicas(
        by_replica={
            name: ReplicaFigures(
                requests=requests.get(name),
                share=requests[name] / total if total else None,
                prefix_hit_ratio=_ratio(grew, [name]),
            )
            for name in names
        },
        counted_s=min(spans, default=None),
        imbalance=max(requests.values()) * len(names) / total if total else None,
        prefix_hit_ratio=_ratio(grew, names) if whole else None,
    )


def _ratio(grew: Mapping[Key, float], names: Sequence[str]) -> float | None:
    asked = sum(grew.get((name, PREFIX_QUERIES), 0.0) for name in names)
    return sum(grew.get((name, PREFIX_HITS), 0.0) for name in names) / asked if asked else None


def _number(name: str) -> tuple[str, int]:
    whole, _, number = name.rpartition("-")
    return (whole, int(number)) if number.isdigit() else (name, 0)
