"""Free ports, the owner of the socket that listens on a port, addresses of this machine. Sends nothing."""

import random
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

import psutil

LISTEN = "0A"
LOWEST = 10240
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
Owner = Literal["nobody", "ours", "foreign"]


def choose_ports(names: Sequence[str], host: str, rng: random.Random) -> dict[str, int]:
    """Return free consecutive ports for `names`, below the kernel's ephemeral range.

    So no client connection can take one before the server starts. Raises OSError when 200 attempts found no free row.
    """
    highest = _ephemeral_start() - len(names) - 1
    for _ in range(200):
        first = rng.randint(LOWEST, highest)
        ports = {name: first + offset for offset, name in enumerate(names)}
        if _all_free(ports.values(), host):
            return ports
    raise OSError(f"no {len(names)} free ports in a row on {host} between {LOWEST} and {highest}")


def _all_free(ports: Iterable[int], host: str) -> bool:
    with ExitStack() as bound:
        for port in ports:
            if listeners(port):
                return False
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = bound.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                listener.bind((host, port))
            except OSError:
                return False
    return True


def _ephemeral_start() -> int:
    with suppress(OSError, ValueError, IndexError):
        return max(LOWEST + 4096, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
    return 32768


def listeners(port: int) -> set[int]:
    """Return the inodes of the TCP sockets of this machine that listen on `port`, IPv4 and IPv6."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(int(fields[9]))
    return inodes


def sockets_of(pids: Iterable[int]) -> set[int]:
    """Return the inodes of all sockets that these processes have open."""
    inodes = set()
    for pid in pids:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError, ValueError):
                    kind, _, inode = str(descriptor.readlink()).partition(":")
                    if kind == "socket":
                        inodes.add(int(inode.strip("[]")))
    return inodes


def owners(ports: Mapping[str, int], pids: Sequence[int]) -> dict[str, Owner]:
    """Return for each named port its listener: none, one of `pids` (ours), or at least one other process
    (foreign)."""
    listening = {name: listeners(port) for name, port in ports.items()}
    ours = sockets_of(pids) if any(listening.values()) else set()
    return {
        name: "nobody" if not sockets else "ours" if sockets <= ours else "foreign"
        for name, sockets in listening.items()
    }


def reachable_by(nearby_host: str | None) -> list[str]:
    """Return names and addresses of this machine, best first, for processes near that host."""
    if nearby_host in LOCAL_HOSTS:
        return ["127.0.0.1"]
    hosts = []
    if nearby_host is not None:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((nearby_host, 9))  # sends nothing: selects the local address of the route
            hosts.append(str(probe.getsockname()[0]))
    hosts.append(socket.gethostname())
    for addresses in psutil.net_if_addrs().values():
        hosts += [entry.address for entry in addresses if entry.family == socket.AF_INET]
    return [host for host in dict.fromkeys(hosts) if host not in LOCAL_HOSTS] or ["127.0.0.1"]
