"""Judges whether a trial's figures may be believed: small pure checks, each with a stable code and a remedy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["note", "suspect", "invalid"]
Verdict = Literal["VALID", "SUSPECT", "INVALID"]

REMEDIES: Mapping[str, str] = {
    "server_died": "See the server's log. `bench retry` measures the trial again.",
    "server_never_healthy": "See the server's log; a slow start needs a longer health timeout_s in the recipe.",
    "port_taken": "Stop what listens on the port, or let Seamark choose one.",
    "setup_failed": "See the log of the deployment's setup.",
    "client_died": "See the trial's log. `bench retry` measures the trial again.",
    "all_requests_failed": "See errors.by_category and the server's log.",
    "no_samples": "`bench retry` measures the trial again.",
    "disk_full": "Free some space, then `bench retry`.",
    "timeout": "Allow more time, or ask for less load; then `bench retry`.",
    "interrupted": "`bench submit` goes on where it ended.",
}


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a result is not simply valid. Codes are stable; a note is worth knowing and changes no verdict."""

    code: str
    severity: Severity
    text: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "severity": self.severity, "text": self.text, "remedy": self.remedy}


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the checks look at. None: not known, so not judged.

    Times in seconds, ratios 0 to 1. `client_is_server`: the service runs inside the client, as file I/O does.
    """

    status: str = "ok"
    category: str | None = None
    failure: str | None = None
    open_loop: bool = False
    is_ramp: bool = False
    client_is_server: bool = False
    requests: int = 0
    ok: int = 0
    unfinished: int = 0
    disordered: int = 0
    error_rate: float | None = None
    workers_lost: int = 0
    workers: int = 0
    lag_p99_s: float | None = None
    loop_lag_p99_s: float | None = None
    service_p50_s: float | None = None
    service_mean_s: float | None = None
    window_s: float | None = None
    worker_cpu_ratio: float | None = None
    machine_cpu_ratio: float | None = None
    requested_rps: float | None = None
    offered_rps: float | None = None
    sent_rps: float | None = None
    achieved_rps: float | None = None
    replies_per_s: float | None = None
    saturated: bool = False
    requested_concurrency: float | None = None
    concurrency_mean: float | None = None
    think_time_s: float = 0.0
    steady: bool = True
    steady_reason: str | None = None
    ceiling_rps: float | None = None
    gpu_clock_ratio: float | None = None
    gpu_util_ratio: float | None = None
    page_cache_ratio: float | None = None
    wants_cache: bool = False
    withheld: Mapping[str, int] = field(default_factory=dict)
    slos_missed: Sequence[str] = ()
    quality_missed: Sequence[str] = ()


def trial_failed(found: Findings) -> Reason | None:
    """No figures at all."""
    if found.status == "ok":
        return None
    category = found.category or "failed"
    text = found.failure or f"the trial ended as {found.status}"
    return Reason(
        code=category,
        severity="invalid",
        text=text,
        remedy=REMEDIES.get(category, "See the trial's log, then retry."),
    )


def no_replies(found: Findings) -> Reason | None:
    """Nothing good came back inside the window."""
    if found.status != "ok" or found.ok:
        return None
    return Reason(
        code="no_replies",
        severity="invalid",
        text=f"none of the {found.requests} requests of the window has a good reply",
        remedy="See errors.by_category; a duration_s shorter than one reply also ends so.",
    )


def too_few_samples(found: Findings) -> Reason | None:
    """Even a median needs ten replies on each side."""
    if found.status != "ok" or not 0 < found.ok < 20:
        return None
    return Reason(
        code="too_few_samples",
        severity="suspect",
        text=f"only {found.ok} good replies in the window",
        remedy="Raise duration_s.",
    )


def times_disordered(found: Findings) -> Reason | None:
    """A reply cannot end before its request was sent."""
    if not found.disordered:
        return None
    return Reason(
        code="times_disordered",
        severity="invalid",
        text=f"{found.disordered} samples end before they begin",
        remedy="The driver or the machine's clock is at fault; report it with the samples.",
    )


def error_rate(found: Findings) -> Reason | None:
    """Failures are quick or slow for reasons of their own: the good replies no longer stand for the load."""
    if found.error_rate is None or found.error_rate <= 0.01 or not found.ok:
        return None
    return Reason(
        code="error_rate",
        severity="invalid" if found.error_rate > 0.5 else "suspect",
        text=f"{found.error_rate:.1%} of the requests failed",
        remedy="See errors.by_category; lower the load or raise timeout_s.",
    )


def unfinished(found: Findings) -> Reason | None:
    """Requests that were cut off are the long ones."""
    if found.saturated or not found.ok or found.unfinished <= 0.05 * found.requests:
        return None
    return Reason(
        code="unfinished",
        severity="suspect",
        text=f"{found.unfinished} of {found.requests} requests outlived the load: the slow ones are missing",
        remedy="Raise duration_s to many times the latency.",
    )


def shard_lost(found: Findings) -> Reason | None:
    """The load that was asked for was not there to the end."""
    if found.status != "ok" or not found.workers_lost:
        return None
    return Reason(
        code="shard_lost",
        severity="invalid" if 2 * found.workers_lost > found.workers else "suspect",
        text=f"{found.workers_lost} of {found.workers} workers of the load died",
        remedy="See the trial's log. `bench retry` measures the trial again.",
    )


def saturated(found: Findings) -> Reason | None:
    """Response times then grow with the length of the trial and say nothing else."""
    if not found.saturated or found.offered_rps is None or found.achieved_rps is None:
        return None
    return Reason(
        code="saturated",
        severity="suspect",
        text=f"{found.offered_rps:.4g} requests/s were offered and {found.achieved_rps:.4g} served: "
        "response times grow with the length of the trial",
        remedy="Lower rate_rps below what was served.",
    )


def rate_not_sent(found: Findings) -> Reason | None:
    """What was due was not sent in time, though the server kept up."""
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


def rate_not_asked(found: Findings) -> Reason | None:
    """The schedule does not have the rate that the scenario asks for; four standard errors are chance."""
    if found.is_ramp or not found.requested_rps or found.offered_rps is None or not found.window_s:
        return None
    off = abs(found.offered_rps - found.requested_rps)
    chance = 4 * (found.requested_rps / found.window_s) ** 0.5
    if off <= max(0.02 * found.requested_rps, chance, 1 / found.window_s):
        return None
    return Reason(
        code="rate_not_asked",
        severity="suspect",
        text=f"{found.offered_rps:.4g} requests/s were due where {found.requested_rps:.4g} were asked for",
        remedy="A lost worker or too small a limit of `requests` does this.",
    )


def schedule_lag(found: Findings) -> Reason | None:
    """Our own lateness is in the response time; the server is not to blame for it."""
    if found.saturated or found.lag_p99_s is None or found.service_p50_s is None:
        return None
    if found.lag_p99_s <= max(0.001, 0.1 * found.service_p50_s):
        return None
    return Reason(
        code="schedule_lag",
        severity="suspect",
        text=f"1 % of the requests were sent more than {found.lag_p99_s * 1e3:.3g} ms late, "
        f"against a median service time of {found.service_p50_s * 1e3:.3g} ms",
        remedy="Raise concurrency when all users were busy; else shards, or give the load more cores.",
    )


def loop_lag(found: Findings) -> Reason | None:
    """A late event loop stamps arrivals late."""
    if found.loop_lag_p99_s is None or found.service_p50_s is None:
        return None
    if found.loop_lag_p99_s <= max(0.001, 0.1 * found.service_p50_s):
        return None
    return Reason(
        code="loop_lag",
        severity="suspect",
        text=f"the event loop of the load was up to {found.loop_lag_p99_s * 1e3:.3g} ms late (p99)",
        remedy="Raise shards, or give the load cores of its own.",
    )


def client_cpu(found: Findings) -> Reason | None:
    """A worker whose core is full measures itself."""
    if found.client_is_server or found.worker_cpu_ratio is None or found.worker_cpu_ratio <= 0.8:
        return None
    return Reason(
        code="client_cpu",
        severity="suspect",
        text=f"a worker of the load used {found.worker_cpu_ratio:.0%} of a core",
        remedy="Raise shards, or lower the load.",
    )


def client_bound(found: Findings) -> Reason | None:
    """Close to what the same driver reaches against the null server on this machine."""
    if found.ceiling_rps is None or found.achieved_rps is None or found.achieved_rps < 0.8 * found.ceiling_rps:
        return None
    return Reason(
        code="client_bound",
        severity="suspect",
        text=f"{found.achieved_rps:.4g} requests/s is {found.achieved_rps / found.ceiling_rps:.0%} of what this "
        "driver reaches on this machine without a server's work",
        remedy="Raise shards, or load from more machines.",
    )


def machine_full(found: Findings) -> Reason | None:
    """Load and server share the cores: a faster client would slow the server, and the other way round."""
    if found.machine_cpu_ratio is None or found.machine_cpu_ratio <= 0.9 or found.client_is_server:
        return None
    return Reason(
        code="machine_full",
        severity="note",
        text=f"the machine's CPU was {found.machine_cpu_ratio:.0%} busy, by the load and the server together",
        remedy="Compare only with results of the same machine, or load from another one.",
    )


def littles_law(found: Findings) -> Reason | None:
    """Concurrency = throughput x latency, in any stable system; here from three separate counts."""
    if None in (found.concurrency_mean, found.replies_per_s, found.service_mean_s, found.window_s):
        return None
    assert found.concurrency_mean is not None
    assert found.replies_per_s is not None
    assert found.service_mean_s is not None
    assert found.window_s is not None
    if found.ok < 100 or found.service_mean_s > found.window_s / 20 or found.saturated or found.error_rate:
        return None
    expected = found.replies_per_s * found.service_mean_s
    if abs(expected - found.concurrency_mean) <= max(0.1 * found.concurrency_mean, 0.05):
        return None
    return Reason(
        code="littles_law",
        severity="suspect",
        text=f"{found.concurrency_mean:.3g} requests were in flight, but throughput x service time is {expected:.3g}",
        remedy="The load was not stable over the window: raise duration_s or warmup_s.",
    )


def users_idle(found: Findings) -> Reason | None:
    """A closed loop keeps every user's request in flight; if not, the client's own work lies between them."""
    if found.open_loop or found.client_is_server or found.think_time_s or found.concurrency_mean is None:
        return None
    if not found.requested_concurrency or found.concurrency_mean >= 0.8 * found.requested_concurrency:
        return None
    return Reason(
        code="users_idle",
        severity="suspect",
        text=f"{found.concurrency_mean:.3g} requests were in flight on average, of {found.requested_concurrency:g} "
        "asked for: the client spent the rest between a reply and the next request",
        remedy="Raise shards; the service could do more than this.",
    )


def no_steady_state(found: Findings) -> Reason | None:
    """A mean over something that moves depends on when one looks."""
    if found.status != "ok" or found.steady or not found.ok:
        return None
    return Reason(
        code="no_steady_state",
        severity="note" if found.is_ramp else "suspect",
        text=found.steady_reason or "no steady part was found",
        remedy="A ramp is read from series.csv." if found.is_ramp else "Raise warmup_s or duration_s.",
    )


def gpu_throttled(found: Findings) -> Reason | None:
    """A busy GPU below its own clock is too hot or short of power."""
    if found.gpu_clock_ratio is None or found.gpu_util_ratio is None:
        return None
    if found.gpu_util_ratio < 0.5 or found.gpu_clock_ratio >= 0.9:
        return None
    return Reason(
        code="gpu_throttled",
        severity="suspect",
        text=f"the mean clock of a busy GPU was {found.gpu_clock_ratio:.0%} of its highest",
        remedy="Look at temperature and power limit; measure again when cool.",
    )


def fits_cache(found: Findings) -> Reason | None:
    """Reads from memory are not reads from a disk."""
    if found.page_cache_ratio is None or found.page_cache_ratio < 0.2:
        return None
    return Reason(
        code="fits_cache",
        severity="note" if found.wants_cache else "suspect",
        text=f"{found.page_cache_ratio:.0%} of the data lay in the page cache after the load",
        remedy="Use direct I/O or a data set larger than memory, if the device is the question.",
    )


def quality_floor(found: Findings) -> Reason | None:
    """Equal quality before equal speed."""
    if not found.quality_missed:
        return None
    return Reason(
        code="quality_floor",
        severity="suspect",
        text=f"quality objective missed: {'; '.join(found.quality_missed)}",
        remedy="Do not compare its speed with results of a better quality; change the search settings.",
    )


def slo_missed(found: Findings) -> Reason | None:
    """A result, not a fault of the measurement."""
    if not found.slos_missed:
        return None
    return Reason(
        code="slo_missed",
        severity="note",
        text=f"objective missed: {'; '.join(found.slos_missed)}",
        remedy="Lower the load, or change the deployment.",
    )


def percentile_withheld(found: Findings) -> Reason | None:
    """A percentile with fewer than ten samples beyond it is one sample's chance."""
    if not found.withheld or not found.ok:
        return None
    needs = ", ".join(f"{name} needs {count:,}" for name, count in found.withheld.items())
    return Reason(
        code="percentile_withheld",
        severity="note",
        text=f"{found.ok:,} samples are too few: {needs}",
        remedy="Raise duration_s; the summary pools the repetitions.",
    )


CHECKS: tuple[Callable[[Findings], Reason | None], ...] = (
    trial_failed,
    no_replies,
    too_few_samples,
    times_disordered,
    error_rate,
    unfinished,
    shard_lost,
    saturated,
    rate_not_sent,
    rate_not_asked,
    schedule_lag,
    loop_lag,
    client_cpu,
    client_bound,
    machine_full,
    littles_law,
    users_idle,
    no_steady_state,
    gpu_throttled,
    fits_cache,
    quality_floor,
    slo_missed,
    percentile_withheld,
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
