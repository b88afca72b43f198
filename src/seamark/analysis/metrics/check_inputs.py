"""Inputs of the checks: from a trial's metrics, its workers' reports and its telemetry."""

from collections.abc import Iterable, Sequence
from typing import Any

from seamark.analysis.checks import CheckInputs, Connections
from seamark.analysis.checks.inputs import BUSY_GPU
from seamark.analysis.metrics.distribution import QUANTILES
from seamark.analysis.metrics.energy import is_gpu
from seamark.analysis.metrics.metric import MetricInputs
from seamark.analysis.metrics.metric_inputs import is_simulated_load
from seamark.analysis.metrics.resources import Ceiling, others_unknown, processors_of
from seamark.analysis.metrics.table import BOUNDED
from seamark.analysis.metrics.window import Window
from seamark.analysis.metrics.window_counts import WindowCounts
from seamark.model.load_profile import LoadProfile
from seamark.model.plurals import counted, unit_of_times
from seamark.model.results.load_record import LoadRecord, WorkerReport
from seamark.model.results.trial_metrics import ObjectiveResult, PartFigures, TrialMetrics
from seamark.model.trial import Trial
from seamark.patterns.patterns import Pattern
from seamark.patterns.table import has_rate, pattern_of
from seamark.stats.quantiles import samples_needed
from seamark.stats.range import Range


def check_inputs(
    trial: Trial,
    load: LoadRecord,
    metrics: TrialMetrics,
    inputs: MetricInputs,
    *,
    client_is_server: bool | None,
    ceiling: Ceiling | None,
    gpu_hz: float | None = None,
) -> CheckInputs:
    """Return the inputs of the checks. `metrics` has the judged objectives; `gpu_hz` is the highest clock of the
    GPUs, None if unknown."""
    counts, window, profile, workers = inputs.counts, inputs.window, trial.load, load.workers
    simulated = is_simulated_load(profile, load)
    pattern = _pattern(_virtual(trial) if simulated else profile)
    if client_is_server is None:
        client_is_server = bool(inputs.telemetry) and not any(source == "server" for source, _ in inputs.telemetry)
    missed = [slo for slo in metrics.slos if slo.met is False]
    quality = metrics.quality
    stalled_s, longest_stall_s = _stalled(workers, window)
    gpu_clock_ratio, gpu_util_ratio = _slowest_gpu(inputs, gpu_hz)
    return CheckInputs(
        open_loop=inputs.open_loop,
        changing=has_rate(profile.pattern, "changing"),
        gap_variation=pattern.gap_variation if pattern else 1.0,
        client_is_server=client_is_server or trial.component == "null",
        requests=counts.due,
        ok=counts.ok,
        unfinished=counts.cancelled + counts.unsent,
        disordered=counts.disordered,
        error_rate=metrics.errors.rate,
        most_errors=load.most_errors(),
        workers_lost=sum(not worker.ok for worker in workers),
        workers=len(workers),
        lag_p99_s=_seconds(metrics.figure("schedule_lag_ms.p99")),
        loop_lag_p99_s=_loop_lag_p99_s(workers),
        stalled_s=stalled_s,
        longest_stall_s=longest_stall_s,
        clock_error_s=_clock_error_s(workers),
        service_tail_s=_seconds(metrics.figure("service_time_ms.p99")),
        stay_mean_s=counts.stay_ns / 1e9 / counts.stays if counts.stays else None,
        window_s=window.length_s,
        worker_cpu_ratio=_worker_cpu(workers),
        machine_cpu_ratio=metrics.resource.get("cpu_util"),
        requested_rps=_requested_rps(profile, pattern, window),
        offered_rps=metrics.offered_rps,
        sent_rps=counts.sent / window.length_s if window.length_s > 0 else None,
        achieved_rps=metrics.achieved_rps,
        ended_per_s=counts.ended / window.length_s if window.length_s > 0 else None,
        held_open=_held_open(workers),
        held_open_mean_s=_held_open_mean_s(workers),
        saturated=bool(metrics.saturated),
        over_saturated_at_s=metrics.over_saturated_at_s,
        requested_concurrency=profile.concurrency,
        concurrency_mean=metrics.concurrency_mean,
        think_time_s=profile.think_time_s,
        steady=inputs.steady.steady,
        steady_reason=_unsteady(inputs),
        cut=_cut(inputs),
        outages=[outage.text for outage in inputs.steady.outages],
        advised_warmup_s=inputs.steady.advised_warmup_s,
        ceiling_rps=_ceiling_rps(ceiling, counts),
        gpu_clock_ratio=gpu_clock_ratio,
        gpu_util_ratio=gpu_util_ratio,
        page_cache_ratio=_float(quality.get("page_cache_ratio")),
        speed_not_of_method=bool(quality.get("speed_not_of_method")),
        wants_cache=trial.settings.get("direct") == "cached",
        samples=counts.response.count,
        withheld={
            name: samples_needed(q) for name, q in QUANTILES.items() if counts.response.count < samples_needed(q)
        },
        ranges=[
            f"{group.removesuffix('_ms').replace('_', ' ')} {name} {_in_time(found)}"
            for group in BOUNDED
            if (times := getattr(metrics, group)) and times.censored
            for name in QUANTILES
            if times.is_range(name) and (found := times.range_of(name))
        ],
        cancelled=counts.cancelled,
        unsent=counts.unsent,
        timeouts=counts.timeouts,
        unit=load.unit or "reply",
        uncounted=counts.uncounted,
        counts_units=counts.counts_units,
        replies=counts.whole_good,
        counted_units=counts.counted_units,
        asked_units=_asked_units(load),
        first_chunk_tokens=counts.first_chunk.tokens_in_chunk if counts.first_chunk else None,
        tpot_low_ratio=counts.first_chunk.too_low_ratio if counts.first_chunk else 0.0,
        slos_missed=[_missed(slo) for slo in missed if slo.metric not in quality],
        server_restarted=load.server_restarted,
        own={name: metric.value for name, metric in metrics.own.items()},
        connections=_connections(workers),
        processors=processors_of(inputs.telemetry, client_is_server=client_is_server),
        others_unknown=others_unknown(inputs.telemetry, client_is_server=client_is_server),
        others_before=load.others_before,
        wrong_answers=[f"{name} is {value:g}" for name, value in quality.items() if _is_wrong(name, value)],
        quality_missed=[_missed(slo) for slo in missed if slo.metric in quality],
        kind="requests" if simulated else load.kind,
        extrapolated=_told(load, EXTRAPOLATED),
        suspect_sources=_told(load, SUSPECT_SOURCES),
        items=load.items or 0,
        items_left=max(0, (load.items or 0) - counts.rows),
        sessions=max(1, len(load.sessions)),
        ended_early=load.ended_early,
        early_ratio=_early_ratio(profile, load, window),
        idle_cores=_idle_cores(load, inputs),
        shared_device=f"{load.device.kind} {load.device.id}" if load.device and load.device.shared else None,
    )


def _early_ratio(profile: LoadProfile, load: LoadRecord, window: Window) -> float:
    """Return the length of the window of all parties as a ratio of what was planned for this one."""
    planned_s = profile.length_s - window.start_ns / 1e9
    return min(1.0, window.length_s / planned_s) if load.ended_early and planned_s > 0 and not profile.finite else 1.0


def _idle_cores(load: LoadRecord, inputs: MetricInputs) -> dict[str, float]:
    """Return the cores that each member used whose party was under no load."""
    count = inputs.telemetry.get(("host", "processors"))
    used = {
        source.removesuffix(".server"): seen.mean * count.mean
        for (source, name), seen in inputs.telemetry.items()
        if count is not None and name == "cpu_ratio" and source.endswith(".server")
    }
    return {name: cores for name, cores in used.items() if name not in load.beside}


def _cut(inputs: MetricInputs) -> str | None:
    """The start-up cut by `warmup_s: auto`, with its metrics; None for nothing."""
    if inputs.start_up is None or inputs.cut_part is None:
        return None
    cut_s = inputs.start_up.cut_ns / 1e9
    return f"warmup_s: auto cut off the first {cut_s:.3g} s, {inputs.start_up.reason}: {_of_part(inputs.cut_part)}"


def _unsteady(inputs: MetricInputs) -> str | None:
    """Why a load was not steady, with the metrics of its steady part, if there is one."""
    if inputs.steady.steady or inputs.steady_part is None:
        return inputs.steady.reason
    return f"{inputs.steady.reason}; after it {_of_part(inputs.steady_part)}"


def _of_part(part: PartFigures) -> str:
    times = part.latency_ms
    shown = [f"{name} {_in_time(found)}" for name in ("p50", "p99") if (found := times.range_of(name))]
    rate = f"{part.requests_per_s:.4g}/s"
    return ", ".join([counted(part.requests, "request"), f"{part.failed} failed", rate, *shown])


def _in_time(found_ms: Range) -> str:
    unit, factor = unit_of_times(found_ms.low)
    return f"{found_ms.times(factor).text} {unit}"


def _missed(slo: ObjectiveResult) -> str:
    return f"{slo.metric} {slo.op} {slo.limit:g}" + (f", is {slo.known.text}" if slo.known else "")


def _seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1e3


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _largest(values: Iterable[Any]) -> float:
    return max((float(value) for value in values if value is not None), default=0.0)


def _pattern(profile: LoadProfile) -> Pattern | None:
    """Return the pattern of an open loop; None if the module of a user's own pattern is missing."""
    try:
        return pattern_of(profile)
    except ValueError:
        return None


def _virtual(trial: Trial) -> LoadProfile:
    """Return the load of a simulation with its own length: `limit_s` is that of its program in real time."""
    return LoadProfile.of({name: value for name, value in trial.settings.items() if name != "limit_s"})


EXTRAPOLATED, SUSPECT_SOURCES = "extrapolated_", "suspect_sources_"
"""How figures of a simulation begin: inputs outside of those of its fit, and SUSPECT trials of the fit by code."""


def _told(load: LoadRecord, prefix: str) -> list[str]:
    """Return the figures of a simulation that begin with `prefix`, each as the rest of its name and its value."""
    return [
        f"{name.removeprefix(prefix)} {value:.4g}"
        for name, value in load.quality.items()
        if load.origin == "simulated" and name.startswith(prefix) and value is not None
    ]


def _requested_rps(profile: LoadProfile, pattern: Pattern | None, window: Window) -> float | None:
    """Return the rate of an open loop over the window; None if only a file knows it, or there is a limit.

    The rate of a pattern with sessions is that of sessions: their later turns follow the replies.
    """
    if pattern is None or profile.requests is not None or profile.turns > 1 or window.length_s <= 0:
        return None
    first, last = pattern.expected(window.start_ns / 1e9), pattern.expected(window.end_ns / 1e9)
    return None if first is None or last is None else (last - first) / window.length_s


def _loop_lag_p99_s(workers: Iterable[WorkerReport]) -> float | None:
    """Return the largest p99 of the workers' loop lag, None where no worker has an event loop."""
    lags = [worker.loop_lag_ns for worker in workers if worker.loop_lag_ns is not None]
    return _largest(lag.p99 for lag in lags) / 1e9 if lags else None


def _clock_error_s(workers: Iterable[WorkerReport]) -> float | None:
    """The largest possible clock error of a worker: the uncertainty of its comparison, and its drift."""
    errors = [
        worker.offset_error_ns + abs(worker.offset_drift_ns or 0)
        for worker in workers
        if worker.offset_error_ns is not None
    ]
    return max(errors) / 1e9 if errors else None


def _worker_cpu(workers: Iterable[WorkerReport]) -> float | None:
    ratios = [
        (worker.cpu_s - (worker.spin_s or 0.0)) / worker.wall_s
        for worker in workers
        if worker.cpu_s and worker.wall_s
    ]
    return max(ratios, default=None)


def _held_open(workers: Iterable[WorkerReport]) -> float:
    """Return the mean number of streams that were open after their last content."""
    return float(sum((worker.held_open_s or 0.0) / worker.wall_s for worker in workers if worker.wall_s))


def _asked_units(load: LoadRecord) -> int:
    """Return the units that the good replies were to have; 0 where not all of these are in the workers' reports."""
    asked = [worker.asked_units if worker.ok else None for worker in load.workers]
    return 0 if len(load.sessions) > 1 or None in asked else sum(units or 0 for units in asked)


def _held_open_mean_s(workers: Sequence[WorkerReport]) -> float | None:
    """Return the mean time for which a stream was open after its last content."""
    completed = sum(worker.completed or 0 for worker in workers)
    return sum(worker.held_open_s or 0.0 for worker in workers) / completed if completed else None


def _connections(workers: Iterable[WorkerReport]) -> Connections:
    """The connection counters of all wire workers together."""
    reports = [worker.network for worker in workers if worker.network is not None]

    def smallest(name: str) -> Any:
        return min((figure for each in reports if (figure := getattr(each, name)) is not None), default=None)

    return Connections(
        asked=sum(each.connections for each in reports),
        ports_free=smallest("ports_free"),
        churn_per_s_limit=smallest("churn_per_s_limit"),
        anew=sum(each.connected_anew for each in reports),
        anew_per_s=sum(each.connected_anew_per_s or 0.0 for each in reports),
        backlog=smallest("listen_backlog"),
        overflows=int(_largest(each.listen_overflows for each in reports)),
    )


def _stalled(workers: Iterable[WorkerReport], window: Window) -> tuple[float, float]:
    """Return the total and the longest standstill of the worst worker inside the window."""
    worst = 0.0, 0.0
    for worker in workers:
        inside = [
            (min(until_ns, window.end_ns) - max(from_ns, window.start_ns)) / 1e9
            for from_ns, until_ns in worker.stalls_ns
        ]
        stalls_s = [length_s for length_s in inside if length_s > 0]
        worst = max(worst, (sum(stalls_s), max(stalls_s, default=0.0)))
    return worst


def _ceiling_rps(ceiling: Ceiling | None, counts: WindowCounts) -> float | None:
    if ceiling is None or not counts.replies:
        return None
    joined = counts.chunks - counts.reads
    each = (count / counts.replies for count in (counts.bytes_received, counts.reads, joined))
    return ceiling.for_replies(*each)


def _slowest_gpu(inputs: MetricInputs, highest_hz: float | None) -> tuple[float | None, float | None]:
    """Return the mean clock of a GPU over its highest one, and its own utilisation: of the busy GPU for which the
    first is least, else of any. Without `highest_hz`, the highest is that of the window."""
    found = []
    for (source, name), clock in inputs.telemetry.items():
        used = inputs.telemetry.get((source, "util_ratio"))
        highest = max(highest_hz or 0.0, clock.max)
        if name == "clock_hz" and is_gpu(source) and used is not None and highest > 0:
            found.append((clock.mean / highest, used.mean))
    busy = [each for each in found if each[1] >= BUSY_GPU]
    return min(busy or found, default=(None, None))


def _is_wrong(name: str, value: float | None) -> bool:
    """Whether a quality reports wrong answers: `right_ratio` or `..._consistent` below 1."""
    return value is not None and (name == "right_ratio" or name.endswith("_consistent")) and value < 1
