"""Processes of a fork server: theirs are the client's folder, files, environment and end."""

import itertools
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import until

from seamark.platform.fork_server import client
from seamark.platform.fork_server.client import Forked, fork
from seamark.platform.fork_server.protocol import address, kind_of, name_of, receive, send

PRELOAD = ("json.tool",)


class GaveUpError(Exception):
    """What a client raises that will not wait any longer."""


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process that a fork server serves; the server can import the functions beside this file."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def forked(owner: int, tmp_path: Path) -> Iterator[Callable[..., Forked]]:
    """Fork a function of forked.py; its output lies in tmp_path."""
    files = [os.open(os.devnull, os.O_RDONLY)]
    files += [os.open(tmp_path / name, os.O_CREAT | os.O_WRONLY) for name in ("out", "err")]

    def make(function: str, *arguments: object, **how: Any) -> Forked:
        words = [str(argument) for argument in arguments]
        process = fork(f"forked:{function}", words, owner=owner, files=files, preload=PRELOAD, **how)
        assert process is not None
        return process

    yield make
    for file in files:
        os.close(file)


def test_a_forked_process_has_its_clients_folder_environment_and_files(
    forked: Callable[..., Forked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEAMARK_TRY", "first")
    assert forked("tell", tmp_path / "one").wait() == 3
    monkeypatch.setenv("SEAMARK_TRY", "second")
    assert forked("tell", tmp_path / "two").wait() == 3
    folder, said, server, imported = (tmp_path / "one").read_text().splitlines()
    assert (folder, said, imported) == (str(tmp_path), "first", "True")
    assert (tmp_path / "two").read_text().splitlines() == [folder, "second", server, imported], "one server for both"
    assert (tmp_path / "out").read_text() == "to standard output\n" * 2
    assert (tmp_path / "err").read_text() == "to standard error\n" * 2


@pytest.mark.parametrize(
    ("function", "arguments", "code", "said"),
    [("refuse", ["so it is"], 1, "so it is\n"), ("fail", [], 1, "ValueError: what went wrong\n")],
)
def test_a_forked_process_ends_as_a_script_does(
    forked: Callable[..., Forked], tmp_path: Path, function: str, arguments: list[str], code: int, said: str
) -> None:
    assert forked(function, *arguments).wait() == code
    assert (tmp_path / "err").read_text().endswith(said)


def test_a_killed_process_has_the_signal_for_its_exit_code(forked: Callable[..., Forked], tmp_path: Path) -> None:
    process = forked("wait", tmp_path / "ready", tmp_path / "ended")
    until((tmp_path / "ready").exists)
    assert process.poll() is None
    process.kill()
    assert process.wait() == process.poll() == -signal.SIGKILL
    assert not (tmp_path / "ended").exists()


def test_a_terminated_process_closes_what_it_has_open(forked: Callable[..., Forked], tmp_path: Path) -> None:
    process = forked("wait", tmp_path / "ready", tmp_path / "ended")
    until((tmp_path / "ready").exists)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert (tmp_path / "ended").exists()


@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_forked_process_ends_with_its_client(
    forked: Callable[..., Forked], tmp_path: Path, number: signal.Signals
) -> None:
    process = forked("wait", tmp_path / "ready", tmp_path / "ended", orphan_signal=number)
    until((tmp_path / "ready").exists)
    process._connection.close()  # as the kernel does when we end
    until(lambda: not Path(f"/proc/{process.pid}").exists())
    assert (tmp_path / "ended").exists() == (number == signal.SIGTERM)


def test_a_forked_process_is_spoken_to_over_its_standard_files(owner: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = fork("forked:echo", [], owner=owner, files=(theirs.fileno(),) * 3)
        assert process is not None
        ours.sendall(b"hello\n")
        assert ours.recv(100) == b"HELLO\n"
        assert process.wait() == 0


@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
def test_a_fork_server_ends_with_its_run_and_leaves_who_still_works(
    forked: Callable[..., Forked], owner: int, tmp_path: Path
) -> None:
    process = forked("wait", tmp_path / "ready", tmp_path / "ended")
    until((tmp_path / "ready").exists)
    server = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])
    listens = address(name_of(owner, kind_of(sys.executable, PRELOAD, {})))
    os.kill(owner, signal.SIGKILL)
    until(lambda: not answers(listens))
    assert process.poll() is None
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    until(lambda: "State:\tZ" in state(server) or not state(server))


@pytest.mark.slow
@pytest.mark.covers("B7")
def test_jobs_of_lanes_have_the_fork_server_of_their_run(owner: int, tmp_path: Path) -> None:
    job = "import sys; from seamark.platform.fork_server.client import run; run('forked:tell', sys.argv[1:])"
    lane = (
        f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {job!r}, sys.argv[1]]).returncode)"
    )
    for name in ("one", "two"):
        command = [sys.executable, "-c", lane, str(tmp_path / name)]
        assert subprocess.run(command, env=os.environ | {client.RUN: str(owner)}, check=False).returncode == 3
    servers = {(tmp_path / name).read_text().splitlines()[2] for name in ("one", "two")}
    assert len(servers) == 1, "jobs of two lanes, each imported all modules"
    assert answers(address(name_of(owner, kind_of(sys.executable, client.OF_JOBS, {}))))


@pytest.mark.slow
def test_a_fork_server_that_nobody_asks_ends(owner: int) -> None:
    name = name_of(owner, "idle")
    code = "import sys, seamark.platform.fork_server.server as s; s.IDLE_S = 0.2; s.main(sys.argv[1:])"
    with subprocess.Popen([sys.executable, "-c", code, name, str(owner), "kind"]) as server:
        assert server.wait(20) == 0
    assert not answers(address(name))


def test_a_request_meant_for_another_server_gets_no_process(owner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "name_of", lambda owner, kind: name_of(owner, "one name for all"))
    files = (0, 1, 2)
    first = fork("forked:fail", [], owner=owner, files=files, preload=PRELOAD)
    assert first is not None
    assert fork("forked:fail", [], owner=owner, files=files, preload=("json",)) is None
    first.wait()


@pytest.mark.parametrize("name", client.INSIDE_A_CONTAINER)
def test_there_is_no_fork_server_inside_a_container(owner: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/images/seamark.sif")
    assert fork("forked:fail", [], owner=owner, files=(0, 1, 2)) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_gets_no_process(forked: Callable[..., Forked], owner: int, tmp_path: Path) -> None:
    assert forked("tell", tmp_path / "mine").wait() == 3
    where = address(name_of(owner, kind_of(sys.executable, PRELOAD, {})))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(where)
                send(connection, {"kind": kind_of(sys.executable, PRELOAD, {})}, (0, 1, 2))
                os.write(writer, connection.recv(100) or b"nothing")
        except ConnectionError:
            os.write(writer, b"nothing")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"nothing"


def test_what_libraries_read_while_they_are_imported_makes_another_server(
    forked: Callable[..., Forked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for threads in ("1", "2", "1"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        forked("tell", tmp_path / threads, import_environment=True).wait()
    servers = [(tmp_path / threads).read_text().splitlines()[2] for threads in ("1", "2")]
    assert servers[0] != servers[1]


@pytest.mark.slow
def test_who_waits_for_the_imports_is_called_and_may_give_up(owner: int) -> None:
    calls: list[float] = []

    def on_wait() -> None:
        calls.append(time.monotonic())
        if len(calls) > 20 and calls[-1] - calls[0] > 1:
            raise GaveUpError

    with pytest.raises(GaveUpError):
        fork("forked:fail", [], owner=owner, files=(0, 1, 2), preload=("slow_import",), on_wait=on_wait)
    gaps_s = [after - before for before, after in itertools.pairwise(calls)]
    assert max(gaps_s) < 2, "it is called again and again while the server sleeps in an import"


def test_a_fork_that_fails_costs_nobody_else_anything(owner: int, tmp_path: Path) -> None:
    files = (0, 1, 2)
    waiting = fork(
        "forked:wait", [str(tmp_path / "a"), str(tmp_path / "b")], owner=owner, files=files, preload=("one_fork",)
    )
    assert waiting is not None
    until((tmp_path / "a").exists)
    assert fork("forked:fail", [], owner=owner, files=files, preload=("one_fork",)) is None
    assert waiting.poll() is None
    waiting.terminate()
    assert waiting.wait() == 128 + signal.SIGTERM


def test_many_open_files_do_not_matter(forked: Callable[..., Forked], tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert forked("tell", tmp_path / "one").wait() == 3
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_half_a_request_is_no_request() -> None:
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"\0" * 7 + b"\x08"], [0, 1, 2])
    ours.sendall(b'{"a"')
    ours.close()
    with theirs, pytest.raises(EOFError, match="incomplete request"):
        receive(theirs)


def answers(where: str) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(where) == 0


def state(pid: int) -> str:
    """Return what the kernel says of a process, '' when it has gone."""
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
