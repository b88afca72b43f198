"""Byte counters of TCP connections by port: the network traffic of one server or of its clients.

By the kernel's socket diagnostics (sock_diag(7), as `ss -ti`); needs no privilege. Linux, standard library only.
"""

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import Literal

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR, NLMSG_DONE = 2, 3
REQUEST_AND_DUMP = 0x301
INET_DIAG_INFO = 2
HEAD = struct.Struct("=IHHII")
"""Length, type, flags, sequence and port of a netlink message."""
REQUEST = struct.Struct("=BBBxI")
"""Address family, protocol, extensions, and mask of states."""
PORTS = struct.Struct("!HH")
ANY_ADDRESS_AND_COOKIE = bytes(36) + b"\xff" * 8
CONNECTED = 0xFFF & ~(1 << 10) & ~(1 << 6)
"""Every state except LISTEN and TIME_WAIT."""
LISTENING = 1 << 10
BACKLOG = struct.Struct("=I")
BACKLOG_AT = 76
"""Offset of the queue length in a message about a listening socket (idiag_wqueue)."""
PEER = slice(40, 56)
MAPPED = bytes(10) + b"\xff\xff"
COOKIE = slice(60, 68)
"""Offset of a connection's cookie, which the kernel never reuses."""
ATTRIBUTES_AT = 88
ATTRIBUTE = struct.Struct("=HH")
ACKED_AND_RECEIVED = struct.Struct("=QQ")
ACKED_AT = 120
"""Offset of tcpi_bytes_acked in struct tcp_info; tcpi_bytes_received follows."""


class Traffic:
    """Counts the payload bytes of all connections with one of `ports` at their `end`, seen from this machine; remote
    ends only of `host`, a name or address, if given.

    An ended connection counts with its bytes at the last read; one that opened and closed between two reads is
    missed. The kernel counts opening and closing a connection as one byte each.
    """

    def __init__(self, ports: Iterable[int], end: Literal["local", "remote"], host: str | None = None) -> None:
        self._ports = tuple(sorted(set(ports)))
        self._local = end == "local"
        self._peers = None if host is None else addresses_of(host)
        self._open: dict[bytes, tuple[int, int]] = {}
        self._ended = (0, 0)

    def read(self) -> tuple[int, int]:
        """Return bytes sent (and acknowledged) and bytes received so far. Raises OSError where the kernel does not
        answer."""
        now = {
            cookie: moved
            for port in self._ports
            for cookie, peer, moved in connections(port, local=self._local)
            if self._peers is None or peer in self._peers
        }
        ended = [moved for cookie, moved in self._open.items() if cookie not in now]
        self._open, self._ended = now, _sum([self._ended, *ended])
        return _sum([self._ended, *now.values()])


def addresses_of(host: str) -> frozenset[bytes]:
    """Return the addresses of a host in the form of `connections`; none for an unknown name."""
    addresses = set()
    try:
        for family, *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            packed = socket.inet_pton(family, str(address[0]).partition("%")[0])
            addresses.add(packed if len(packed) == 16 else MAPPED + packed)
    except (OSError, UnicodeError):
        pass
    return frozenset(addresses)


def connections(port: int, *, local: bool) -> Iterator[tuple[bytes, bytes, tuple[int, int]]]:
    """Yield cookie, peer address (IPv4 mapped to IPv6), bytes acknowledged and received of each TCP connection with
    that local or remote port."""
    ports = PORTS.pack(port, 0) if local else PORTS.pack(0, port)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        for family in (socket.AF_INET, socket.AF_INET6):
            for message in _messages(kernel, family, 1 << (INET_DIAG_INFO - 1), CONNECTED, ports):
                moved = _moved(message)
                if moved is not None:
                    four = message[HEAD.size] == socket.AF_INET
                    yield message[COOKIE], MAPPED + message[PEER][:4] if four else message[PEER], moved


def listen_backlog(port: int) -> int | None:
    """Return the length of the accept queue of the socket that listens on this port of this machine; None without
    one. Raises OSError where the kernel refuses."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        for family in (socket.AF_INET, socket.AF_INET6):
            found = _messages(kernel, family, 0, LISTENING, PORTS.pack(port, 0))
            backlogs: list[int] = [BACKLOG.unpack_from(message, BACKLOG_AT)[0] for message in found]
            if backlogs:
                return min(backlogs)
    return None


def _messages(kernel: socket.socket, family: int, extensions: int, states: int, ports: bytes) -> Iterator[bytes]:
    """Ask for sockets of a family in some states; yield the messages of the answer. Raises OSError if the kernel
    refuses."""
    body = REQUEST.pack(family, socket.IPPROTO_TCP, extensions, states) + ports + ANY_ADDRESS_AND_COOKIE
    kernel.send(HEAD.pack(HEAD.size + len(body), SOCK_DIAG_BY_FAMILY, REQUEST_AND_DUMP, 0, 0) + body)
    while True:
        data = kernel.recv(1 << 16)
        while data:
            length, kind, *_ = HEAD.unpack_from(data)
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                (code,) = struct.unpack_from("=i", data, HEAD.size)
                raise OSError(-code, os.strerror(-code))
            yield data[:length]
            data = data[_aligned(length) :]


def _moved(message: bytes) -> tuple[int, int] | None:
    at = ATTRIBUTES_AT
    while at + ATTRIBUTE.size <= len(message):
        length, kind = ATTRIBUTE.unpack_from(message, at)
        if kind == INET_DIAG_INFO and length >= ATTRIBUTE.size + ACKED_AT + ACKED_AND_RECEIVED.size:
            acked, received = ACKED_AND_RECEIVED.unpack_from(message, at + ATTRIBUTE.size + ACKED_AT)
            return acked, received
        at += max(ATTRIBUTE.size, _aligned(length))
    return None  # a kernel before 4.1 does not count bytes


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    sent, received = 0, 0
    for pair in pairs:
        sent, received = sent + pair[0], received + pair[1]
    return sent, received
