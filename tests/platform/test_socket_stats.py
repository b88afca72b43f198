"""Bytes of TCP connections as the kernel counts them, against what was sent."""

import socket
import time
from collections.abc import Iterator

import pytest

from seamark.platform.socket_stats import Traffic

pytestmark = pytest.mark.covers("E-MON02")

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["127.0.0.1", "::1"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        listening = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with listening:
        yield listening


def connected(listener: socket.socket) -> Pair:
    client = socket.create_connection(listener.getsockname()[:2])
    return client, listener.accept()[0]


def exchange(pair: Pair, there: int, back: int) -> None:
    """Send so many bytes to the server and back, until all of them are acknowledged."""
    client, server = pair
    for sender, receiver, count in ((client, server, there), (server, client, back)):
        sender.sendall(b"x" * count)
        while count:
            count -= len(receiver.recv(min(count, 1 << 16)))
    time.sleep(0.05)


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def about(seen: tuple[int, int], moved: tuple[int, int]) -> bool:
    """Whether these are the bytes moved: the kernel counts opening and closing as one each."""
    return all(0 <= one - other <= 4 for one, other in zip(seen, moved, strict=True))


def test_both_ends_of_a_connection_count_the_same_bytes(listener: socket.socket) -> None:
    server, client = Traffic([port_of(listener)], "local"), Traffic([port_of(listener)], "remote")
    assert server.read() == client.read() == (0, 0)
    pair = connected(listener)
    exchange(pair, 30_000, 500)
    assert about(server.read(), (500, 30_000))
    assert about(client.read(), (30_000, 500))
    for end in pair:
        end.close()


@pytest.mark.slow
def test_a_connection_that_has_ended_still_counts_and_another_is_added(listener: socket.socket) -> None:
    traffic = Traffic([port_of(listener), port_of(listener)], "remote")
    first, second = connected(listener), connected(listener)
    exchange(first, 1000, 10)
    exchange(second, 200, 20)
    assert about(traffic.read(), (1200, 30))
    for end in first:
        end.close()
    time.sleep(0.05)
    assert about(traffic.read(), (1200, 30))
    exchange(second, 3, 4)
    assert about(traffic.read(), (1203, 34))
    for end in second:
        end.close()
    time.sleep(0.05)
    assert about(traffic.read(), (1203, 34))


def test_connections_to_other_ports_do_not_count(listener: socket.socket) -> None:
    pair = connected(listener)
    with socket.create_server(("127.0.0.1", 0)) as other:
        traffic = Traffic([port_of(other)], "remote")
        exchange(pair, 100, 100)
        assert traffic.read() == (0, 0)
    for end in pair:
        end.close()


def test_connections_to_the_same_port_of_another_host_do_not_count() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, socket.create_server(("127.0.0.2", port_of(ours))) as other:
        pairs = connected(ours), connected(other)
        traffic = Traffic([port_of(ours)], "remote", "127.0.0.1")
        exchange(pairs[0], 1000, 10)
        exchange(pairs[1], 50_000, 500)
        assert about(traffic.read(), (1000, 10))
        for pair in pairs:
            for end in pair:
                end.close()


def test_a_host_that_nobody_knows_has_no_connections() -> None:
    assert Traffic([80], "remote", "no.such.host.invalid").read() == (0, 0)
