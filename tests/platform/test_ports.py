"""Whose socket listens, and which ports are chosen."""

import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seamark.platform.ports import choose_ports, owners

LISTEN = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], 0), family=family) as listening:
    print(listening.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def test_chosen_ports_are_free_in_a_row_and_not_among_those_of_clients():
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for seed in range(20):
        ports = choose_ports(("http", "grpc", "metrics"), "127.0.0.1", random.Random(seed))
        first = ports["http"]
        assert ports == {"http": first, "grpc": first + 1, "metrics": first + 2}
        assert first + 2 < max(lowest, 14336)
        for port in ports.values():
            socket.create_server(("127.0.0.1", port)).close()


def test_a_taken_port_is_not_chosen():
    wanted = choose_ports(("main",), "127.0.0.1", random.Random(5))["main"]
    with socket.create_server(("127.0.0.1", wanted)):
        assert choose_ports(("main",), "127.0.0.1", random.Random(5))["main"] != wanted


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_listening_socket_is_known_by_its_process_and_not_by_its_answer(host: str):
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    other = subprocess.Popen([sys.executable, "-c", LISTEN, host], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    port = int(other.stdout.readline())
    try:
        assert owners({"main": port}, [other.pid]) == {"main": "ours"}
        assert owners({"main": port}, [os.getpid()]) == {"main": "foreign"}
        assert owners({"main": port}, []) == {"main": "foreign"}
    finally:
        other.communicate()
    assert owners({"main": port}, [os.getpid()]) == {"main": "nobody"}


def test_a_connection_from_a_port_is_no_listener_on_it():
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as one,
    ):
        assert owners({"main": one.getsockname()[1]}, []) == {"main": "nobody"}


def test_a_second_listener_beside_ours_is_foreign_though_ours_listens_too():
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        ours.bind(("127.0.0.1", 0))
        ours.listen()
        port = ours.getsockname()[1]
        code = (
            "import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
            f"s.bind(('127.0.0.1', {port})); s.listen(); print('up', flush=True); sys.stdin.read()"
        )
        other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert other.stdout is not None
        other.stdout.readline()
        try:
            assert owners({"main": port}, [os.getpid()]) == {"main": "foreign"}
        finally:
            other.communicate()
