"""What a machine allows a load, from files of the kernel's form and, where it can be made so, from this machine."""

import socket
from pathlib import Path

import pytest

from seamark.platform import connection_limits
from seamark.platform.connection_limits import ConnectionBudget, Ports, connection_budget, local_ports
from seamark.platform.socket_stats import listen_backlog

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A /proc with 1000 local ports, 100 of them reserved, and some connections."""
    for name, text in {
        "sys/net/ipv4/ip_local_port_range": "40000\t40999\n",
        "sys/net/ipv4/ip_local_reserved_ports": "39000-40049,40100-40149\n",
        "sys/net/ipv4/tcp_tw_reuse": "2\n",
        "net/tcp": HEAD
        + "   0: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  0  0 1\n"
        + "   1: 0100007F:9C41 0100007F:1F90 06 00000000:00000000 00:00000000 00000000  0  0 0\n"
        + "   2: 0100007F:9C42 0100007F:1F91 01 00000000:00000000 00:00000000 00000000  0  0 2\n"
        + "   3: 0100007F:9C43 0200007F:1F90 01 00000000:00000000 00:00000000 00000000  0  0 3\n"
        + "   4: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  0  0 4\n",
        "net/tcp6": HEAD
        + "   0: 0000000000000000FFFF00000100007F:9C44 0000000000000000FFFF00000100007F:1F90 01 0:0 0:0 0 0 0 5\n"
        + "   1: 00000000000000000000000001000000:9C45 00000000000000000000000001000000:1F90 01 0:0 0:0 0 0 0 6\n",
        "net/netstat": "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 17 18\n"
        "IpExt: InNoRoutes\nIpExt: 0\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_ports_are_those_of_the_range_that_nobody_reserved_or_uses_to_that_destination(system: Path) -> None:
    ports = local_ports(("127.0.0.1", 8080), system)
    assert (ports.total, ports.used, ports.free) == (900, 3, 897), "one of them waits, one is of IPv6's kind"
    assert local_ports(("::1", 8080), system).used == 1
    assert local_ports(("127.0.0.1", 8082), system).free == 900


@pytest.mark.parametrize(
    ("host", "word", "churn_per_s"),
    [("127.0.0.1", "2", None), ("192.0.2.1", "2", 15.0), ("192.0.2.1", "1", None), ("127.0.0.1", "0", 15.0)],
)
def test_connections_that_end_keep_their_ports_for_a_minute_unless_the_kernel_takes_them_again(
    system: Path, host: str, word: str, churn_per_s: float | None
) -> None:
    (system / "sys/net/ipv4/tcp_tw_reuse").write_text(word)
    assert local_ports((host, 80), system).churn_per_s == churn_per_s


def test_what_the_kernel_does_not_show_is_not_guessed(tmp_path: Path) -> None:
    assert local_ports(("127.0.0.1", 80), tmp_path).total == 28_232, "the kernel's own default"
    assert connection_limits.listen_queue(tmp_path) == (None, None)
    assert connection_limits.listen_overflows(tmp_path) is None


def test_overflows_of_listening_sockets_are_found_by_their_name(system: Path) -> None:
    assert connection_limits.listen_overflows(system) == 17


def test_more_connections_than_local_ports_cannot_begin_and_say_what_would_help(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "allow_files", lambda count: None)
    monkeypatch.setattr(connection_limits, "local_ports", lambda address: local_ports(address, system))
    assert connection_budget(("127.0.0.1", 8080), 897).needed == 897
    with pytest.raises(
        OSError, match=r"898 connections to 127.0.0.1:8080 need .* 897 are free .*40000-40999.* widen"
    ):
        connection_budget(("127.0.0.1", 8080), 898)


@pytest.mark.parametrize(("backlog", "at_once"), [(3, 3), (4000, 64), (None, 64)])
def test_no_more_connections_are_opened_side_by_side_than_the_server_lets_wait(
    backlog: int | None, at_once: int
) -> None:
    ports = Ports(first=1, last=9, used=0, reserved=0, reused=True)
    assert ConnectionBudget(needed=9, ports=ports, backlog=backlog, overflows=None).at_once == at_once


@pytest.mark.parametrize("backlog", [1, 77])
def test_the_queue_of_a_listening_socket_is_as_long_as_it_asked_for(backlog: int) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as server:
        address = server.getsockname()
        assert listen_backlog(address[1]) == backlog
        assert connection_budget(address, 1).backlog == backlog
    assert listen_backlog(address[1]) is None


def test_connections_that_a_full_queue_turns_away_are_counted() -> None:
    """A server that accepts nothing for a while: two fit into its queue."""
    server = socket.create_server(("127.0.0.1", 0), backlog=1)
    before = connection_limits.listen_overflows()
    if before is None:
        pytest.skip("this kernel does not say")
    room = connection_budget(server.getsockname(), 8)
    tries = [socket.socket() for _ in range(8)]
    for each in tries:
        each.setblocking(False)
        each.connect_ex(server.getsockname())
    assert room.after(0, 1.0)["listen_overflows"] > 0
    for each in (*tries, server):
        each.close()
