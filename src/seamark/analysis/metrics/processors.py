"""Who used the processors of each node over the window: load, server, others, a hypervisor. From telemetry."""

from collections.abc import Mapping

from seamark.analysis.checks import Processors
from seamark.analysis.metrics.telemetry import Key, Seen

FEWEST_LOOKS = 3
"""Readings of a node and of the load that a share needs: a reading may lie half outside of the window."""
NOT_OF_PROCESSES = ("host", "sampler")


def processors_of(telemetry: Mapping[Key, Seen], *, client_is_server: bool = False) -> tuple[Processors, ...]:
    """Return the nodes of which it is known what load and server used, the load's own first.

    Empty where the load's own processes were not watched (they ran elsewhere), or no server's were while the service
    does not run inside the client: what an unwatched process used would count as others'.
    """
    sources = {source for source, name in telemetry if name == "cpu_ratio"}
    nodes = {_node(source) for source in sources if source.partition("@")[0] == "host"}
    served = client_is_server or any(source.partition("@")[0] == "server" for source in sources)
    if not served or _looks(telemetry, "client") < FEWEST_LOOKS:
        return ()
    found = (_processors(telemetry, sources, node) for node in sorted(nodes, key=lambda node: node or ""))
    return tuple(each for each in found if each is not None)


def _processors(telemetry: Mapping[Key, Seen], sources: set[str], node: str | None) -> Processors | None:
    host = "host" if node is None else f"host@{node}"
    if _looks(telemetry, host) < FEWEST_LOOKS:
        return None

    def share(name: str) -> float | None:
        seen = telemetry.get((host, name))
        return None if seen is None else seen.mean

    own = [source for source in sources if _node(source) == node and source not in (host, *NOT_OF_PROCESSES)]
    used = {source: telemetry[source, "cpu_ratio"].mean for source in own}
    busy, steal = share("cpu_ratio") or 0.0, share("cpu_steal_ratio") or 0.0
    load = used.pop("client", None)
    count = share("processors")
    rest = busy - steal - (share("cpu_irq_ratio") or 0.0) - (load or 0.0) - sum(used.values())
    return Processors(
        node=node,
        busy=busy,
        others=max(0.0, rest),
        load=load,
        server=sum(used.values()) if used else None,
        steal=steal,
        waiting=share("cpu_pressure_ratio"),
        load_average=share("load_average"),
        count=None if count is None else round(count),
    )


def _node(source: str) -> str | None:
    return source.partition("@")[2] or None


def _looks(telemetry: Mapping[Key, Seen], source: str) -> int:
    seen = telemetry.get((source, "cpu_ratio"))
    return 0 if seen is None else seen.n
