"""Runs all checks over the findings of a trial and decides its verdict. A new check is a row of CHECKS."""

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Literal

from seamark.analysis.checks import host, load, result
from seamark.analysis.checks.findings import Findings, Reason, Severity
from seamark.model.dotted import resolved

Verdict = Literal["VALID", "SUSPECT", "INVALID"]

SEVERITIES: tuple[Severity, ...] = ("invalid", "suspect", "note")
"""Severities of reasons, most severe first."""

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


def judge(found: Findings, own: Sequence[str] = ()) -> tuple[Verdict, tuple[Reason, ...]]:
    """Return the verdict and its reasons, most severe first. `own` are dotted paths of the user's own checks."""
    reasons = [reason for check in CHECKS if (reason := check(found)) is not None]
    reasons += [reason for path in own if (reason := _own_check(path, found)) is not None]
    reasons.sort(key=lambda reason: SEVERITIES.index(reason.severity))
    return worst([verdict_of(reason.to_json()) for reason in reasons]), tuple(reasons)


def _own_check(path: str, found: Findings) -> Reason | None:
    """Return the reason of a user's own check; where it returns none of our form, a reason that says so."""
    try:
        reason = resolved(path, FunctionType)(found)
        if reason is None or (isinstance(reason, Reason) and reason.severity in SEVERITIES):
            return reason
        why = f"it returned {reason!r}, which is no Reason of severity {', '.join(SEVERITIES)}"
    except Exception as error:  # a user's code may raise anything; the other checks remain valid
        why = f"{type(error).__name__}: {error}"
    return Reason(
        code="own_check_failed",
        severity="suspect",
        text=f"{path}: {why}",
        remedy="Correct the check, then `bench collect`: nothing is measured again.",
    )


def verdict_of(reason: Mapping[str, Any]) -> Verdict:
    """Return the verdict for one reason alone."""
    verdicts: Mapping[str, Verdict] = {"invalid": "INVALID", "suspect": "SUSPECT"}
    return verdicts.get(str(reason["severity"]), "VALID")


def worst(verdicts: Sequence[str]) -> Verdict:
    """Return the most severe of some verdicts; VALID for none."""
    order: tuple[Verdict, ...] = ("INVALID", "SUSPECT", "VALID")
    return next((verdict for verdict in order if verdict in verdicts), "VALID")
