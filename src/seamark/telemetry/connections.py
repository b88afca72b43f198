"""The network use of the server alone: the bytes of the connections to its ports."""

from collections.abc import Iterable, Iterator

from seamark.platform.socket_stats import Traffic
from seamark.telemetry.sampler import Reading


class Connections:
    """Counters of the payload that the server's TCP connections have sent and received."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._traffic = Traffic(ports, "local")

    def read(self) -> Iterator[Reading]:
        """Return net_sent_bytes and net_received_bytes."""
        sent, received = self._traffic.read()
        yield Reading(source="server", name="net_sent_bytes", value=float(sent), unit="bytes")
        yield Reading(source="server", name="net_received_bytes", value=float(received), unit="bytes")
