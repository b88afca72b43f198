"""The metrics from telemetry: processors, memory, disks, energy."""

from collections.abc import Callable
from dataclasses import dataclass

from seamark.analysis.metrics.energy import is_gpu
from seamark.analysis.metrics.metric import Metric, MetricInputs


def _watched(source: str, name: str, figure: str, scale: float = 1.0) -> Callable[[MetricInputs], float | None]:
    def value(inputs: MetricInputs) -> float | None:
        seen = inputs.telemetry.get((source, name))
        return None if seen is None else getattr(seen, figure) * scale

    return value


def _gpus(name: str, figure: str, inputs: MetricInputs) -> list[float]:
    seen = [summary for (source, named), summary in inputs.telemetry.items() if named == name and is_gpu(source)]
    return [value for summary in seen if (value := getattr(summary, figure)) is not None]


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
        both = sum(summary.mean for summary in seen.values() if summary is not None)
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
