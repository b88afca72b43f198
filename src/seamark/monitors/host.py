"""The whole machine: processors, memory, disks, network. Through psutil."""

from collections.abc import Iterator

import psutil

from seamark.monitors.sampler import Reading


class Host:
    """CPU since the last look as a ratio of the machine; memory; bytes moved since boot."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def read(self) -> Iterator[Reading]:
        """Return cpu_ratio, cpu_iowait_ratio, ram_used_bytes, read_bytes, write_bytes, net_*_bytes."""
        now, before = psutil.cpu_times(), self._before
        self._before = now
        spent = {name: max(0.0, getattr(now, name) - getattr(before, name)) for name in now._fields}
        spent.pop("guest", None)
        spent.pop("guest_nice", None)  # both are in user and nice already
        total_s = sum(spent.values())
        if total_s > 0:
            iowait_s = spent.get("iowait", 0.0)
            yield _reading("cpu_ratio", (total_s - spent["idle"] - iowait_s) / total_s, "ratio")
            yield _reading("cpu_iowait_ratio", iowait_s / total_s, "ratio")
        memory = psutil.virtual_memory()
        yield _reading("ram_used_bytes", memory.total - memory.available, "bytes")
        if disks := psutil.disk_io_counters():
            yield _reading("read_bytes", disks.read_bytes, "bytes")
            yield _reading("write_bytes", disks.write_bytes, "bytes")
        if network := psutil.net_io_counters():
            yield _reading("net_received_bytes", network.bytes_recv, "bytes")
            yield _reading("net_sent_bytes", network.bytes_sent, "bytes")


def _reading(name: str, value: float, unit: str) -> Reading:
    return Reading(source="host", name=name, value=float(value), unit=unit)
