"""Limits of this machine for a load: open files, local ports, queues of new connections. Examined before it starts.

An impossible load is an error before the clock starts; a risk is recorded and judged by the checks with what
happened.
"""

import contextlib
import ipaddress
import resource
import socket
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seamark.platform.socket_stats import addresses_of, listen_backlog

SYSTEM = Path("/proc")
SPARE_FILES = 64
CONNECT_AT_ONCE = 64
TIME_WAIT_S = 60.0
"""Time for which the side that closes a connection first cannot reuse its port for the same destination."""
DEFAULT_PORTS = (32768, 60999)


def allow_files(count: int) -> None:
    """Raise the soft limit of open files for `count` connections. Raises OSError with the remedy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise OSError(
            f"{count} connections need {wanted} open files and the limit is {hard} (ulimit -Hn). Lower concurrency, "
            "spread it over more shards, or have the limit raised (LimitNOFILE, /etc/security/limits.conf)"
        )
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Local ports for connections to one destination: the kernel's range, and those in use, connections in TIME_WAIT
    included. `reused`: the kernel reuses the latter after a second."""

    first: int
    last: int
    used: int
    reserved: int
    reused: bool

    @property
    def total(self) -> int:
        return self.last - self.first + 1 - self.reserved

    @property
    def free(self) -> int:
        return max(0, self.total - self.used)

    @property
    def churn_per_s(self) -> float | None:
        """Sustainable number of connections made and closed per second; None where ports are reused."""
        return None if self.reused else self.total / TIME_WAIT_S


def local_ports(address: tuple[str, int] | None = None, system: Path = SYSTEM) -> Ports:
    """Return the local ports for connections to `address` (host and port)."""
    first, last = DEFAULT_PORTS
    with contextlib.suppress(OSError, ValueError):
        first, last = map(int, (system / "sys/net/ipv4/ip_local_port_range").read_text().split())
    peers = addresses_of(address[0]) if address else frozenset()
    return Ports(
        first=first,
        last=last,
        used=_used(peers, address[1], system) if address else 0,
        reserved=_reserved(first, last, system),
        reused=_reused(peers, system),
    )


def _reserved(first: int, last: int, system: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        text = (system / "sys/net/ipv4/ip_local_reserved_ports").read_text().strip()
        count = 0
        for part in filter(None, text.split(",")):
            low, _, high = part.partition("-")
            count += max(0, min(int(high or low), last) - max(int(low), first) + 1)
        return count
    return 0


def _reused(peers: Collection[bytes], system: Path) -> bool:
    """Return whether the kernel reuses ports in TIME_WAIT: 1 means always, 2 on loopback."""
    with contextlib.suppress(OSError, ValueError):
        mode = int((system / "sys/net/ipv4/tcp_tw_reuse").read_text())
        loopback = bool(peers) and all(_address(peer).is_loopback for peer in peers)
        return mode == 1 or (mode == 2 and loopback)
    return False


def _address(packed: bytes) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.IPv6Address(packed)
    return address.ipv4_mapped or address


def _used(peers: Collection[bytes], port: int, system: Path) -> int:
    """Return the number of connections of this machine to those peers and that port, including TIME_WAIT."""
    count = 0
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), (system / "net" / name).open("rb") as table:
            next(table, None)
            wanted = b"%04X" % port
            for line in table:
                host, _, remote_port = line.split(None, 3)[2].partition(b":")
                count += remote_port == wanted and _packed(host) in peers
    return count


def _packed(text: bytes) -> bytes:
    """Return an address in the form of `addresses_of`, from the kernel's words in host byte order."""
    words = bytes.fromhex(text.decode())
    packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    return packed if len(packed) == 16 else bytes(10) + b"\xff\xff" + packed


def listen_queue(system: Path = SYSTEM) -> tuple[int | None, int | None]:
    """Return the largest accept queue that a server may request (net.core.somaxconn), and that of half-open
    connections (tcp_max_syn_backlog)."""
    limits: list[int | None] = []
    for name in ("core/somaxconn", "ipv4/tcp_max_syn_backlog"):
        try:
            limits.append(int((system / "sys/net" / name).read_text()))
        except (OSError, ValueError):
            limits.append(None)
    return limits[0], limits[1]


def listen_overflows(system: Path = SYSTEM) -> int | None:
    """Return how often a full accept queue of this machine rejected a connection, since boot."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = iter((system / "net/netstat").read_text().splitlines())
        for names in lines:
            values = next(lines)
            if names.startswith("TcpExt:"):
                return int(values.split()[names.split().index("ListenOverflows")])
    return None


@dataclass(frozen=True, kw_only=True)
class ConnectionBudget:
    """Limits for `needed` connections of a load to one address. `backlog` is the server's accept queue, known if it
    listens on this machine."""

    needed: int
    ports: Ports
    backlog: int | None
    overflows: int | None

    @property
    def at_once(self) -> int:
        """Connections to open concurrently: at most the accept queue of the server."""
        return max(1, min(CONNECT_AT_ONCE, self.backlog or CONNECT_AT_ONCE))

    def after(self, connected_anew: int, wall_s: float) -> Mapping[str, Any]:
        """Return the entry of a worker's report after `connected_anew` reconnections during the load."""
        overflows = listen_overflows()
        is_known = None not in (overflows, self.overflows) and self.backlog is not None
        return {
            "connections": self.needed,
            "ports_free": self.ports.free,
            "churn_per_s_limit": self.ports.churn_per_s,
            "connected_anew": connected_anew,
            "connected_anew_per_s": connected_anew / wall_s if wall_s > 0 else None,
            "listen_backlog": self.backlog,
            "listen_overflows": overflows - self.overflows if is_known else None,  # type: ignore[operator]
            "ports": asdict(self.ports),
        }


def connection_budget(address: tuple[str, int], connections: int) -> ConnectionBudget:
    """Return the budget of this process for `connections` to `address`. Raises OSError with the remedy if it is too
    small."""
    allow_files(connections)
    ports = local_ports(address)
    if connections > ports.free:
        host, port = address
        raise OSError(
            f"{connections} connections to {host}:{port} need as many local ports and {ports.free} are free "
            f"(net.ipv4.ip_local_port_range is {ports.first}-{ports.last}, {ports.used} in use or waiting). Lower "
            "concurrency, wait a minute, widen the range (sysctl net.ipv4.ip_local_port_range='1024 65535'), or load "
            "from more machines"
        )
    backlog = None
    with contextlib.suppress(OSError):
        local = all(_is_here(peer) for peer in addresses_of(address[0]))
        backlog = listen_backlog(address[1]) if local else None
    return ConnectionBudget(needed=connections, ports=ports, backlog=backlog, overflows=listen_overflows())


def _is_here(peer: bytes) -> bool:
    """Return whether an address is one of this machine's: only those can be bound."""
    address = _address(peer)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return True
    return False
