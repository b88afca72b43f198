"""Checks of the load: whether it followed the scenario, and whether it measured the service or itself."""

from seamark.analysis.checks.inputs import CheckInputs, of_loads
from seamark.model.plurals import counted, in_percent, in_time
from seamark.model.results.trial_metrics import VerdictReason

LATE_S, LATE_RATIO = 0.001, 0.2
"""Schedule lag matters above 1 ms and a fifth of the service time, p99 against p99."""

ENOUGH_USERS = 0.8
"""Ratio of a closed loop's users that must have a request in flight."""

STALL_S, STALL_RATIO = 0.1, 0.01
"""A standstill of a hundredth of the window affects the slowest hundredth of its requests."""


@of_loads("requests")
def unfinished(inputs: CheckInputs) -> VerdictReason | None:
    """Requests that were cut off are the slow ones."""
    if inputs.saturated or not inputs.ok or inputs.unfinished <= 0.05 * inputs.requests:
        return None
    return VerdictReason(
        code="unfinished",
        severity="suspect",
        text=f"{inputs.unfinished} of {counted(inputs.requests, 'request')} outlived the load: "
        "the slow ones are missing",
        remedy="Raise duration_s to many times the latency.",
    )


def shard_lost(inputs: CheckInputs) -> VerdictReason | None:
    """A part of the requested load was missing."""
    if inputs.status != "ok" or not inputs.workers_lost:
        return None
    return VerdictReason(
        code="shard_lost",
        severity="invalid" if 2 * inputs.workers_lost > inputs.workers else "suspect",
        text=f"{inputs.workers_lost} of {counted(inputs.workers, 'worker')} of the load died",
        remedy="See the trial's log. `bench retry` measures the trial again.",
    )


def saturated(inputs: CheckInputs) -> VerdictReason | None:
    """Response times then grow with the length of the trial and measure nothing else."""
    if not inputs.saturated or inputs.offered_rps is None or inputs.achieved_rps is None:
        return None
    return VerdictReason(
        code="saturated",
        severity="suspect",
        text=f"{inputs.offered_rps:.4g} requests/s were offered and {inputs.achieved_rps:.4g} served: "
        "response times grow with the length of the trial",
        remedy=f"Lower {'arrivals_rps' if inputs.kind == 'program' else 'rate_rps'} below what was served.",
    )


def over_saturated(inputs: CheckInputs) -> VerdictReason | None:
    """The server fell behind permanently, so the load was ended early; its end is not in the metrics."""
    if inputs.over_saturated_at_s is None:
        return None
    return VerdictReason(
        code="over_saturated",
        severity="suspect",
        text=f"outstanding requests grew steadily: the server cannot keep up, and the load was ended after "
        f"{inputs.over_saturated_at_s:.3g} s",
        remedy="Lower rate_rps below what was served, or set stop_when_saturated to false.",
    )


def rate_not_sent(inputs: CheckInputs) -> VerdictReason | None:
    """Due requests were not sent in time, although the server kept up."""
    if inputs.saturated or inputs.offered_rps is None or inputs.sent_rps is None or not inputs.open_loop:
        return None
    if inputs.sent_rps >= 0.95 * inputs.offered_rps:
        return None
    return VerdictReason(
        code="rate_not_sent",
        severity="suspect",
        text=f"{inputs.sent_rps:.4g} of {inputs.offered_rps:.4g} requests/s due were sent",
        remedy="Raise shards or concurrency.",
    )


def offered_rate_mismatch(inputs: CheckInputs) -> VerdictReason | None:
    """The schedule does not have the configured rate; up to four standard errors are chance."""
    if not inputs.requested_rps or inputs.offered_rps is None or not inputs.window_s:
        return None
    off = abs(inputs.offered_rps - inputs.requested_rps)
    chance = 4 * inputs.gap_variation * (inputs.requested_rps / inputs.window_s) ** 0.5
    if off <= max(0.02 * inputs.requested_rps, chance, 1 / inputs.window_s):
        return None
    return VerdictReason(
        code="offered_rate_mismatch",
        severity="suspect",
        text=f"{inputs.offered_rps:.4g} requests/s were due where {inputs.requested_rps:.4g} were asked for",
        remedy="A lost worker or a low limit of `requests` causes this.",
    )


def schedule_lag(inputs: CheckInputs) -> VerdictReason | None:
    """The response time includes the client's own lateness, which the server did not cause."""
    if inputs.saturated or inputs.lag_p99_s is None or inputs.service_tail_s is None:
        return None
    if inputs.lag_p99_s <= max(LATE_S, LATE_RATIO * inputs.service_tail_s):
        return None
    return VerdictReason(
        code="schedule_lag",
        severity="suspect",
        text=f"1 % of the requests were sent more than {in_time(inputs.lag_p99_s)} late, "
        f"against a p99 of the service time of {in_time(inputs.service_tail_s)}",
        remedy="Raise concurrency when all users were busy; else shards, or give the load more cores.",
    )


def loop_lag(inputs: CheckInputs) -> VerdictReason | None:
    """A late event loop records arrivals late."""
    if inputs.loop_lag_p99_s is None or inputs.service_tail_s is None:
        return None
    if inputs.loop_lag_p99_s <= max(LATE_S, LATE_RATIO * inputs.service_tail_s):
        return None
    return VerdictReason(
        code="loop_lag",
        severity="suspect",
        text=f"the event loop of the load was late by {in_time(inputs.loop_lag_p99_s)} (p99), "
        f"against a p99 of the service time of {in_time(inputs.service_tail_s)}",
        remedy="Raise shards, or give the load cores of its own.",
    )


def client_stalled(inputs: CheckInputs) -> VerdictReason | None:
    """A standing load sends and timestamps nothing, so its standstill is in the samples, however few."""
    if inputs.client_is_server or inputs.longest_stall_s < STALL_S or not inputs.window_s:
        return None
    share = inputs.stalled_s / inputs.window_s
    return VerdictReason(
        code="client_stalled",
        severity="suspect" if share >= STALL_RATIO else "note",
        text=f"a worker of the load stood still for {inputs.longest_stall_s:.3g} s at once and for "
        f"{in_percent(share, 2)} of the window: it sent and stamped late then",
        remedy="Give the load cores of its own; `bench doctor` lists what may use them.",
    )


def clock_offset(inputs: CheckInputs) -> VerdictReason | None:
    """Workers on machines with an unknown clock difference do not send the common schedule."""
    if inputs.clock_error_s is None or inputs.clock_error_s <= LATE_S:
        return None
    return VerdictReason(
        code="clock_offset",
        severity="suspect" if inputs.open_loop else "note",
        text=f"the clocks of the load's machines are known to each other within {in_time(inputs.clock_error_s)} "
        "only: requests of different shards lie so far from the schedule",
        remedy="Synchronise all nodes with one time server (chrony), and choose nodes close to each other.",
    )


def client_cpu(inputs: CheckInputs) -> VerdictReason | None:
    """A worker with a full core measures itself."""
    if inputs.client_is_server or inputs.worker_cpu_ratio is None or inputs.worker_cpu_ratio <= 0.8:
        return None
    return VerdictReason(
        code="client_cpu",
        severity="suspect",
        text=f"a worker of the load used {in_percent(inputs.worker_cpu_ratio)} of a core",
        remedy="Raise shards, or lower the load.",
    )


def client_bound(inputs: CheckInputs) -> VerdictReason | None:
    """The load is close to the ceiling of the same driver against the null server on this machine."""
    if inputs.ceiling_rps is None or inputs.achieved_rps is None or inputs.achieved_rps < 0.8 * inputs.ceiling_rps:
        return None
    return VerdictReason(
        code="client_bound",
        severity="suspect",
        text=f"{inputs.achieved_rps:.4g} requests/s is {in_percent(inputs.achieved_rps / inputs.ceiling_rps)} of "
        "what this driver reaches on this machine without a server's work",
        remedy="Raise shards, or load from more machines.",
    )


@of_loads("requests")
def littles_law(inputs: CheckInputs) -> VerdictReason | None:
    """Concurrency = throughput x latency in any stable system; here from three separate counts of all sent requests,
    including failed ones."""
    if inputs.concurrency_mean is None or inputs.ended_per_s is None or not inputs.stay_mean_s or not inputs.window_s:
        return None
    if inputs.ended_per_s * inputs.window_s < 100 or inputs.stay_mean_s > inputs.window_s / 20 or inputs.saturated:
        return None
    expected = inputs.ended_per_s * inputs.stay_mean_s
    if abs(expected - inputs.concurrency_mean) <= max(0.1 * inputs.concurrency_mean, 0.05):
        return None
    return VerdictReason(
        code="littles_law",
        severity="suspect",
        text=f"{inputs.concurrency_mean:.3g} requests were in flight, but those that ended a second x their time in "
        f"flight is {expected:.3g}",
        remedy="The load was not stable over the window: raise duration_s or warmup_s.",
    )


@of_loads("requests")
def client_underdriven(inputs: CheckInputs) -> VerdictReason | None:
    """A closed loop keeps every user's request in flight; otherwise time passes between a reply and the next
    request."""
    if not _is_short_of_users(inputs) or _is_held_open(inputs):
        return None
    return VerdictReason(
        code="client_underdriven",
        severity="suspect",
        text=f"{inputs.concurrency_mean:.3g} requests were in flight on average, of {inputs.requested_concurrency:g} "
        f"asked for: the rest of the time lies between a reply and the next request{_held(inputs)}",
        remedy="Raise shards, or give the load cores of its own; the service could do more than this.",
    )


@of_loads("requests")
def streams_held_open(inputs: CheckInputs) -> VerdictReason | None:
    """A user waits until its stream is closed, but a reply ends with its last token: the wait is in no metric."""
    if not _is_short_of_users(inputs) or not _is_held_open(inputs):
        return None
    return VerdictReason(
        code="streams_held_open",
        severity="note",
        text=f"{inputs.concurrency_mean:.3g} replies were under way on average, of {inputs.requested_concurrency:g} "
        f"users{_held(inputs)}",
        remedy="Check what the server does after its last token; a client that stops reading there sends sooner.",
    )


def _is_short_of_users(inputs: CheckInputs) -> bool:
    if inputs.open_loop or inputs.client_is_server or inputs.think_time_s or inputs.concurrency_mean is None:
        return False
    return bool(
        inputs.requested_concurrency and inputs.concurrency_mean < ENOUGH_USERS * inputs.requested_concurrency
    )


def _is_held_open(inputs: CheckInputs) -> bool:
    """Whether streams held open by the server explain the missing users."""
    return (inputs.concurrency_mean or 0) + inputs.held_open >= ENOUGH_USERS * (inputs.requested_concurrency or 0)


def _held(inputs: CheckInputs) -> str:
    if inputs.held_open < 0.01 * (inputs.requested_concurrency or 0) or inputs.held_open_mean_s is None:
        return ""
    return (
        f"; the server held {inputs.held_open:.3g} streams open after their last token, each for "
        f"{in_time(inputs.held_open_mean_s)} (mean)"
    )
