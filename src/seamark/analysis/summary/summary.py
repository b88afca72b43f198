"""Summary of a scenario from the metrics and histograms of its trials, with one treatment in memory at a time."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seamark.analysis.checks import gravest_first, worst
from seamark.analysis.checks.nodes import Seen, nodes_differ
from seamark.analysis.comparison.factors import comparisons_of_summary
from seamark.analysis.comparison.metric_names import table_paths
from seamark.analysis.comparison.observations import Observation, observation
from seamark.analysis.metrics.distribution import QUANTILES, STATISTICS, TimeDistribution
from seamark.analysis.metrics.table import TIMES, VERSION, error_ranges
from seamark.analysis.summary.knees import found_by_search, knees, point_of
from seamark.analysis.summary.repetitions import add_nodes, compared
from seamark.analysis.summary.servers import ComparedServers
from seamark.analysis.summary.treatments import known, medians, spread, spread_of, telemetry, unit_of
from seamark.analysis.trial_view import KnownAndBounds, TrialView, of_figures
from seamark.model.origin import MEASURED
from seamark.model.results.summary import (
    CountedReason,
    EnergySummary,
    ErrorRate,
    FailedTrial,
    KindSpreads,
    KindSummary,
    ObjectiveSummary,
    OwnSummary,
    PooledTimes,
    Summary,
    SummaryRow,
    ThroughputSpread,
)
from seamark.model.results.times import KindTimes
from seamark.model.results.trial_metrics import (
    KindFigures,
    ObjectiveResult,
    OwnMetric,
    PercentileMethod,
    RequestCounts,
    TrialMetrics,
    VerdictReason,
)
from seamark.model.scenario import Comparing, why_no_p
from seamark.model.service import Value
from seamark.model.trial import SCHEMA_VERSION, Plan, levels_of
from seamark.stats.histogram import RELATIVE_ERROR, merge
from seamark.stats.range import Range
from seamark.storage.paths import ScenarioFolder
from seamark.storage.redaction import redacted

STREAM_TIMES = ("ttft_ms", "ttft_response_ms", "ttfo_ms", "tpot_ms", "inter_chunk_ms")
KIND_TIMES = ("latency_ms", "service_time_ms", "ttft_ms", "tpot_ms")


def summarise(plan: Plan, folder: ScenarioFolder) -> Summary:
    """Return every treatment of the plan over its good trials, and the trials that are not good.

    A missing, failed or damaged trial is named under `failed` and takes part in nothing else; an INVALID one is in
    the figures of its treatment only where all are. Percentiles are those of all requests of a treatment's trials
    together, from their mergeable histograms (0.5 % relative error).
    """
    levels, names = levels_of(plan), plan.names
    between = plan.factors_without_p
    rows, failed, points, ok = [], [], [], 0
    comparing = plan.compare or Comparing()
    paths = table_paths((*comparing.metrics, *comparing.family, *comparing.costs))
    seen: dict[str, list[Observation]] = {}
    nodes: dict[str, Seen] = {}
    servers = ComparedServers()
    for trials in plan.by_treatment().values():
        views = compared([TrialView.of(trial, folder) for trial in trials])
        for view in views:
            seen.setdefault(view.treatment, []).append(observation(view, paths))
            if view.ok:
                ok += 1
                add_nodes(nodes.setdefault(view.trial.group, {}), view)
                servers.add(view)
            else:
                failed.append(
                    FailedTrial(trial=view.id, status=view.status, category=view.category, reason=view.reason)
                )
        factors = levels[trials[0].treatment]
        server = names.get(trials[0].deployment, trials[0].deployment)
        rows.append(_row(server, factors, views))
        points.append(point_of(trials[0].group, factors, views))
    members: dict[str, list[str]] = {}
    for row in rows:
        members.setdefault(row.workload, []).extend(row.trials)
    comparisons = comparisons_of_summary(plan, seen)
    successions = () if comparisons is None else comparisons.carry_over
    carried = {treatment: told.reason for told in successions for treatment in told.treatments if told.reason}
    return Summary(
        schema_version=SCHEMA_VERSION,
        metrics_version=VERSION,
        scenario=plan.scenario,
        trials=len(plan.measured),
        ok=ok,
        failed=tuple(failed),
        verdicts=dict(Counter(verdict for row in rows for verdict in row.trial_verdicts)),
        percentiles=PercentileMethod(method="pooled histograms", relative_error=RELATIVE_ERROR),
        factors_without_p=tuple(between),
        why_no_p=why_no_p(between) if between else None,
        servers=servers.summaries(),
        treatments=tuple(
            _compared(row, nodes.get(row.workload, {}), servers, members[row.workload], carried.get(row.treatment))
            for row in rows
        ),
        compare=plan.compare,
        comparisons=comparisons,
        knees=knees([point for point in points if not servers.several(members[point.workload])]),
    )


def _compared(
    row: SummaryRow, nodes: Seen, servers: ComparedServers, group: Sequence[str], carried: VerdictReason | None
) -> SummaryRow:
    """Return a treatment with the reasons against comparing it with the others of its group. `carried` says what is
    carried over among those that it follows."""
    differ = nodes_differ(nodes) if row.repetitions else None
    found = [reason for reason in (differ, carried) if reason is not None]
    against = [CountedReason(**vars(reason), count=row.repetitions) for reason in found]
    against += servers.reasons(row.trials, group)
    return replace(
        row,
        reasons=gravest_first([*row.reasons, *against]),
        verdict=worst([row.verdict, *(reason.verdict for reason in against)]),
        trial_servers=tuple(servers.names_of(row.trials)),
    )


def _row(deployment: str, factors: Mapping[str, Value], views: Sequence[TrialView]) -> SummaryRow:
    trial = views[0].trial
    good = [view.good for view in views if view.good]
    summed = of_figures(views)
    figures = [view.good for view in summed if view.good]
    histograms = [view.histograms for view in summed if view.histogram_damage is None]
    unit = unit_of(figures)
    alike = [metrics for metrics in figures if metrics.throughput.unit == unit]
    reasons = _reasons(views)
    streams: dict[str, Any] = {group: _pooled(histograms, group, streams=True) for group in STREAM_TIMES}
    return SummaryRow(
        treatment=trial.treatment,
        workload=trial.group,
        service=trial.service,
        component=trial.component,
        origin=next((view.metrics.origin for view in views if view.metrics), MEASURED),
        deployment=deployment,
        config=redacted(good[0].config if good else trial.settings),
        changed=redacted(trial.changed),
        factors=redacted(factors),
        repetitions=len(good),
        planned=len(views),
        throughput=ThroughputSpread(**vars(spread_of(alike, "throughput.value")), unit=unit),
        requests_per_s=spread_of(figures, "requests_per_s"),
        bandwidth_mb_per_s=known(spread_of(figures, "bandwidth.mb_per_s")),
        latency_ms=_pooled(histograms, "latency_ms"),
        service_time_ms=_pooled(histograms, "service_time_ms"),
        **streams,
        by_kind=_kinds(figures),
        concurrency_mean=spread_of(figures, "concurrency_mean"),
        errors=_errors(figures),
        goodput=known(spread_of(figures, "goodput.ratio")),
        goodput_per_s=known(spread_of(figures, "goodput.per_s")),
        offered_rps=known(spread_of(figures, "offered_rps")),
        achieved_rps=known(spread_of(figures, "achieved_rps")),
        energy=energy_over(figures),
        quality=medians([metrics.quality for metrics in figures]),
        own=_own(figures),
        resource=medians([metrics.resource for metrics in figures]),
        telemetry=telemetry(figures),
        slos=_objectives(figures),
        search=found_by_search(views),
        verdict=worst([reason.verdict for reason in reasons]) if good else "INVALID",
        trial_verdicts=tuple(view.verdict for view in views),
        by_twins={view.id: view.against for view in views if view.against},
        reasons=reasons,
        trials=tuple(view.id for view in views),
    )


def _pooled(histograms: Sequence[KnownAndBounds], group: str, *, streams: bool = False) -> PooledTimes | None:
    """Return the statistics of all requests of the trials together, None for those that these are too few for;
    None for times of streams without any."""
    name = f"{TIMES[group]}_ns"
    times = TimeDistribution.of_histograms(
        merge(known[name] for known, _ in histograms if name in known),
        merge(bounds[name] for _, bounds in histograms if name in bounds),
    )
    if streams and not times.count:
        return None
    return PooledTimes(
        **{name: _rounded(times.statistic_ms(name)) for name in STATISTICS},
        n=times.count,
        censored=times.bounds.count,
        ranges={name: (_rounded(low), _rounded(high)) for name, (low, high) in times.ranges_ms().items()},
    )


def _rounded(value_ms: float | None) -> float | None:
    return None if value_ms is None else float(f"{value_ms:.9g}")


def _span(ranges: Iterable[Range | None]) -> tuple[float, float | None] | None:
    """Return the least and the greatest end of some ranges; None where all are single values."""
    known = [ends for ends in ranges if ends is not None]
    if all(ends.low == ends.high for ends in known):
        return None
    highs = [ends.high for ends in known if ends.high is not None]
    return min(ends.low for ends in known), max(highs) if len(highs) == len(known) else None


def _errors(good: Sequence[TrialMetrics]) -> ErrorRate:
    """Return failed requests of all trials over those sent in all of them, as `errors` of a trial has them."""
    counts = [metrics.counts for metrics in good]
    failed = sum((trial_counts.failed or 0) + _lost(trial_counts) for trial_counts in counts)
    sent = sum(_sent(trial_counts) + _lost(trial_counts) for trial_counts in counts)
    unseen = sum(trial_counts.unfinished or 0 for trial_counts in counts)
    due = sum(trial_counts.ok or 0 for trial_counts in counts) + unseen + failed
    return ErrorRate(rate=failed / sent if sent else None, ranges=error_ranges(failed=failed, due=due, unseen=unseen))


def _lost(counts: RequestCounts) -> int:
    return (counts.lost if counts.lost_in_window is None else counts.lost_in_window) or 0


def _sent(counts: RequestCounts) -> int:
    """Requests of the window that were sent; in a file without their number, those that ended well or badly."""
    return (counts.ok or 0) + (counts.failed or 0) if counts.sent is None else counts.sent


def _kinds(good: Sequence[TrialMetrics]) -> dict[str, KindSummary] | None:
    """Return the figures of each kind of request; None where all are alike.

    Counts are those of all trials together, times the spread of the trials' own figures: one that a trial withholds,
    having too few samples for it, is withheld. `requests_per_s` are good requests that were due in the window.
    """
    kinds: dict[str, list[tuple[TrialMetrics, KindFigures]]] = {}
    for metrics in good:
        for name, kind in (metrics.by_kind or {}).items():
            kinds.setdefault(name, []).append((metrics, kind))
    return {name: _kind(trials) for name, trials in kinds.items()} or None


def _kind(trials: Sequence[tuple[TrialMetrics, KindFigures]]) -> KindSummary:
    figures = [kind for _, kind in trials]
    ok, failed = sum(kind.ok for kind in figures), sum(kind.failed for kind in figures)
    return KindSummary(
        requests=sum(kind.requests for kind in figures),
        ok=ok,
        failed=failed,
        units=sum(kind.units for kind in figures),
        requests_per_s=spread(
            [kind.ok / length_s for metrics, kind in trials if (length_s := metrics.window.length_s) is not None]
        ),
        errors=ErrorRate(rate=failed / (ok + failed) if ok + failed else None),
        **{group: _kind_times([getattr(kind, group) for kind in figures]) for group in KIND_TIMES},
    )


def _kind_times(trials: Sequence[KindTimes | None]) -> KindSpreads | None:
    """Return the spread of every statistic; None where no trial has any. `censored` is the sum over the trials."""
    times = [group for group in trials if group is not None]
    if not times:
        return None
    values = {
        name: [value for group in times if (value := group.statistic(name)) is not None]
        for name in ("mean", *QUANTILES)
    }
    return KindSpreads(
        **{name: spread(measured if len(measured) == len(trials) else ()) for name, measured in values.items()},
        censored=sum(group.unanswered for group in times),
        ranges={
            name: span for name in values if (span := _span(group.range_of(name) for group in times)) is not None
        },
    )


def energy_over(good: Sequence[TrialMetrics]) -> EnergySummary | None:
    """Energy of the trials whose figures are of the same scope; None where there are none or where scopes differ."""
    scopes = {metrics.energy.scope for metrics in good if metrics.energy}
    if len(scopes) != 1:
        return None
    names = ("value_j", "per_request_j", "per_unit_j", "power_w", "idle_power_w")
    return EnergySummary(scope=scopes.pop(), **{name: known(spread_of(good, f"energy.{name}")) for name in names})


def _own(good: Sequence[TrialMetrics]) -> dict[str, OwnSummary]:
    """Return each metric of the user's own over the trials that have it."""
    by_name: dict[str, list[OwnMetric]] = {}
    for metrics in good:
        for name, metric in metrics.own.items():
            by_name.setdefault(name, []).append(metric)
    return {
        name: OwnSummary(
            unit=trials[0].unit,
            better=trials[0].better,
            meaning=trials[0].meaning,
            **vars(spread([metric.value for metric in trials if metric.value is not None])),
        )
        for name, trials in by_name.items()
    }


def _objectives(good: Sequence[TrialMetrics]) -> tuple[ObjectiveSummary, ...]:
    """Return in how many of the good trials each objective is met, of those that know; and its values."""
    by_objective: dict[tuple[str, str, float], list[ObjectiveResult]] = {}
    for metrics in good:
        for slo in metrics.slos:
            by_objective.setdefault((slo.metric, slo.op, slo.limit), []).append(slo)
    return tuple(
        ObjectiveSummary(
            metric=metric,
            op=op,
            limit=limit,
            met=sum(slo.met is True for slo in slos),
            of=sum(slo.met is not None for slo in slos),
            value=known(spread([slo.value for slo in slos if slo.value is not None])),
            range=_span(slo.known for slo in slos),
        )
        for (metric, op, limit), slos in by_objective.items()
    )


def _reasons(views: Sequence[TrialView]) -> tuple[CountedReason, ...]:
    """Return the codes of all trials with their counts, the gravest first; each with severity and text of the gravest
    trial that has it.

    A trial without figures leaves the others as good as they are, but fewer than planned: that alone is SUSPECT.
    """
    some_good = any(view.ok for view in views)
    by_code: dict[str, CountedReason] = {}
    for view in views:
        for reason in view.reasons:
            severity = "suspect" if some_good and not view.ok else reason.severity
            counted_reason = CountedReason(**vars(replace(reason, severity=severity)))
            before = by_code.get(reason.code)
            gravest = counted_reason if before is None else gravest_first([before, counted_reason])[0]
            by_code[reason.code] = replace(gravest, count=1 if before is None else before.count + 1)
    return gravest_first(by_code.values())
