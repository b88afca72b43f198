"""Free ports, and whose socket listens on a port. Reads /proc; speaks to no one."""

import random
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LISTEN = "0A"
LOWEST = 10240
Owner = Literal["nobody", "ours", "foreign"]


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A socket that listens: the address as the kernel prints it, and the inode by which its owner is known."""

    address: str
    port: int
    inode: int


def choose_ports(names: Sequence[str], host: str, rng: random.Random) -> dict[str, int]:
    """Return free ports for `names`, each one above the last; below those that the kernel gives to clients.

    So a client's own connection cannot take one between this look and the server's start. Raises OSError when
    200 tries found no free row of ports.
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
            one = bound.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                one.bind((host, port))
            except OSError:
                return False
    return True


def _ephemeral_start() -> int:
    with suppress(OSError, ValueError, IndexError):
        return max(LOWEST + 4096, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
    return 32768


def listeners(port: int) -> list[Listener]:
    """Return every TCP socket of this machine that listens on `port`, of IPv4 and IPv6."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                address, _, hexadecimal = fields[1].rpartition(":")
                if fields[3] == LISTEN and int(hexadecimal, 16) == port:
                    found.append(Listener(address=address, port=port, inode=int(fields[9])))
    return found


def sockets_of(pids: Iterable[int]) -> set[int]:
    """Return the inodes of all sockets that these processes hold open."""
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
    """Return for each named port whose socket listens on it: nobody's, one of `pids`, or at least one other."""
    listening = {name: listeners(port) for name, port in ports.items()}
    ours = sockets_of(pids) if any(listening.values()) else set()
    return {name: _owner(found, ours) for name, found in listening.items()}


def _owner(found: list[Listener], ours: set[int]) -> Owner:
    if not found:
        return "nobody"
    return "ours" if all(listener.inode in ours for listener in found) else "foreign"
