"""What the probes take for an answer."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering import answering
from hostile_server import PLAIN, HostileServer

from seamark.model.service import Health
from seamark.services.supervisor.health import PROBE_TIMEOUT_S, Probe


@pytest.fixture
def port() -> Iterator[int]:
    with answering(lambda request, _: (int(request.path.strip("/")), b"", {})) as port:
        yield port


def probe(health: Health, port: int, tmp_path: Path, *command: str) -> bool:
    ports = {"main": port}
    asked = Probe(
        health=health, host="127.0.0.1", ports=ports, command=command, environment=os.environ, folder=tmp_path
    )
    return asked.answers()


@pytest.mark.covers("E-SVR04")
@pytest.mark.parametrize(("status", "healthy"), [(200, True), (204, True), (302, False), (404, False), (503, False)])
def test_only_http_2xx_is_an_answer(port: int, tmp_path: Path, status: int, healthy: bool):
    assert probe(Health(probe="http", path=f"/{status}"), port, tmp_path) is healthy


@pytest.mark.covers("E-SVR04")
def test_tcp_wants_someone_who_listens(port: int, tmp_path: Path):
    assert probe(Health(probe="tcp"), port, tmp_path)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert not probe(Health(probe="tcp"), bound.getsockname()[1], tmp_path)
        assert not probe(Health(probe="http"), bound.getsockname()[1], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["drips headers", "drips its status line", "endless interim replies"])
def test_a_head_that_never_ends_is_no_answer_and_is_given_up_in_time(tmp_path: Path, name: str):
    with HostileServer(PLAIN[name]) as server:
        began_s = time.monotonic()
        assert not probe(Health(probe="http"), server.port, tmp_path)
    assert time.monotonic() - began_s < 5 * PROBE_TIMEOUT_S, "a deadline for each read would never end it"


@pytest.mark.parametrize(("command", "healthy"), [(("true",), True), (("false",), False), (("no-such",), False)])
def test_a_command_answers_with_its_exit_code(tmp_path: Path, command: tuple[str, ...], healthy: bool):
    assert probe(Health(probe="command"), 1, tmp_path, *command) is healthy


@pytest.mark.parametrize(("pids", "state"), [(None, "healthy"), ([os.getpid()], "healthy"), ([], "port_taken")])
def test_a_good_answer_counts_only_from_our_own_process(port: int, pids: list[int] | None, state: str):
    health = Health(probe="http", path="/200")
    assert Probe(health=health, host="127.0.0.1", ports={"main": port}).state(pids) == state
