"""Inputs of the checks of a trial. No check here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps

from seamark.model.results.trial_metrics import VerdictReason
from seamark.model.service import LoadKind


@dataclass(frozen=True, kw_only=True)
class Connections:
    """Connections of all wire workers together. `anew` were made during the load, because the server had closed the
    previous ones. `churn_per_s_limit` is the rate of those that leaves local ports free; None: any. `overflows`:
    connections refused by a full queue of the server; `backlog`: the length of that queue."""

    asked: int = 0
    ports_free: int | None = None
    churn_per_s_limit: float | None = None
    anew: int = 0
    anew_per_s: float = 0.0
    backlog: int | None = None
    overflows: int = 0


BUSY_GPU = 0.5
"""Utilisation from which on a GPU is expected to run at its highest clock."""
OTHERS_BURST = 0.4
"""Ratio of the processors from which on others crowd a part of the window: twice what is too much over all of it."""


@dataclass(frozen=True, kw_only=True)
class Processors:
    """Use of one node over the window, as ratios of all its processors and of time.

    `load` and `server` are None if none of their processes was monitored on that node. `others` is the remaining use
    without steal and interrupts: a lower limit; None where some of the trial's own processes were not monitored.
    `crowded` is the share of the window in which others used OTHERS_BURST or more. `steal` is time that a hypervisor
    gave to other machines. `waiting`, `waiting_io` and `waiting_memory`: shares of time in which some task waited for
    a processor, a disk, memory; None without PSI. `node` is None for the load's own.
    """

    node: str | None
    busy: float
    others: float | None
    crowded: float = 0.0
    load: float | None = None
    server: float | None = None
    steal: float = 0.0
    waiting: float | None = None
    waiting_io: float | None = None
    waiting_memory: float | None = None
    load_average: float | None = None
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class CheckInputs:
    """What the checks look at. None: not known, so not judged.

    Times in seconds, ratios 0 to 1. `changing`: the rate is meant to change over the load, as in a ramp.
    `gap_variation` is the coefficient of variation of the gaps between arrivals, 1 of a Poisson load.
    `stalled_s` and `longest_stall_s`: how long the worst worker stood still inside the window, in all and at once.
    Of all requests, good or not, `ended_per_s` inside the window; those sent inside it took `stay_mean_s`.
    Of `uncounted` of all good `replies` the service did not say how many units they have; `counts_units`: few enough.
    The others have `counted_units` of `asked_units` that their requests asked for, 0 where a reply may end sooner.
    `first_chunk_tokens`: mean tokens of a chunk where those of the first are not known, which makes TPOT too low by
    `tpot_low_ratio`.
    `held_open` streams were still open after their last content, on average, each for `held_open_mean_s`.
    `client_is_server`: the service runs inside the client, as file I/O does. `samples`: requests that percentiles of
    response time are of; `ranges`: percentiles that unanswered requests make ranges, with their ends. `cancelled`
    requests were under way when the load ended, `unsent` never sent.
    `own`: metrics of the user's own by name. A finite load (`kind`) has `items`, of which `items_left` were not done,
    and ran in `sessions`. `others_unknown`: why the use of processors by others is not known, `others_before`: their
    use before the load. `shared_device`: the device of its lane, if other lanes were on it. `not_scored`: why its
    kept replies could not be scored, `unanswered`: items without a good reply, where replies are scored;
    `stated_errors` counts replies by the code that the server gave their error. `ended_early` is the party that ended
    the window of all before its time, at `early_ratio` of the planned one; `idle_cores` is the use of CPUs, in cores,
    of members whose party was under no load. `extrapolated` are inputs of a simulation outside of those of its fit,
    `suspect_sources` the codes for which trials of its fit are SUSPECT, each with their number.
    `gpu_clock_ratio` and `gpu_util_ratio` are of the busy GPU with the lowest clock.
    """

    status: str = "ok"
    category: str | None = None
    remedy: str | None = None
    failure: str | None = None
    open_loop: bool = False
    changing: bool = False
    gap_variation: float = 1.0
    client_is_server: bool = False
    requests: int = 0
    ok: int = 0
    unfinished: int = 0
    disordered: int = 0
    error_rate: float | None = None
    most_errors: str | None = None
    workers_lost: int = 0
    workers: int = 0
    lag_p99_s: float | None = None
    loop_lag_p99_s: float | None = None
    clock_error_s: float | None = None
    stalled_s: float = 0.0
    longest_stall_s: float = 0.0
    service_tail_s: float | None = None
    stay_mean_s: float | None = None
    window_s: float | None = None
    worker_cpu_ratio: float | None = None
    machine_cpu_ratio: float | None = None
    requested_rps: float | None = None
    offered_rps: float | None = None
    sent_rps: float | None = None
    achieved_rps: float | None = None
    ended_per_s: float | None = None
    held_open: float = 0.0
    held_open_mean_s: float | None = None
    saturated: bool = False
    over_saturated_at_s: float | None = None
    requested_concurrency: float | None = None
    concurrency_mean: float | None = None
    think_time_s: float = 0.0
    steady: bool | None = True
    steady_reason: str | None = None
    advised_warmup_s: float | None = None
    outages: Sequence[str] = ()
    cut: str | None = None
    ceiling_rps: float | None = None
    gpu_clock_ratio: float | None = None
    gpu_util_ratio: float | None = None
    page_cache_ratio: float | None = None
    speed_not_of_method: bool = False
    wants_cache: bool = False
    samples: int = 0
    withheld: Mapping[str, int] = field(default_factory=dict)
    ranges: Sequence[str] = ()
    timeouts: int = 0
    cancelled: int = 0
    unsent: int = 0
    unit: str = "reply"
    uncounted: int = 0
    counts_units: bool = True
    replies: int = 0
    counted_units: int = 0
    asked_units: int = 0
    first_chunk_tokens: float | None = None
    tpot_low_ratio: float = 0.0
    slos_missed: Sequence[str] = ()
    quality_missed: Sequence[str] = ()
    wrong_answers: Sequence[str] = ()
    server_restarted: str | None = None
    connections: Connections = Connections()
    processors: Sequence[Processors] = ()
    others_unknown: str | None = None
    others_before: float | None = None
    own: Mapping[str, float | None] = field(default_factory=dict)
    kind: str = "requests"
    items: int = 0
    items_left: int = 0
    sessions: int = 1
    shared_device: str | None = None
    not_scored: str | None = None
    unanswered: int = 0
    stated_errors: Mapping[str, int] = field(default_factory=dict)
    ended_early: str | None = None
    early_ratio: float = 1.0
    idle_cores: Mapping[str, float] = field(default_factory=dict)
    extrapolated: Sequence[str] = ()
    suspect_sources: Sequence[str] = ()


Check = Callable[[CheckInputs], VerdictReason | None]


def of_loads(*kinds: LoadKind) -> Callable[[Check], Check]:
    """Limit a check to kinds of load: a finite load has no steady state, and ends with few users; a program is no
    sample of many."""

    def limit(check: Check) -> Check:
        @wraps(check)
        def limited(inputs: CheckInputs) -> VerdictReason | None:
            return check(inputs) if inputs.kind in kinds else None

        return limited

    return limit
