"""Runs all checks of a trial and gives its verdict. To add a check, add a line to CHECKS."""

from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import TypeVar

from seamark.analysis.checks import host, load, replies, result
from seamark.analysis.checks.checked_trial import Check, CheckedTrial
from seamark.model.dotted import resolved
from seamark.model.results.trial_metrics import Severity, Verdict, VerdictReason

SomeReason = TypeVar("SomeReason", bound=VerdictReason)

SEVERITIES: tuple[Severity, ...] = ("invalid", "suspect", "note")
"""Severities of reasons, most severe first."""

CHECKS: tuple[Check, ...] = (
    result.no_replies,
    result.too_few_samples,
    result.timestamp_order,
    result.error_rate,
    result.incomplete_work,
    result.resumed,
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
    load.gateway_bound,
    host.host_cpu_saturated,
    host.busy_elsewhere,
    host.others_unknown,
    host.memory_pressure,
    host.device_shared,
    host.party_ended_early,
    host.party_silent,
    host.idle_member_busy,
    host.replica_idle,
    host.placement_not_kept,
    host.threads_over_cores,
    load.littles_law,
    load.client_underdriven,
    load.waves,
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
    result.o_direct_refused,
    result.speed_not_of_method,
    replies.wrong_answers,
    replies.answers_not_scored,
    replies.answers_incomplete,
    result.server_restarted,
    result.extrapolated,
    result.suspect_sources,
    result.quality_floor,
    result.slo_missed,
    replies.replies_short,
    replies.tokens_not_counted,
    replies.first_chunk_not_counted,
    result.percentile_lower_bound,
    result.percentile_withheld,
)


def judge(view: CheckedTrial, own: Sequence[str] = ()) -> tuple[Verdict, tuple[VerdictReason, ...]]:
    """Return the verdict and its reasons, most severe first. `own` are dotted paths of the user's own checks."""
    answers = [*(check(view) for check in CHECKS), *(_own_check(path, view) for path in own)]
    reasons = gravest_first(reason for reason in answers if reason is not None)
    return worst([reason.verdict for reason in reasons]), reasons


def _own_check(path: str, view: CheckedTrial) -> VerdictReason | None:
    """Return the reason of a user's own check; where it returns none of our form, a reason that says so."""
    try:
        reason = resolved(path, FunctionType)(view)
        if reason is None or (isinstance(reason, VerdictReason) and reason.severity in SEVERITIES):
            return reason
        why = f"it returned {reason!r}, which is no VerdictReason of severity {', '.join(SEVERITIES)}"
    except Exception as error:  # a user's code may raise anything; the other checks remain valid
        why = f"{type(error).__name__}: {error}"
    return VerdictReason(
        code="own_check_failed",
        severity="suspect",
        text=f"{path}: {why}",
        remedy="Correct the check, then `bench collect`: nothing is measured again.",
    )


def gravest_first(reasons: Iterable[SomeReason]) -> tuple[SomeReason, ...]:
    """Return reasons by severity; those of one severity keep their order."""
    return tuple(sorted(reasons, key=lambda reason: SEVERITIES.index(reason.severity)))


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the most severe of some verdicts; VALID for none."""
    order: tuple[Verdict, ...] = ("INVALID", "SUSPECT", "VALID")
    return next((verdict for verdict in order if verdict in verdicts), "VALID")
