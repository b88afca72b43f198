"""Who used the processors of each node over the window, from telemetry: load, server, others, a hypervisor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seamark.analysis.metrics.telemetry import Key, SeriesSummary, Values
from seamark.model.plurals import counted

OTHERS_BURST = 0.4
"""Ratio of the processors from which on others crowd a part of the window: twice what is too much over all of it."""
FEWEST_LOOKS = 3
"""Readings of a node and of the load that a ratio needs: a reading may lie half outside of the window."""
FEWEST_CROWDED = 2
"""Readings with much use by others that count: one alone may be of a process that starts or ends."""
NOT_OF_PROCESSES = ("host", "sampler")


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


def processors_of(
    telemetry: Mapping[Key, SeriesSummary], *, client_is_server: bool = False
) -> tuple[Processors, ...]:
    """Return the use of each node that was read often enough, the load's own first.

    `others` is None where `others_unknown` says why: the use of an unmonitored process would count as others'.
    """
    sources = {source for source, name in telemetry if name == "cpu_ratio"}
    nodes = {_node(source) for source in sources if source.partition("@")[0] == "host"}
    known = others_unknown(telemetry, client_is_server=client_is_server) is None
    by_node = (_processors(telemetry, sources, node, known) for node in sorted(nodes, key=lambda node: node or ""))
    return tuple(processors for processors in by_node if processors is not None)


def others_unknown(telemetry: Mapping[Key, SeriesSummary], *, client_is_server: bool = False) -> str | None:
    """Return why the use of the load's machine by others is not known; None where it is, and without telemetry."""
    if not telemetry:
        return None
    if not (looks := _looks(telemetry, "client")):
        return "the load's processes ran elsewhere, or too short"
    if not client_is_server and not any(
        source.partition("@")[0] == "server" for source, name in telemetry if name == "cpu_ratio"
    ):
        return "the server's processes were not watched, and may run on this machine"
    looks = min(looks, _looks(telemetry, "host"))
    return None if looks >= FEWEST_LOOKS else f"{counted(looks, 'reading')} in the window, fewer than {FEWEST_LOOKS}"


def _processors(
    telemetry: Mapping[Key, SeriesSummary], sources: set[str], node: str | None, known: bool
) -> Processors | None:
    host = "host" if node is None else f"host@{node}"
    if _looks(telemetry, host) < FEWEST_LOOKS:
        return None

    def share(name: str) -> float | None:
        seen = telemetry.get((host, name))
        return None if seen is None else seen.mean

    watched = [source for source in sources if _node(source) == node and source not in (host, *NOT_OF_PROCESSES)]
    used = {source: telemetry[source, "cpu_ratio"].mean for source in watched}
    loads = [source for source in watched if source.partition("@")[0].endswith("client")]
    busy, steal = share("cpu_ratio") or 0.0, share("cpu_steal_ratio") or 0.0
    rest = busy - steal - (share("cpu_irq_ratio") or 0.0) - sum(used.values())
    servers = [used[source] for source in watched if source not in loads]
    count = share("processors")
    return Processors(
        node=node,
        busy=busy,
        others=max(0.0, rest) if known else None,
        crowded=_crowded(telemetry, host, watched) if known else 0.0,
        load=sum(used[source] for source in loads) if loads else None,
        server=sum(servers) if servers else None,
        steal=steal,
        waiting=share("cpu_pressure_ratio"),
        waiting_io=share("io_pressure_ratio"),
        waiting_memory=share("memory_pressure_ratio"),
        load_average=share("load_average"),
        count=None if count is None else round(count),
    )


def _crowded(telemetry: Mapping[Key, SeriesSummary], host: str, own: Sequence[str]) -> float:
    """Return the share of a node's readings in which others used OTHERS_BURST of its processors or more.

    Load and server are read at other times than the node: their use is interpolated.
    """
    at_s, others = _readings(telemetry, host, "cpu_ratio")
    taken = [(host, "cpu_steal_ratio"), (host, "cpu_irq_ratio"), *((source, "cpu_ratio") for source in own)]
    for source, name in taken:
        its_at_s, used = _readings(telemetry, source, name)
        if len(its_at_s):
            others = others - np.interp(at_s, its_at_s, used)
    crowded = int((others >= OTHERS_BURST).sum())
    return crowded / len(at_s) if crowded >= FEWEST_CROWDED else 0.0


def _readings(telemetry: Mapping[Key, SeriesSummary], source: str, name: str) -> tuple[Values, Values]:
    """Return the times of a series and its values; both empty without one."""
    seen = telemetry.get((source, name))
    table = np.array(seen.readings if seen else (), dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _node(source: str) -> str | None:
    return source.partition("@")[2] or None


def _looks(telemetry: Mapping[Key, SeriesSummary], source: str) -> int:
    seen = telemetry.get((source, "cpu_ratio"))
    return 0 if seen is None else seen.n
