"""`bench load` beside servers that do wrong: it ends in time, keeps little, and says what it saw in figures."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from hostile_server import (
    MODELS,
    PLAIN,
    STREAMED,
    UNREAD,
    WHOLE,
    Behaviour,
    HostileServer,
    closes_after,
    never_accepting,
    sized,
)

BENCH = [sys.executable, "-m", "seamark.cli.main", "load"]
DURATION_S, TIMEOUT_S = 1.0, 1.0
MARGIN_S = 1.5
"""What a load beside a hostile server may take beyond its time-out and what the same load takes beside a server that
answers: only sweeps hold it to that.

A load that names no model first asks the server for one, for another `TIMEOUT_S` at most.
"""
BOUND_S = 44.0
"""When any load is to have ended, its start and its figures included, on a machine that others keep busy."""
HANGS_S = 60.0
MOST_BYTES = 300_000_000
COMPLETIONS, PAGE = "/v1/completions", "/"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A `bench load` that has ended. `peak_bytes` is the largest resident size of any of its processes."""

    code: int
    said: str
    document: dict[str, Any] | None
    wall_s: float
    peak_bytes: int

    @property
    def failures(self) -> dict[str, int]:
        """Requests by the category of their failure, those without any left out."""
        assert self.document is not None, self.said
        return {name: count for name, count in self.document["errors"]["by_category"].items() if count}


def resident(process: psutil.Process) -> int:
    """Return the largest resident size so far of a process or one below it."""
    largest = 0
    with contextlib.suppress(psutil.Error):
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{each.pid}/status").read_text().splitlines()
                largest = max([largest, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))])
    return largest


def load(folder: Path, port: int, path: str, *words: object) -> Ended:
    """Run `bench load` on a port; fail when it hangs."""
    command = [*BENCH, f"http://127.0.0.1:{port}{path}", "--concurrency", 4, "--duration", DURATION_S, "--json"]
    command += ["--timeout", TIMEOUT_S, *words]
    began_s, peak_bytes, over = time.monotonic(), 0, threading.Event()
    with (folder / "stdout").open("w+b") as out, (folder / "stderr").open("w+b") as error:
        process = subprocess.Popen([*map(str, command)], cwd=folder, stdout=out, stderr=error)

        def watch() -> None:
            nonlocal peak_bytes
            seen = psutil.Process(process.pid)
            while not over.wait(0.05):
                peak_bytes = max(peak_bytes, resident(seen))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            code = process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            for each in (*psutil.Process(process.pid).children(recursive=True), process):
                each.kill()
            process.wait()
            raise
        finally:
            wall_s = time.monotonic() - began_s
            over.set()
            watching.join()
    printed, said = ((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
    document = json.loads(printed) if printed.startswith("{") else None
    return Ended(code=code, said=printed[-2000:] + said, document=document, wall_s=wall_s, peak_bytes=peak_bytes)


def survived(ended: Ended) -> Ended:
    """Assert what holds beside any server."""
    assert "Traceback" not in ended.said, ended.said
    assert ended.code in (0, 1, 2), ended.said
    assert ended.wall_s < BOUND_S
    assert ended.peak_bytes < MOST_BYTES
    if ended.document is not None:
        assert "driver" not in ended.failures, ended.said
    return ended


def cases() -> Iterator[tuple[str, Behaviour, str, tuple[object, ...], dict[str, bool]]]:
    """Yield every behaviour with each way to meet it: its name, path, words and how it is served."""
    for name, behaviour in PLAIN.items():
        yield f"http: {name}", behaviour, PAGE, (), {}
        yield f"stream: {name}", behaviour, COMPLETIONS, (), {}
    for name, behaviour in UNREAD.items():
        yield f"http: {name}", behaviour, PAGE, ("--body", "large"), {"unread": True}
        yield f"stream: {name}", behaviour, COMPLETIONS, ("--model", "m"), {"unread": True}
    for name, behaviour in STREAMED.items():
        yield f"stream: {name}", behaviour, COMPLETIONS, (), {}
    for name, behaviour in (WHOLE | STREAMED).items():
        yield f"whole: {name}", behaviour, COMPLETIONS, ("--no-stream",), {}
    for name, behaviour in MODELS.items():
        yield f"models: {name}", behaviour, COMPLETIONS, (), {"models": True}


CASES = {case[0]: case[1:] for case in cases()}
NEVER_ACCEPTING = {"http: never accepts": PAGE, "stream: never accepts": COMPLETIONS}


@pytest.mark.slow
@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("http: drips a body", "timeout"),
        ("http: length of 5,000 digits", "protocol"),
        ("stream: endless line", "reply_too_large"),
        ("whole: deep JSON", "wrong_reply"),
        pytest.param("stream: drips interim replies", "timeout", marks=pytest.mark.sweep),
        pytest.param("stream: endless interim replies", "reply_too_large", marks=pytest.mark.sweep),
        pytest.param("http: endless trailers", "reply_too_large", marks=pytest.mark.sweep),
        pytest.param("whole: endless JSON", "reply_too_large", marks=pytest.mark.sweep),
    ],
)
def test_a_load_beside_a_hostile_server_ends_in_time_and_names_what_it_saw(tmp_path, name, failure):
    behaviour, path, words, how = CASES[name]
    with HostileServer(behaviour, **how) as server:
        ended = survived(load(tmp_path, server.port, path, *words))
    assert ended.failures.get(failure), ended.failures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("drips", "no whole answer in 1 s"),
        ("endless JSON", "more than is read of a reply"),
        ("deep", "its answer is no list of models"),
        ("name of half a character", "its answer is no list of models"),
    ],
)
def test_a_list_of_models_that_does_not_come_is_said_in_one_line(tmp_path, name, said):
    with HostileServer(MODELS[name], models=True) as server:
        ended = survived(load(tmp_path, server.port, COMPLETIONS))
    assert ended.code == 2
    assert said in ended.said


@pytest.mark.slow
def test_a_server_that_never_accepts_is_a_mistake_that_is_said_after_the_time_out(tmp_path):
    with never_accepting() as port:
        ended = survived(load(tmp_path, port, PAGE))
    assert ended.code == 2
    assert "no connection" in ended.said


@pytest.fixture(scope="session")
def answered_s(tmp_path_factory) -> float:
    """Return how long the same load takes beside a server that answers: the longest of three that follow a first."""
    took_s = []
    for _ in range(4):
        with HostileServer(closes_after(sized(b"{}", "Connection: close"))) as server:
            ended = load(tmp_path_factory.mktemp("answered"), server.port, PAGE)
            took_s.append(survived(ended).wall_s)
    return max(took_s[1:])


@pytest.mark.sweep
@pytest.mark.parametrize("name", [*CASES, *NEVER_ACCEPTING])
def test_a_load_survives_every_hostile_server(name, tmp_path, counted, answered_s):
    behaviour, path, words, how = CASES.get(name) or (None, NEVER_ACCEPTING[name], (), {})
    (tmp_path / "large").write_bytes(bytes(20_000_000))
    with contextlib.ExitStack() as held:
        if behaviour is None:
            port = held.enter_context(never_accepting())
        else:
            port = held.enter_context(HostileServer(behaviour, **how)).port
        try:
            ended = load(tmp_path, port, path, *words)
        except subprocess.TimeoutExpired:
            counted("hostile servers", "hangs")
            raise
    try:
        survived(ended)
    except AssertionError:
        counted("hostile servers", "tracebacks" if "Traceback" in ended.said else "failed")
        raise
    bound_s = 2 * answered_s + TIMEOUT_S + MARGIN_S + (TIMEOUT_S if path == COMPLETIONS else 0.0)
    counted("hostile servers", "survived" if ended.wall_s < bound_s else "late")
    assert ended.wall_s < bound_s, f"{name}: {ended.wall_s:.1f} s, {answered_s:.1f} s beside a server that answers"
    print(f"{name}: {ended.wall_s:.1f} s, {ended.peak_bytes / 1e6:.0f} MB, exit {ended.code}")
