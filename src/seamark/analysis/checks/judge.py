"""Runs all checks over the findings of a trial and gives its verdict. To add a check, add a line to CHECKS."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from seamark.analysis.checks import host, load, result
from seamark.analysis.checks.findings import Findings, Reason

Verdict = Literal["VALID", "SUSPECT", "INVALID"]

CHECKS: tuple[Callable[[Findings], Reason | None], ...] = (
    result.trial_failed,
    result.no_replies,
    result.too_few_samples,
    result.timestamp_order,
    result.error_rate,
    load.unfinished,
    load.shard_lost,
    load.saturated,
    load.over_saturated,
    load.rate_not_sent,
    load.offered_rate_mismatch,
    load.schedule_lag,
    load.loop_lag,
    load.clock_offset,
    load.client_stalled,
    load.client_cpu,
    load.client_bound,
    host.host_cpu_saturated,
    host.busy_elsewhere,
    load.littles_law,
    load.client_underdriven,
    load.streams_held_open,
    host.few_local_ports,
    host.connection_churn,
    host.connected_anew,
    host.listen_queue_full,
    result.warmup_cut,
    result.outage,
    result.no_steady_state,
    result.gpu_throttled,
    result.served_from_page_cache,
    result.wrong_answers,
    result.server_restarted,
    result.quality_floor,
    result.slo_missed,
    result.tokens_not_counted,
    result.first_chunk_not_counted,
    result.percentile_lower_bound,
    result.percentile_withheld,
)


def judge(found: Findings) -> tuple[Verdict, tuple[Reason, ...]]:
    """Return the verdict and its reasons, the gravest first."""
    reasons = [reason for check in CHECKS if (reason := check(found)) is not None]
    grave = {"invalid": 0, "suspect": 1, "note": 2}
    reasons.sort(key=lambda reason: grave[reason.severity])
    return worst([verdict_of(reason.to_json()) for reason in reasons]), tuple(reasons)


def verdict_of(reason: Mapping[str, Any]) -> Verdict:
    """Return the verdict that one reason alone gives."""
    verdicts: Mapping[str, Verdict] = {"invalid": "INVALID", "suspect": "SUSPECT"}
    return verdicts.get(str(reason["severity"]), "VALID")


def worst(verdicts: Sequence[str]) -> Verdict:
    """Return the gravest of some verdicts; VALID for none."""
    order: tuple[Verdict, ...] = ("INVALID", "SUSPECT", "VALID")
    return next((verdict for verdict in order if verdict in verdicts), "VALID")
