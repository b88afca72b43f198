"""Gathers for the checks what a trial's figures, its workers' reports and its telemetry say."""

from collections.abc import Iterable, Mapping
from typing import Any

from seamark.checks import Findings
from seamark.metrics.metric import Evidence
from seamark.metrics.objectives import look_up
from seamark.metrics.table import QUANTILES
from seamark.model.trial import Trial
from seamark.stats.quantiles import samples_needed


def findings(
    trial: Trial,
    load: Mapping[str, Any],
    document: Mapping[str, Any],
    found: Evidence,
    *,
    client_is_server: bool | None,
    ceiling_rps: float | None,
) -> Findings:
    """Return what the checks look at. `document` has the figures and the judged objectives."""
    tally, window, settings = found.tally, found.window, trial.settings
    workers = [worker for worker in load.get("workers") or () if isinstance(worker, Mapping)]
    if client_is_server is None:
        client_is_server = bool(found.telemetry) and not any(source == "server" for source, _ in found.telemetry)
    missed = [slo for slo in document["slos"] if slo["met"] is False]
    quality = document["quality"]
    return Findings(
        open_loop=found.open_loop,
        is_ramp=settings.get("pattern") == "ramp",
        client_is_server=client_is_server or trial.component == "null",
        requests=tally.due,
        ok=tally.ok,
        unfinished=tally.cancelled + tally.unsent,
        disordered=tally.disordered,
        error_rate=document["errors"]["rate"],
        workers_lost=sum(not worker.get("ok", True) for worker in workers),
        workers=len(workers),
        lag_p99_s=_seconds(look_up(document, "schedule_lag_ms.p99")),
        loop_lag_p99_s=_largest((worker.get("loop_lag_ns") or {}).get("p99") for worker in workers) / 1e9
        if any(worker.get("loop_lag_ns") for worker in workers)
        else None,
        service_tail_s=_seconds(look_up(document, "service_time_ms.p99")),
        service_mean_s=_seconds(look_up(document, "service_time_ms.mean")),
        window_s=window.length_s,
        worker_cpu_ratio=_worker_cpu(workers),
        machine_cpu_ratio=look_up(document, "resource.cpu_util"),
        requested_rps=_requested_rps(settings) if found.open_loop and settings.get("requests") is None else None,
        offered_rps=document["offered_rps"],
        sent_rps=tally.sent / window.length_s if window.length_s > 0 else None,
        achieved_rps=document["achieved_rps"],
        replies_per_s=document["requests_per_s"],
        saturated=document["saturated"],
        requested_concurrency=_float(settings.get("concurrency")),
        concurrency_mean=document["concurrency_mean"],
        think_time_s=_float(settings.get("think_time_s")) or 0.0,
        steady=window.steady,
        steady_reason=window.reason,
        ceiling_rps=ceiling_rps,
        gpu_clock_ratio=_clock_ratio(found),
        gpu_util_ratio=look_up(document, "resource.gpu_util"),
        page_cache_ratio=_float(quality.get("page_cache_ratio")),
        wants_cache=settings.get("direct") == "cached",
        withheld={name: samples_needed(q) for name, q in QUANTILES.items() if tally.ok < samples_needed(q)},
        slos_missed=[_said(slo) for slo in missed if slo["metric"] not in quality],
        server_restarted=load.get("server_restarted"),
        wrong_answers=[f"{name} is {value:g}" for name, value in quality.items() if _is_wrong(name, value)],
        quality_missed=[_said(slo) for slo in missed if slo["metric"] in quality],
    )


def _said(slo: Mapping[str, Any]) -> str:
    return f"{slo['metric']} {slo['op']} {slo['limit']:g}, is {slo['value']:.4g}"


def _seconds(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1e3


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _largest(values: Iterable[Any]) -> float:
    return max((float(value) for value in values if value is not None), default=0.0)


def _requested_rps(settings: Mapping[str, Any]) -> float | None:
    return None if settings.get("pattern") == "ramp" else _float(settings.get("rate_rps"))


def _worker_cpu(workers: Iterable[Mapping[str, Any]]) -> float | None:
    ratios = [
        (worker["cpu_s"] - (worker.get("spin_s") or 0.0)) / worker["wall_s"]
        for worker in workers
        if worker.get("cpu_s") and worker.get("wall_s")
    ]
    return max(ratios, default=None)


def _clock_ratio(found: Evidence) -> float | None:
    """The slowest GPU's mean clock over its own highest one."""
    clocks = [seen for (source, name), seen in found.telemetry.items() if name == "clock_hz" and source[:3] == "gpu"]
    return min((seen.mean / seen.maximum for seen in clocks if seen.maximum > 0), default=None)


def _is_wrong(name: str, value: float | None) -> bool:
    """Whether a quality says that answers were wrong: `right_ratio` or `..._consistent` of less than 1."""
    return value is not None and (name == "right_ratio" or name.endswith("_consistent")) and value < 1
