"""Checks of the machines of a trial: use by others, memory, free ports, and lost connections."""

from collections.abc import Iterable

from seamark.analysis.checks.checked_trial import CheckedTrial, check
from seamark.analysis.metrics.processors import OTHERS_BURST, Processors
from seamark.model.plurals import in_percent
from seamark.model.results.load_record import ConnectionFigures
from seamark.model.results.trial_metrics import Severity, VerdictReason

FULL = 0.9
"""Busy ratio of a machine from which on load and server may wait for a processor."""
OTHERS, OTHERS_OF_FULL = 0.2, 0.1
"""Ratio of others from which on a trial is SUSPECT: of any machine, and of a full one."""
STEAL = 0.05
CROWDED = 0.1
"""Share of the window in which others may use OTHERS_BURST: a tenth of the requests is far beyond a p99."""
WAITING_MEMORY = 0.1
"""Share of time in which tasks may wait for memory; a machine that does not run out of it is at 0."""
WORTH_SAYING = 0.01


@check("note", "Compare only with results of the same machine, or load from another one.")
def host_cpu_saturated(view: CheckedTrial) -> str | None:
    """Processes on shared cores slow each other: a faster client slows its server, and the reverse."""
    busy = view.metrics.resource.get("cpu_util")
    if busy is None or busy <= FULL or view.client_is_server:
        return None
    local = next((processors for processors in view.processors if processors.node is None), None)
    return f"the machine's processors were {in_percent(busy)} busy" + (_shares(local) if local else "")


def busy_elsewhere(view: CheckedTrial) -> VerdictReason | None:
    """Processors used by others are unavailable to load and server, and the effect on them is unknown."""
    for processors in view.processors:
        if _much(processors) or processors.crowded >= CROWDED or processors.steal >= STEAL:
            return VerdictReason(
                code="busy_elsewhere",
                severity="suspect",
                text=_seen(processors),
                remedy="Measure when nothing else runs there, or on a node of your own; "
                "`bench retry TRIAL` measures the trial again.",
            )
    known = any(processors.node is None and processors.others is not None for processors in view.processors)
    before = view.load.others_before
    if not known and before is not None and before >= OTHERS:
        return VerdictReason(
            code="busy_elsewhere",
            severity="suspect",
            text=f"others used {in_percent(before)} of the processors of the machine just before the "
            "load; what they used during it is not known",
            remedy="Measure when nothing else runs there, or for longer.",
        )
    return None


@check("note", "Compare the repetitions; the report's nodes have load average and busiest processes.")
def others_unknown(view: CheckedTrial) -> str | None:
    """Without the use of every process of the trial, what others used cannot be told from it."""
    if view.others_unknown is None:
        return None
    return f"what others used of the processors is not known: {view.others_unknown}"


@check("suspect", "See ram_used_bytes and rss_bytes in telemetry.csv; use less memory, or a larger machine.")
def memory_pressure(view: CheckedTrial) -> str | None:
    """A task that waits for memory stands still while pages are freed or come back from a disk."""
    for processors in view.processors:
        if processors.waiting_memory is not None and processors.waiting_memory >= WAITING_MEMORY:
            return (
                f"some task of {_where(processors)} waited for memory"
                f" {in_percent(processors.waiting_memory)} of the time"
            )
    return None


@check("suspect", "Where speed is compared, set per_device to 1; `bench retry TRIAL` measures the trial again.")
def device_shared(view: CheckedTrial) -> str | None:
    """Lanes on one device slow each other, by an amount that depends on which ones meet. Answers stay the same."""
    device = view.load.device
    if device is None or not device.shared:
        return None
    return f"other lanes were on {device.kind} {device.id} during the load: speed depends on them, quality does not"


IDLE_REPLICA = 0.25
"""Ratio of an even share of the requests below which a replica is hardly used."""
EVEN_SHARE = 20
"""Fewest requests of an even share of which that is said: of 20 drawn at random, fewer than 5 have odds of 2e-5."""


@check(
    "suspect",
    "See that the gateway knows it and finds it healthy, and its log; with few groups of prompts, add some.",
)
def replica_idle(view: CheckedTrial) -> str | None:
    """A pool of which a replica does nothing is a smaller pool, whatever its picker is called."""
    if view.metrics.replicas is None:
        return None
    found = view.metrics.replicas.by_replica
    if uncounted := [name for name, replica in found.items() if replica.requests is None]:
        return f"of {len(found)} replicas, {', '.join(uncounted)} did not serve its counters, or began them anew"
    even = sum(replica.requests or 0.0 for replica in found.values()) / len(found)
    idle = {name: replica.share for name, replica in found.items() if (replica.requests or 0.0) < IDLE_REPLICA * even}
    if even < EVEN_SHARE or not idle:
        return None
    named = ", ".join(f"{name} {in_percent(share or 0.0)}" for name, share in idle.items())
    return f"of {len(found)} replicas, {named} of the requests"


BUSY_IDLE = 0.05
"""Cores that a member may use while its party is under no load: timers, heartbeats, statistics."""
SHORT = 0.8
"""Ratio of the planned window below which figures are of too little."""


@check(("suspect", "note"), "Give that party more requests or items, or set keep_busy: true.")
def party_ended_early(view: CheckedTrial) -> tuple[Severity, str] | None:
    """What was due after one party had ended met another load than planned, and is in no figure."""
    if view.load.ended_early is None:
        return None
    profile, window = view.trial.load, view.counts.window
    planned_s = profile.length_s - window.start_ns / 1e9
    limited = planned_s > 0 and not profile.has_own_end
    ratio = min(1.0, window.length_s / planned_s) if limited else 1.0
    severity: Severity = "suspect" if ratio < SHORT else "note"
    return severity, (
        f"the party '{view.load.ended_early}' ended before its time: the window of all is "
        f"{in_percent(ratio)} of the planned one"
    )


@check("suspect", "See what they do when idle, such as vacuum or compaction; or raise warmup_s.")
def idle_member_busy(view: CheckedTrial) -> str | None:
    """A server without load that works nevertheless slows the others, which then are not alone."""
    telemetry, ending = view.metrics.telemetry, ".server.cpu_ratio"
    processors = telemetry.get("host.processors")
    if processors is None:
        return None
    busy = {
        name: cores
        for path, used in telemetry.items()
        if path.endswith(ending)
        and (name := path.removesuffix(ending)) not in view.load.beside
        and name not in view.load.used
        if (cores := used.mean * processors.mean) > BUSY_IDLE
    }
    if not busy:
        return None
    names = ", ".join(f"'{name}' {cores:.2g} cores" for name, cores in busy.items())
    return f"members without load were busy: {names}"


@check("suspect", "See why in that party's own trial; raise warmup_s for a service that is slow to begin.")
def party_silent(view: CheckedTrial) -> str | None:
    """Figures beside a party that gave no good reply in the window are not figures beside that party at work."""
    silent = [name for name in view.load.silent if name != view.trial.party]
    if not silent:
        return None
    names = ", ".join(f"'{name}'" for name in silent)
    return f"{names} gave no good reply to any request that was under way in the window"


@check("suspect", "See what moved them: a cgroup, taskset, renice, or the recipe's own variables and commands.")
def placement_not_kept(view: CheckedTrial) -> str | None:
    """Processes that run elsewhere than their place says have other neighbours than the placement gives them."""
    departures = view.load.place.departures if view.load.place is not None else ()
    others = ", ".join(f"'{name}'" for name in view.load.moved if name != view.trial.party)
    seen = [
        f"process {departure.pid} of the {departure.role} has {departure.what} {departure.seen}, its place gives"
        f" {departure.asked}"
        for departure in departures
    ]
    return "; ".join([*seen, *([f"{others} did not keep to the place beside it"] if others else [])]) or None


@check("suspect", "Lower `threads` in the placement, or give the parties more cores.")
def threads_over_cores(view: CheckedTrial) -> str | None:
    """Threads that take turns on a core slow each other by how the kernel divides time, not by what they do."""
    place = view.load.place
    if place is None or place.all_threads is None or place.all_cores is None or place.all_threads <= place.all_cores:
        return None
    return f"the placement gives {place.all_threads} threads on {place.all_cores} cores"


OF_PARTIES = tuple(
    judged.__name__
    for judged in (party_ended_early, party_silent, idle_member_busy, placement_not_kept, threads_over_cores)
)
"""Codes for which, where they make a trial SUSPECT, it does not say what parties cost each other."""


def _much(one: Processors) -> bool:
    """Return whether others used too much over the whole window."""
    return one.others is not None and one.others >= (OTHERS_OF_FULL if one.busy > FULL else OTHERS)


def _where(one: Processors) -> str:
    return "the machine" if one.node is None else one.node


def _seen(one: Processors) -> str:
    where, seen, others = _where(one), [], in_percent(one.others or 0.0)
    if _much(one):
        seen.append(f"others used {others} of the processors of {where} during the window{_shares(one)}")
    elif one.crowded >= CROWDED:
        seen.append(
            f"others used {in_percent(OTHERS_BURST)} or more of the processors of {where} in "
            f"{in_percent(one.crowded)} of the window, {others} over all of it"
        )
    if one.steal >= STEAL:
        seen.append(
            f"a hypervisor gave {in_percent(one.steal)} of the time of the processors of {where} to others (steal)"
        )
    if one.waiting is None:
        seen.append("how long tasks waited is not known (no PSI)")
    else:
        seen.append(f"some task waited for a processor {in_percent(one.waiting)} of the time")
    for what, share in (("a disk", one.waiting_io), ("memory", one.waiting_memory)):
        if share is not None and share >= WORTH_SAYING:
            seen.append(f"for {what} {in_percent(share)}")
    if one.load_average is not None:
        of = "" if one.count is None else f" on {one.count} processors"
        seen.append(f"the load average was {one.load_average:.3g}{of}")
    return "; ".join(seen)


def _shares(one: Processors) -> str:
    known = [(name, value) for name, value in (("load", one.load), ("server", one.server)) if value is not None]
    return "".join(f", the {name} {in_percent(value)}" for name, value in known)


MANY_RATIO = 0.8


@check("note", "Widen net.ipv4.ip_local_port_range, or load from more machines.")
def few_local_ports(view: CheckedTrial) -> str | None:
    """Nearly every local port was needed; another load, or repeated connections, would find none."""
    networks = _networks(view)
    asked, free = sum(network.connections for network in networks), _least(network.ports_free for network in networks)
    if free is None or asked <= MANY_RATIO * free:
        return None
    return f"{asked} connections to one address, and {free} local ports were free for them"


@check("suspect", "Have the server keep connections open, set net.ipv4.tcp_tw_reuse=1, or load from more machines.")
def connection_churn(view: CheckedTrial) -> str | None:
    """A used port cannot be reused for the same address for a minute."""
    networks = _networks(view)
    rate = sum(network.connected_anew_per_s or 0.0 for network in networks)
    limit = _least(network.churn_per_s_limit for network in networks)
    if limit is None or rate <= MANY_RATIO * limit:
        return None
    return (
        f"{rate:.4g} connections/s were made anew, and local ports last for {limit:.4g}/s: after a minute there "
        "are none"
    )


@check("note", "Have the server keep connections open, if real users would.")
def connected_anew(view: CheckedTrial) -> str | None:
    """Times then include the setup of a new connection."""
    networks = _networks(view)
    asked, anew = (sum(getattr(network, name) for network in networks) for name in ("connections", "connected_anew"))
    if not view.counts.ok or anew <= max(asked, view.counts.due // 2):
        return None
    return f"{anew} connections were made while the load ran: the server closes them, and times include connecting"


@check("suspect", "Raise net.core.somaxconn and the server's own backlog above concurrency, or lower concurrency.")
def listen_queue_full(view: CheckedTrial) -> str | None:
    """A refused connection is attempted again after 1 s, then 3 s, 7 s, ..."""
    networks = _networks(view)
    overflows = max((network.listen_overflows or 0 for network in networks), default=0)
    if not overflows:
        return None
    backlog = _least(network.listen_backlog for network in networks)
    length = "" if backlog is None else f" of {backlog}"
    return f"a full queue{length} of new connections turned {overflows} of them away, for a second or more each"


def _networks(view: CheckedTrial) -> list[ConnectionFigures]:
    return [worker.network for worker in view.load.workers if worker.network is not None]


def _least(limits: Iterable[float | None]) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)
