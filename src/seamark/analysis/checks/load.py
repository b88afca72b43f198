"""Checks of the load: whether it followed the scenario, and whether it measured the service or itself."""

from seamark.analysis.checks.checked_trial import CheckedTrial, check
from seamark.analysis.metrics.metric_inputs import is_simulated_load
from seamark.model.load_profile import LoadProfile
from seamark.model.plurals import counted, in_percent, in_time
from seamark.model.results.trial_metrics import Severity, VerdictReason
from seamark.patterns.patterns import Pattern
from seamark.patterns.table import pattern_of

LATE_S, LATE_RATIO = 0.001, 0.2
"""Schedule lag matters above 1 ms and a fifth of the service time, p99 against p99."""

ENOUGH_USERS = 0.8
"""Ratio of a closed loop's users that must have a request in flight."""

STALL_S, STALL_RATIO = 0.1, 0.01
"""A standstill of a hundredth of the window affects the slowest hundredth of its requests."""


@check("suspect", "Raise duration_s to many times the latency.", "requests")
def unfinished(view: CheckedTrial) -> str | None:
    """Requests that were cut off are the slow ones."""
    counts = view.counts
    left = counts.cancelled + counts.unsent
    if view.metrics.saturated or not counts.ok or left <= 0.05 * counts.due:
        return None
    return f"{left} of {counted(counts.due, 'request')} outlived the load: the slow ones are missing"


@check(("invalid", "suspect"), "See the trial's log. `bench retry` measures the trial again.")
def shard_lost(view: CheckedTrial) -> tuple[Severity, str] | None:
    """A part of the requested load was missing."""
    workers = len(view.load.workers)
    lost = sum(not worker.ok for worker in view.load.workers)
    if not lost:
        return None
    severity: Severity = "invalid" if 2 * lost > workers else "suspect"
    return severity, f"{lost} of {counted(workers, 'worker')} of the load died"


def saturated(view: CheckedTrial) -> VerdictReason | None:
    """Response times then grow with the length of the trial and measure nothing else."""
    offered, achieved = view.metrics.offered_rps, view.metrics.achieved_rps
    if not view.metrics.saturated or offered is None or achieved is None:
        return None
    return VerdictReason(
        code="saturated",
        severity="suspect",
        text=f"{offered:.4g} requests/s were offered and {achieved:.4g} served: "
        "response times grow with the length of the trial",
        remedy=f"Lower {'arrivals_rps' if view.kind == 'program' else 'rate_rps'} below what was served.",
    )


@check("suspect", "Lower rate_rps below what was served, or set stop_when_saturated to false.")
def over_saturated(view: CheckedTrial) -> str | None:
    """The server fell behind permanently, so the load was ended early; its end is not in the metrics."""
    if view.load.over_saturated_at_s is None:
        return None
    return (
        f"outstanding requests grew steadily: the server cannot keep up, and the load was ended after "
        f"{view.load.over_saturated_at_s:.3g} s"
    )


@check("suspect", "Raise shards or concurrency.")
def rate_not_sent(view: CheckedTrial) -> str | None:
    """Due requests were not sent in time, although the server kept up."""
    offered, window_s = view.metrics.offered_rps, view.counts.window.length_s
    if view.metrics.saturated or view.trial.load.closed or offered is None or window_s <= 0:
        return None
    sent = view.counts.sent / window_s
    return f"{sent:.4g} of {offered:.4g} requests/s due were sent" if sent < 0.95 * offered else None


@check("suspect", "A lost worker or a low limit of `requests` causes this.")
def offered_rate_mismatch(view: CheckedTrial) -> str | None:
    """The schedule does not have the configured rate; up to four standard errors are chance."""
    offered, window_s = view.metrics.offered_rps, view.counts.window.length_s
    pattern = _pattern(view)
    requested = None if pattern is None else _requested_rps(view, pattern)
    if pattern is None or not requested or offered is None:
        return None
    chance = 4 * pattern.gap_variation * (requested / window_s) ** 0.5
    if abs(offered - requested) <= max(0.02 * requested, chance, 1 / window_s):
        return None
    return f"{offered:.4g} requests/s were due where {requested:.4g} were asked for"


def _pattern(view: CheckedTrial) -> Pattern | None:
    """Return the pattern of an open loop; None if the module of a user's own pattern is missing."""
    profile = view.trial.load
    if is_simulated_load(profile, view.load):  # its `limit_s` is in real time, not its length
        virtual = {name: value for name, value in view.trial.settings.items() if name != "limit_s"}
        profile = LoadProfile.of(virtual)
    try:
        return pattern_of(profile)
    except ValueError:
        return None


def _requested_rps(view: CheckedTrial, pattern: Pattern) -> float | None:
    """Return the rate of an open loop over the window; None if only a file knows it, or there is a limit.

    The rate of a pattern with sessions is that of sessions: their later turns follow the replies.
    """
    profile, window = view.trial.load, view.counts.window
    if profile.requests is not None or profile.turns > 1 or window.length_s <= 0:
        return None
    first, last = pattern.expected(window.start_ns / 1e9), pattern.expected(window.end_ns / 1e9)
    return None if first is None or last is None else (last - first) / window.length_s


@check("suspect", "Raise concurrency when all users were busy; else shards, or give the load more cores.")
def schedule_lag(view: CheckedTrial) -> str | None:
    """The response time includes the client's own lateness, which the server did not cause."""
    lag_s, service_s = _p99_s(view, "schedule_lag_ms"), _p99_s(view, "service_time_ms")
    if view.metrics.saturated or lag_s is None or service_s is None or lag_s <= max(LATE_S, LATE_RATIO * service_s):
        return None
    return (
        f"1 % of the requests were sent more than {in_time(lag_s)} late, "
        f"against a p99 of the service time of {in_time(service_s)}"
    )


@check("suspect", "Raise shards, or give the load cores of its own.")
def loop_lag(view: CheckedTrial) -> str | None:
    """A late event loop records arrivals late."""
    lags = [worker.loop_lag_ns.p99 or 0 for worker in view.load.workers if worker.loop_lag_ns is not None]
    lag_s, service_s = max(lags, default=0) / 1e9, _p99_s(view, "service_time_ms")
    if service_s is None or lag_s <= max(LATE_S, LATE_RATIO * service_s):
        return None
    return (
        f"the event loop of the load was late by {in_time(lag_s)} (p99), "
        f"against a p99 of the service time of {in_time(service_s)}"
    )


def _p99_s(view: CheckedTrial, times: str) -> float | None:
    p99_ms = view.metrics.figure(f"{times}.p99")
    return None if p99_ms is None else p99_ms / 1e3


@check(("suspect", "note"), "Give the load cores of its own; `bench doctor` lists what may use them.")
def client_stalled(view: CheckedTrial) -> tuple[Severity, str] | None:
    """A standing load sends and timestamps nothing, so its standstill is in the samples, however few."""
    window, total_s, longest_s = view.counts.window, 0.0, 0.0
    for worker in view.load.workers:
        inside_ns = (min(until, window.end_ns) - max(begin, window.start_ns) for begin, until in worker.stalls_ns)
        stalls_s = [length_ns / 1e9 for length_ns in inside_ns if length_ns > 0]
        total_s, longest_s = max((total_s, longest_s), (sum(stalls_s), max(stalls_s, default=0.0)))
    if view.client_is_server or longest_s < STALL_S or not window.length_s:
        return None
    share = total_s / window.length_s
    severity: Severity = "suspect" if share >= STALL_RATIO else "note"
    return severity, (
        f"a worker of the load stood still for {longest_s:.3g} s at once and for "
        f"{in_percent(share, 2)} of the window: it sent and stamped late then"
    )


@check(
    ("suspect", "note"), "Synchronise all nodes with one time server (chrony), and choose nodes close to each other."
)
def clock_offset(view: CheckedTrial) -> tuple[Severity, str] | None:
    """Workers on machines with an unknown clock difference do not send the common schedule."""
    errors_ns = [
        worker.offset_error_ns + abs(worker.offset_drift_ns or 0)
        for worker in view.load.workers
        if worker.offset_error_ns is not None
    ]
    error_s = max(errors_ns, default=0) / 1e9
    if error_s <= LATE_S:
        return None
    severity: Severity = "suspect" if not view.trial.load.closed else "note"
    return severity, (
        f"the clocks of the load's machines are known to each other within {in_time(error_s)} "
        "only: requests of different shards lie so far from the schedule"
    )


@check("suspect", "Raise shards, or lower the load.")
def client_cpu(view: CheckedTrial) -> str | None:
    """A worker with a full core measures itself."""
    used = [
        (worker.cpu_s - (worker.spin_s or 0.0)) / worker.wall_s
        for worker in view.load.workers
        if worker.cpu_s and worker.wall_s
    ]
    most = max(used, default=0.0)
    if view.client_is_server or most <= 0.8:
        return None
    return f"a worker of the load used {in_percent(most)} of a core"


@check("suspect", "Raise shards, or load from more machines.")
def client_bound(view: CheckedTrial) -> str | None:
    """The load is close to the ceiling of the same driver against the null server on this machine."""
    counts, achieved = view.counts, view.metrics.achieved_rps
    if view.ceiling is None or not counts.replies or achieved is None:
        return None
    exchanged = (counts.bytes_received, counts.reads, counts.chunks - counts.reads)
    ceiling = view.ceiling.for_replies(*(count / counts.replies for count in exchanged))
    if achieved < 0.8 * ceiling:
        return None
    return (
        f"{achieved:.4g} requests/s is {in_percent(achieved / ceiling)} of "
        "what this driver reaches on this machine without a server's work"
    )


GATEWAY_SHARE = 0.8
"""Ratio of a gateway's ceiling from which on its own waiting is in the figures, as for a client."""


@check("suspect", "Give the gateway more cores, or lower the load; pickers differ less than what waits in it.")
def gateway_bound(view: CheckedTrial) -> str | None:
    """The load is close to what the gateway carries on these cores with replicas that answer at once."""
    gateway, counts, metrics = view.load.gateway, view.counts, view.metrics
    rates = [rate for rate in (metrics.offered_rps, metrics.achieved_rps) if rate is not None]
    if gateway is None or not counts.replies or not rates:
        return None
    rate, ceiling = max(rates), gateway.for_replies(counts.chunks / counts.replies)
    if ceiling is None or rate < GATEWAY_SHARE * ceiling:
        return None
    alone = "" if gateway.direct_per_s is None else f"; one of these reached {gateway.direct_per_s:.4g}/s without it"
    return (
        f"{rate:.4g} requests/s is {in_percent(rate / ceiling)} of the {ceiling:.4g}/s that the gateway carried on "
        f"these cores to replicas that answer at once{alone}"
    )


@check("suspect", "The load was not stable over the window: raise duration_s or warmup_s.", "requests")
def littles_law(view: CheckedTrial) -> str | None:
    """Concurrency = throughput x latency in any stable system; here from three separate counts of all sent requests,
    including failed ones."""
    counts, window_s, in_flight = view.counts, view.counts.window.length_s, view.metrics.concurrency_mean
    if in_flight is None or window_s <= 0 or not counts.stay_ns or view.metrics.saturated:
        return None
    stay_mean_s = counts.stay_ns / 1e9 / counts.stays
    expected = counts.ended / window_s * stay_mean_s
    if counts.ended < 100 or stay_mean_s > window_s / 20 or abs(expected - in_flight) <= max(0.1 * in_flight, 0.05):
        return None
    return (
        f"{in_flight:.3g} requests were in flight, but those that ended a second x their time in "
        f"flight is {expected:.3g}"
    )


@check("suspect", "Raise shards, or give the load cores of its own; the service could do more than this.", "requests")
def client_underdriven(view: CheckedTrial) -> str | None:
    """A closed loop keeps every user's request in flight; otherwise time passes between a reply and the next
    request."""
    if not _is_short_of_users(view) or _is_held_open(view):
        return None
    return (
        f"{view.metrics.concurrency_mean:.3g} requests were in flight on average, of "
        f"{view.trial.load.concurrency:g} asked for: the rest of the time lies between a reply and the next "
        f"request{_held(view)}"
    )


IN_WAVES, TOGETHER = 0.5, 1.76
"""Autocorrelation and dispersion of starts above which a load comes in waves. With independent phases the starts of a
latency recur, so that only 8 bins vary: 5 % of such loads have a dispersion over 1.76, a chi-squared of 14.07 with 7
degrees of freedom over 8; a third have one over 1."""
WAITS_RATIO, WAITS_ERRORS = 0.05, 3.0
"""Difference of requests behind others in a crowd from the first, and its standard errors, from which it matters."""


@check(
    ("suspect", "note"),
    "Vary the lengths of replies, set think_time_s, or use an open load such as poisson.",
    "requests",
)
def waves(view: CheckedTrial) -> tuple[Severity, str] | None:
    """Users in step start together. Where those behind others wait differently, the crowd is in the times."""
    found = view.counts.waves
    if found is None or found.autocorrelation <= IN_WAVES or found.dispersion <= TOGETHER:
        return None
    ratio, errors = found.behind_ratio or 0.0, found.behind_errors or 0.0
    severity: Severity = "suspect" if abs(ratio) >= WAITS_RATIO and errors >= WAITS_ERRORS else "note"
    return severity, (
        f"starts recur with each median latency (autocorrelation {found.autocorrelation:.2g}), and are "
        f"{found.dispersion:.3g} times as uneven as independent ones; requests behind others took "
        f"{in_percent(abs(ratio))} {'more' if ratio >= 0 else 'less'} than the first"
    )


@check(
    "note",
    "Check what the server does after its last token; a client that stops reading there sends sooner.",
    "requests",
)
def streams_held_open(view: CheckedTrial) -> str | None:
    """A user waits until its stream is closed, but a reply ends with its last token: the wait is in no metric."""
    if not _is_short_of_users(view) or not _is_held_open(view):
        return None
    return (
        f"{view.metrics.concurrency_mean:.3g} replies were under way on average, of "
        f"{view.trial.load.concurrency:g} users{_held(view)}"
    )


def _is_short_of_users(view: CheckedTrial) -> bool:
    profile, in_flight = view.trial.load, view.metrics.concurrency_mean
    if not profile.closed or view.client_is_server or profile.think_time_s or in_flight is None:
        return False
    return in_flight < ENOUGH_USERS * profile.concurrency


def _is_held_open(view: CheckedTrial) -> bool:
    """Whether streams held open by the server explain the missing users."""
    return (view.metrics.concurrency_mean or 0) + _held_open(view) >= ENOUGH_USERS * view.trial.load.concurrency


def _held_open(view: CheckedTrial) -> float:
    """Return the mean number of streams that were open after their last content."""
    return sum((worker.held_open_s or 0.0) / worker.wall_s for worker in view.load.workers if worker.wall_s)


def _held(view: CheckedTrial) -> str:
    completed = sum(worker.completed or 0 for worker in view.load.workers)
    if _held_open(view) < 0.01 * view.trial.load.concurrency or not completed:
        return ""
    mean_s = sum(worker.held_open_s or 0.0 for worker in view.load.workers) / completed
    return (
        f"; the server held {_held_open(view):.3g} streams open after their last token, each for "
        f"{in_time(mean_s)} (mean)"
    )
