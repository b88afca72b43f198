"""The metrics from telemetry: processors, memory, disks, energy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seamark.analysis.checks import Processors
from seamark.analysis.checks.inputs import OTHERS_BURST
from seamark.analysis.metrics.energy import is_gpu
from seamark.analysis.metrics.metric import Metric, MetricInputs
from seamark.analysis.metrics.telemetry import Key, SeriesSummary, Values
from seamark.model.plurals import counted


def _watched(source: str, name: str, figure: str, scale: float = 1.0) -> Callable[[MetricInputs], float | None]:
    def value(inputs: MetricInputs) -> float | None:
        seen = inputs.telemetry.get((source, name))
        return None if seen is None else getattr(seen, figure) * scale

    return value


def _gpus(name: str, figure: str, inputs: MetricInputs) -> list[float]:
    seen = [found for (source, named), found in inputs.telemetry.items() if named == name and is_gpu(source)]
    return [value for found in seen if (value := getattr(found, figure)) is not None]


def _gpu_util(inputs: MetricInputs) -> float | None:
    values = _gpus("util_ratio", "mean", inputs)
    return sum(values) / len(values) if values else None


def _gpu_mem_mb(inputs: MetricInputs) -> float | None:
    values = _gpus("memory_used_bytes", "max", inputs)
    return sum(values) / 1e6 if values else None


def _net(source: str, name: str) -> Callable[[MetricInputs], float | None]:
    """Return MB/s of connections; None if most of the traffic was not observed, as with connections shorter than the
    interval of readings."""

    def value(inputs: MetricInputs) -> float | None:
        seen = {way: inputs.telemetry.get((source, f"net_{way}_bytes")) for way in ("sent", "received")}
        both = sum(one.mean for one in seen.values() if one is not None)
        length_s = inputs.window.length_s
        exchanged = inputs.counts.bytes_sent + inputs.counts.bytes_received
        if length_s <= 0 or both < 0.5 * exchanged / length_s:
            return None
        return _watched(source, name, "mean", 1e-6)(inputs)

    return value


RESOURCES: tuple[Metric, ...] = (
    Metric(
        path="resource.gpu_util",
        unit="ratio",
        better="neither",
        meaning="mean utilisation of the GPUs, 0 to 1",
        value=_gpu_util,
    ),
    Metric(
        path="resource.gpu_mem_mb",
        unit="MB",
        better="lower",
        meaning="peak memory in use, summed over the GPUs",
        value=_gpu_mem_mb,
    ),
    Metric(
        path="resource.cpu_util",
        unit="ratio",
        better="neither",
        meaning="mean CPU utilisation of the whole machine, 0 to 1",
        value=_watched("host", "cpu_ratio", "mean"),
    ),
    Metric(
        path="resource.ram_mb",
        unit="MB",
        better="lower",
        meaning="peak memory in use on the machine",
        value=_watched("host", "ram_used_bytes", "max", 1e-6),
    ),
    Metric(
        path="resource.server_cpu_util",
        unit="ratio",
        better="neither",
        meaning="mean CPU use of the server's processes, as a share of the machine",
        value=_watched("server", "cpu_ratio", "mean"),
    ),
    Metric(
        path="resource.server_rss_mb",
        unit="MB",
        better="lower",
        meaning="peak resident memory of the server's processes",
        value=_watched("server", "rss_bytes", "max", 1e-6),
    ),
    Metric(
        path="resource.client_cpu_util",
        unit="ratio",
        better="neither",
        meaning="mean CPU use of the load's processes, as a share of the machine",
        value=_watched("client", "cpu_ratio", "mean"),
    ),
    Metric(
        path="resource.client_rss_mb",
        unit="MB",
        better="neither",
        meaning="peak resident memory of the load's processes",
        value=_watched("client", "rss_bytes", "max", 1e-6),
    ),
    Metric(
        path="resource.cpu_iowait",
        unit="ratio",
        better="neither",
        meaning="mean share of CPU time that waited for I/O",
        value=_watched("host", "cpu_iowait_ratio", "mean"),
    ),
    Metric(
        path="resource.cpu_steal",
        unit="ratio",
        better="neither",
        meaning="mean share of CPU time that a hypervisor gave to other machines",
        value=_watched("host", "cpu_steal_ratio", "mean"),
    ),
    Metric(
        path="resource.cpu_pressure",
        unit="ratio",
        better="neither",
        meaning="share of time in which some task of the machine waited for a processor (PSI)",
        value=_watched("host", "cpu_pressure_ratio", "mean"),
    ),
    Metric(
        path="resource.load_average",
        unit="tasks",
        better="neither",
        meaning="mean load average of one minute: tasks that ran, waited for a processor or for a disk",
        value=_watched("host", "load_average", "mean"),
    ),
    Metric(
        path="resource.disk_read_mb_per_s",
        unit="MB/s",
        better="neither",
        meaning="what the machine read from its disks",
        value=_watched("host", "read_bytes", "mean", 1e-6),
    ),
    Metric(
        path="resource.disk_write_mb_per_s",
        unit="MB/s",
        better="neither",
        meaning="what the machine wrote to its disks",
        value=_watched("host", "write_bytes", "mean", 1e-6),
    ),
    *(
        Metric(
            path=f"resource.{source}_net_{way}_mb_per_s",
            unit="MB/s",
            better="neither",
            meaning=f"payload that {whose} connections {way}",
            value=_net(source, f"net_{way}_bytes"),
        )
        for source, whose in (("server", "the server's"), ("client", "the load's"))
        for way in ("received", "sent")
    ),
)


def _energy(figure: str) -> Callable[[MetricInputs], float | None]:
    return lambda inputs: getattr(inputs.energy, figure)


ENERGY: tuple[Metric, ...] = (
    Metric(
        path="energy.value_j",
        unit="J",
        better="lower",
        meaning="energy over `window_s` of the scope that is named, by the method that is named",
        value=_energy("value_j"),
    ),
    Metric(
        path="energy.window_s",
        unit="s",
        better="neither",
        meaning="time of it: what of the window lies between looks at the counters; of Slurm the whole load",
        value=_energy("window_s"),
    ),
    Metric(
        path="energy.per_request_j",
        unit="J/request",
        better="lower",
        meaning="energy for one good reply of `window_s`",
        value=_energy("per_request_j"),
    ),
    Metric(
        path="energy.per_unit_j",
        unit="J/unit",
        better="lower",
        meaning="energy for one unit of reply of `window_s`, such as a token",
        value=_energy("per_unit_j"),
    ),
    Metric(
        path="energy.power_w",
        unit="W",
        better="lower",
        meaning="mean power over `window_s`, idle power included",
        value=_energy("power_w"),
    ),
    Metric(
        path="energy.idle_power_w",
        unit="W",
        better="neither",
        meaning="mean power of that scope while the server was up and nothing was sent, if a site waits for it",
        value=_energy("idle_power_w"),
    ),
    Metric(
        path="energy.gpu_j",
        unit="J",
        better="lower",
        meaning="energy of the deployment's GPUs",
        value=lambda e: e.energy.of("gpu"),
    ),
    Metric(
        path="energy.package_j",
        unit="J",
        better="lower",
        meaning="energy of all processor packages of the node and of their memory where it is counted",
        value=lambda e: e.energy.of("package"),
    ),
    Metric(
        path="energy.node_j",
        unit="J",
        better="lower",
        meaning="energy of the whole node over the whole load, as Slurm counts it",
        value=lambda e: e.energy.of("node"),
    ),
)


FEWEST_LOOKS = 3
"""Readings of a node and of the load that a ratio needs: a reading may lie half outside of the window."""
FEWEST_CROWDED = 2
"""Readings with much use by others that count: one alone may be of a process that starts or ends."""
NOT_OF_PROCESSES = ("host", "sampler")


def processors_of(
    telemetry: Mapping[Key, SeriesSummary], *, client_is_server: bool = False
) -> tuple[Processors, ...]:
    """Return the use of each node that was read often enough, the load's own first.

    `others` is None where `others_unknown` says why: the use of an unmonitored process would count as others'.
    """
    sources = {source for source, name in telemetry if name == "cpu_ratio"}
    nodes = {_node(source) for source in sources if source.partition("@")[0] == "host"}
    known = others_unknown(telemetry, client_is_server=client_is_server) is None
    found = (_processors(telemetry, sources, node, known) for node in sorted(nodes, key=lambda node: node or ""))
    return tuple(each for each in found if each is not None)


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

    own = [source for source in sources if _node(source) == node and source not in (host, *NOT_OF_PROCESSES)]
    used = {source: telemetry[source, "cpu_ratio"].mean for source in own}
    loads = [source for source in own if source.partition("@")[0].endswith("client")]
    busy, steal = share("cpu_ratio") or 0.0, share("cpu_steal_ratio") or 0.0
    rest = busy - steal - (share("cpu_irq_ratio") or 0.0) - sum(used.values())
    servers = [used[source] for source in own if source not in loads]
    count = share("processors")
    return Processors(
        node=node,
        busy=busy,
        others=max(0.0, rest) if known else None,
        crowded=_crowded(telemetry, host, own) if known else 0.0,
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


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The highest rate of all workers of a load together against a server without work of its own.

    A request costs the client a fixed time, and more for each byte and each chunk of its reply; the rates are one
    over these times. A chunk in a read of its own costs 1 / `chunks_per_s`, one in the same read as the chunk before
    it 1 / `joined_chunks_per_s`. None: not measured, and taken as free.
    """

    requests_per_s: float
    bytes_per_s: float | None = None
    chunks_per_s: float | None = None
    joined_chunks_per_s: float | None = None

    def for_replies(self, reply_bytes: float, reply_reads: float = 0.0, reply_joined: float = 0.0) -> float:
        """Return the highest requests/s for replies of that mean size in bytes, with that many chunks in reads of
        their own and that many joined ones."""
        cost_s = 1 / self.requests_per_s
        cost_s += reply_bytes / self.bytes_per_s if self.bytes_per_s else 0.0
        cost_s += reply_reads / self.chunks_per_s if self.chunks_per_s else 0.0
        cost_s += reply_joined / self.joined_chunks_per_s if self.joined_chunks_per_s else 0.0
        return 1 / cost_s
