"""The metrics from telemetry: processors, memory, disks, energy."""

from collections.abc import Callable, Mapping
from operator import attrgetter

from seamark.analysis.metrics.energy import is_gpu
from seamark.analysis.metrics.metric import Better, Metric, MetricInputs


def _watched(source: str, name: str, unit: str) -> Callable[[MetricInputs], float | None]:
    """Return the peak of a series in MB, the mean of one in another unit."""

    def value(inputs: MetricInputs) -> float | None:
        seen = inputs.telemetry.get((source, name))
        if seen is None:
            return None
        return (seen.max if unit == "MB" else seen.mean) * (1e-6 if unit.startswith("MB") else 1.0)

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
        return _watched(source, name, "MB/s")(inputs)

    return value


WATCHED: tuple[tuple[str, str, Better, str, str, str], ...] = (
    ("cpu_util", "ratio", "neither", "host", "cpu_ratio", "mean CPU utilisation of the whole machine, 0 to 1"),
    ("ram_mb", "MB", "lower", "host", "ram_used_bytes", "peak memory in use on the machine"),
    (
        "server_cpu_util",
        "ratio",
        "neither",
        "server",
        "cpu_ratio",
        "mean CPU use of the server's processes, as a share of the machine",
    ),
    ("server_rss_mb", "MB", "lower", "server", "rss_bytes", "peak resident memory of the server's processes"),
    (
        "client_cpu_util",
        "ratio",
        "neither",
        "client",
        "cpu_ratio",
        "mean CPU use of the load's processes, as a share of the machine",
    ),
    ("client_rss_mb", "MB", "neither", "client", "rss_bytes", "peak resident memory of the load's processes"),
    ("cpu_iowait", "ratio", "neither", "host", "cpu_iowait_ratio", "mean share of CPU time that waited for I/O"),
    (
        "cpu_steal",
        "ratio",
        "neither",
        "host",
        "cpu_steal_ratio",
        "mean share of CPU time that a hypervisor gave to other machines",
    ),
    (
        "cpu_pressure",
        "ratio",
        "neither",
        "host",
        "cpu_pressure_ratio",
        "share of time in which some task of the machine waited for a processor (PSI)",
    ),
    (
        "load_average",
        "tasks",
        "neither",
        "host",
        "load_average",
        "mean load average of one minute: tasks that ran, waited for a processor or for a disk",
    ),
    ("disk_read_mb_per_s", "MB/s", "neither", "host", "read_bytes", "what the machine read from its disks"),
    ("disk_write_mb_per_s", "MB/s", "neither", "host", "write_bytes", "what the machine wrote to its disks"),
)
"""Name, unit, direction, source and series of telemetry, meaning."""
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
    *(
        Metric(
            path=f"resource.{name}", unit=unit, better=better, meaning=meaning, value=_watched(source, series, unit)
        )
        for name, unit, better, source, series, meaning in WATCHED
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

OF_ENERGY: Mapping[str, tuple[str, Better, str]] = {
    "value_j": ("J", "lower", "energy over `window_s` of the scope that is named, by the method that is named"),
    "window_s": (
        "s",
        "neither",
        "time of it: what of the window lies between looks at the counters; of Slurm the whole load",
    ),
    "per_request_j": ("J/request", "lower", "energy for one good reply of `window_s`"),
    "per_unit_j": ("J/unit", "lower", "energy for one unit of reply of `window_s`, such as a token"),
    "power_w": ("W", "lower", "mean power over `window_s`, idle power included"),
    "idle_power_w": (
        "W",
        "neither",
        "mean power of that scope while the server was up and nothing was sent, if a site waits for it",
    ),
    "gpu_j": ("J", "lower", "energy of the deployment's GPUs"),
    "package_j": (
        "J",
        "lower",
        "energy of all processor packages of the node and of their memory where it is counted",
    ),
    "node_j": ("J", "lower", "energy of the whole node over the whole load, as Slurm counts it"),
}
"""Name -> unit, direction, meaning."""
ENERGY = tuple(
    Metric(path=f"energy.{name}", unit=unit, better=better, meaning=meaning, value=attrgetter(f"energy.{name}"))
    for name, (unit, better, meaning) in OF_ENERGY.items()
)
