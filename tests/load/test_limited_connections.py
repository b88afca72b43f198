"""Loads that meet the limits of their machine on connections and open files."""

import resource
import socket
from collections.abc import Callable, Iterator

import pytest
from listening import listening

from seamark.load.coordinator.coordinator import LoadError
from seamark.model.sample import Failure


def answer_once(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na")


@pytest.fixture
def closing_server() -> Iterator[int]:
    """A server that closes the connection after each reply."""
    with listening(answer_once, backlog=50) as port:
        yield port


@pytest.mark.services
def test_more_connections_than_open_files_stop_the_load_before_its_clock(
    null_server: Callable, load: Callable
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("no limit here")
    with pytest.raises(LoadError, match=rf"need {hard + 65} open files and the limit is {hard} .*Lower concurrency"):
        load(port=null_server().port, concurrency=hard + 1)


@pytest.mark.services
def test_a_report_says_how_often_it_had_to_connect_anew(closing_server: int, load: Callable) -> None:
    measured = load(port=closing_server, requests=20, duration_s=10.0, concurrency=2)
    assert measured.failures() == {Failure.NONE: 20}
    network = measured.outcome.reports[0].network
    assert network.connected_anew == 18
    assert network.connected_anew_per_s > 1
    assert (network.connections, network.listen_backlog) == (2, 50)
