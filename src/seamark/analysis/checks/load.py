"""Checks of the load: whether it followed the scenario, and whether it measured the service or itself."""

from seamark.analysis.checks.findings import Findings, Reason
from seamark.model.plurals import counted

LATE_S, LATE_RATIO = 0.001, 0.2
"""Schedule lag matters above 1 ms and a fifth of the service time, p99 against p99."""

ENOUGH_USERS = 0.8
"""Ratio of a closed loop's users that must have a request in flight."""

STALL_S, STALL_RATIO = 0.1, 0.01
"""A standstill of a hundredth of the window affects the slowest hundredth of its requests."""


def unfinished(found: Findings) -> Reason | None:
    """Requests that were cut off are the slow ones."""
    if found.saturated or not found.ok or found.unfinished <= 0.05 * found.requests:
        return None
    return Reason(
        code="unfinished",
        severity="suspect",
        text=f"{found.unfinished} of {counted(found.requests, 'request')} outlived the load: "
        "the slow ones are missing",
        remedy="Raise duration_s to many times the latency.",
    )


def shard_lost(found: Findings) -> Reason | None:
    """A part of the requested load was missing."""
    if found.status != "ok" or not found.workers_lost:
        return None
    return Reason(
        code="shard_lost",
        severity="invalid" if 2 * found.workers_lost > found.workers else "suspect",
        text=f"{found.workers_lost} of {counted(found.workers, 'worker')} of the load died",
        remedy="See the trial's log. `bench retry` measures the trial again.",
    )


def saturated(found: Findings) -> Reason | None:
    """Response times then grow with the length of the trial and measure nothing else."""
    if not found.saturated or found.offered_rps is None or found.achieved_rps is None:
        return None
    return Reason(
        code="saturated",
        severity="suspect",
        text=f"{found.offered_rps:.4g} requests/s were offered and {found.achieved_rps:.4g} served: "
        "response times grow with the length of the trial",
        remedy="Lower rate_rps below what was served.",
    )


def over_saturated(found: Findings) -> Reason | None:
    """The server fell behind permanently, so the load was ended early; its end is not in the metrics."""
    if found.over_saturated_at_s is None:
        return None
    return Reason(
        code="over_saturated",
        severity="suspect",
        text=f"outstanding requests grew steadily: the server cannot keep up, and the load was ended after "
        f"{found.over_saturated_at_s:.3g} s",
        remedy="Lower rate_rps below what was served, or set stop_when_saturated to false.",
    )


def rate_not_sent(found: Findings) -> Reason | None:
    """Due requests were not sent in time, although the server kept up."""
    if found.saturated or found.offered_rps is None or found.sent_rps is None or not found.open_loop:
        return None
    if found.sent_rps >= 0.95 * found.offered_rps:
        return None
    return Reason(
        code="rate_not_sent",
        severity="suspect",
        text=f"{found.sent_rps:.4g} of {found.offered_rps:.4g} requests/s due were sent",
        remedy="Raise shards or concurrency.",
    )


def offered_rate_mismatch(found: Findings) -> Reason | None:
    """The schedule does not have the configured rate; up to four standard errors are chance."""
    if not found.requested_rps or found.offered_rps is None or not found.window_s:
        return None
    off = abs(found.offered_rps - found.requested_rps)
    chance = 4 * found.gap_variation * (found.requested_rps / found.window_s) ** 0.5
    if off <= max(0.02 * found.requested_rps, chance, 1 / found.window_s):
        return None
    return Reason(
        code="offered_rate_mismatch",
        severity="suspect",
        text=f"{found.offered_rps:.4g} requests/s were due where {found.requested_rps:.4g} were asked for",
        remedy="A lost worker or too small a limit of `requests` does this.",
    )


def schedule_lag(found: Findings) -> Reason | None:
    """The response time includes the client's own lateness, which the server did not cause."""
    if found.saturated or found.lag_p99_s is None or found.service_tail_s is None:
        return None
    if found.lag_p99_s <= max(LATE_S, LATE_RATIO * found.service_tail_s):
        return None
    return Reason(
        code="schedule_lag",
        severity="suspect",
        text=f"1 % of the requests were sent more than {found.lag_p99_s * 1e3:.3g} ms late, "
        f"against a p99 of the service time of {found.service_tail_s * 1e3:.3g} ms",
        remedy="Raise concurrency when all users were busy; else shards, or give the load more cores.",
    )


def loop_lag(found: Findings) -> Reason | None:
    """A late event loop records arrivals late."""
    if found.loop_lag_p99_s is None or found.service_tail_s is None:
        return None
    if found.loop_lag_p99_s <= max(LATE_S, LATE_RATIO * found.service_tail_s):
        return None
    return Reason(
        code="loop_lag",
        severity="suspect",
        text=f"the event loop of the load was late by {found.loop_lag_p99_s * 1e3:.3g} ms (p99), "
        f"against a p99 of the service time of {found.service_tail_s * 1e3:.3g} ms",
        remedy="Raise shards, or give the load cores of its own.",
    )


def client_stalled(found: Findings) -> Reason | None:
    """A standing load sends and timestamps nothing, so its standstill is in the samples, however few."""
    if found.client_is_server or found.longest_stall_s < STALL_S or not found.window_s:
        return None
    share = found.stalled_s / found.window_s
    return Reason(
        code="client_stalled",
        severity="suspect" if share >= STALL_RATIO else "note",
        text=f"a worker of the load stood still for {found.longest_stall_s:.3g} s at once and for {share:.2%} of the "
        "window: it sent and stamped late then",
        remedy="Give the load cores of its own; `bench doctor` says what may take them away.",
    )


def clock_offset(found: Findings) -> Reason | None:
    """Workers on machines with an unknown clock difference do not send the common schedule."""
    if found.clock_error_s is None or found.clock_error_s <= LATE_S:
        return None
    return Reason(
        code="clock_offset",
        severity="suspect" if found.open_loop else "note",
        text=f"the clocks of the load's machines are known to each other within {found.clock_error_s * 1e3:.3g} ms "
        "only: requests of different shards lie so far from the schedule",
        remedy="Let all nodes keep time by one server (chrony), and choose nodes near each other.",
    )


def client_cpu(found: Findings) -> Reason | None:
    """A worker with a full core measures itself."""
    if found.client_is_server or found.worker_cpu_ratio is None or found.worker_cpu_ratio <= 0.8:
        return None
    return Reason(
        code="client_cpu",
        severity="suspect",
        text=f"a worker of the load used {found.worker_cpu_ratio:.0%} of a core",
        remedy="Raise shards, or lower the load.",
    )


def client_bound(found: Findings) -> Reason | None:
    """The load is close to the ceiling of the same driver against the null server on this machine."""
    if found.ceiling_rps is None or found.achieved_rps is None or found.achieved_rps < 0.8 * found.ceiling_rps:
        return None
    return Reason(
        code="client_bound",
        severity="suspect",
        text=f"{found.achieved_rps:.4g} requests/s is {found.achieved_rps / found.ceiling_rps:.0%} of what this "
        "driver reaches on this machine without a server's work",
        remedy="Raise shards, or load from more machines.",
    )


def littles_law(found: Findings) -> Reason | None:
    """Concurrency = throughput x latency in any stable system; here from three separate counts of all sent requests,
    including failed ones."""
    if found.concurrency_mean is None or found.ended_per_s is None or not found.stay_mean_s or not found.window_s:
        return None
    if found.ended_per_s * found.window_s < 100 or found.stay_mean_s > found.window_s / 20 or found.saturated:
        return None
    expected = found.ended_per_s * found.stay_mean_s
    if abs(expected - found.concurrency_mean) <= max(0.1 * found.concurrency_mean, 0.05):
        return None
    return Reason(
        code="littles_law",
        severity="suspect",
        text=f"{found.concurrency_mean:.3g} requests were in flight, but those that ended a second x their time in "
        f"flight is {expected:.3g}",
        remedy="The load was not stable over the window: raise duration_s or warmup_s.",
    )


def client_underdriven(found: Findings) -> Reason | None:
    """A closed loop keeps every user's request in flight; otherwise time passes between a reply and the next
    request."""
    if not _is_short_of_users(found) or _is_held_open(found):
        return None
    return Reason(
        code="client_underdriven",
        severity="suspect",
        text=f"{found.concurrency_mean:.3g} requests were in flight on average, of {found.requested_concurrency:g} "
        f"asked for: the rest of the time lies between a reply and the next request{_held(found)}",
        remedy="Raise shards, or give the load cores of its own; the service could do more than this.",
    )


def streams_held_open(found: Findings) -> Reason | None:
    """A user waits until its stream is closed, but a reply ends with its last token: the wait is in no metric."""
    if not _is_short_of_users(found) or not _is_held_open(found):
        return None
    return Reason(
        code="streams_held_open",
        severity="note",
        text=f"{found.concurrency_mean:.3g} replies were under way on average, of {found.requested_concurrency:g} "
        f"users{_held(found)}",
        remedy="See what the server does after its last token; a client that stops reading there could ask sooner.",
    )


def _is_short_of_users(found: Findings) -> bool:
    if found.open_loop or found.client_is_server or found.think_time_s or found.concurrency_mean is None:
        return False
    return bool(found.requested_concurrency and found.concurrency_mean < ENOUGH_USERS * found.requested_concurrency)


def _is_held_open(found: Findings) -> bool:
    """Whether streams held open by the server explain the missing users."""
    return (found.concurrency_mean or 0) + found.held_open >= ENOUGH_USERS * (found.requested_concurrency or 0)


def _held(found: Findings) -> str:
    if found.held_open < 0.01 * (found.requested_concurrency or 0) or found.held_open_mean_s is None:
        return ""
    return (
        f"; the server held {found.held_open:.3g} streams open after their last token, each for "
        f"{found.held_open_mean_s * 1e3:.3g} ms (mean)"
    )
