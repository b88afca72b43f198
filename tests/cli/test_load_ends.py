"""How a quick load ends: its figures are printed, its secrets are not, and nothing of it stays behind."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from answering import Reply, answering
from processes import eventually

from seamark.services.ephemeral_server import ephemeral_server

BENCH = [sys.executable, "-m", "seamark.cli.main", "load"]
SECRET = "s3cr3t-Value0123456789"
PLAIN = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}


@pytest.fixture
def locked() -> Iterator[SimpleNamespace]:
    """A server that wants a key, and says so by repeating what came; keeps the keys."""
    keys: list[str | None] = []

    def reply(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        keys.append(request.headers.get("Authorization"))
        return 200 if request.path.startswith("/open") else 401, f"no such key: {keys[-1]}".encode(), {}

    with answering(reply) as port:
        yield SimpleNamespace(server_port=port, keys=keys)


def bench_load(folder: Path, *words: object, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*BENCH, *map(str, words)],
        cwd=folder,
        capture_output=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.covers("E-CLI02")
@pytest.mark.parametrize(
    "encoding", ["latin-1", *(pytest.param(each, marks=pytest.mark.sweep) for each in ("utf-8", "ascii"))]
)
def test_an_open_loop_of_few_requests_prints_its_figures_in_any_locale(tmp_path, encoding):
    with ephemeral_server("seamark.testservers.null") as port:
        words = ("--pattern", "constant", "--rate", 1, "--duration", 3)
        done = bench_load(tmp_path, f"http://127.0.0.1:{port}/", *words, PYTHONIOENCODING=encoding, **PLAIN)
    assert b"Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode("latin-1" if encoding == "latin-1" else "utf-8")  # click takes ASCII for UTF-8
    assert re.search(r"3 requests in 3.00 s of constant load.*3 good", shown)
    assert f"sent {'-' if encoding == 'latin-1' else '–'} late (p50)" in shown


@pytest.mark.services
@pytest.mark.slow
def test_a_server_that_never_replies_to_an_open_loop_gives_figures_and_a_verdict(tmp_path):
    with ephemeral_server("seamark.testservers.null", "--silent-every", 1) as port:
        words = ("--pattern", "constant", "--rate", 20, "--duration", 1, "--timeout", 0.5)
        done = bench_load(tmp_path, f"http://127.0.0.1:{port}/", *words)
    assert done.returncode == 1, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"timeout" in done.stdout
    assert b"INVALID" in done.stdout


@pytest.mark.services
@pytest.mark.covers("E-CLI02")
def test_an_output_that_cannot_be_written_is_said_before_the_load(locked, tmp_path):
    (tmp_path / "file").write_text("")
    for output, said in (
        ("nowhere/x.parquet", b"no file can be written in nowhere (No such file or directory)"),
        ("file/x.parquet", b"no file can be written in file (Not a directory)"),
        (".", b"a folder. Name a file in it"),
    ):
        done = bench_load(tmp_path, f"http://127.0.0.1:{locked.server_port}/open", "--output", output)
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stdout == b""
    assert locked.keys == []


@pytest.mark.services
@pytest.mark.slow
def test_figures_are_printed_when_the_samples_can_no_longer_be_written(locked, tmp_path):
    place = tmp_path / "place"
    place.mkdir()

    def spoil() -> None:
        if eventually(lambda: locked.keys, 20):
            place.rmdir()
            place.write_text("a file now")

    spoiler = threading.Thread(target=spoil)
    spoiler.start()
    words = ("--duration", 2, "--output", place / "x.parquet")
    done = bench_load(tmp_path, f"http://127.0.0.1:{locked.server_port}/open", *words)
    spoiler.join()
    assert done.returncode == 3
    assert b"requests/s" in done.stdout
    assert b"the samples were not written" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.covers("E-SEC")
def test_secrets_are_sent_and_shown_nowhere(locked, tmp_path):
    address = f"http://me:{SECRET}@127.0.0.1:{locked.server_port}/open?token={SECRET}"
    words = ("--header", f"Authorization: Bearer {SECRET}", "--requests", 20, "--output", "x.parquet", "--json")
    done = bench_load(tmp_path, address, *words)
    assert done.returncode in (0, 1), done.stderr
    assert set(locked.keys) == {f"Bearer {SECRET}"}
    config = json.loads(done.stdout)["config"]
    assert json.loads(config["headers"]) == {"Authorization": "***"}
    assert config["url"] == f"http://me:***@127.0.0.1:{locked.server_port}/open?token=***"
    refused = bench_load(tmp_path, address.replace("/open", "/shut"), *words[:4])
    assert b"by hand: 'HTTP/1.1 401" in refused.stderr
    assert b"and 'no such key: ***'. It wants a key: " in refused.stderr
    assert b"--header 'Authorization: Bearer env:KEY'" in refused.stderr
    nothing_there = bench_load(tmp_path, f"http://me:{SECRET}@127.0.0.1:1/", *words[:2])
    assert b"nothing listens there" in nothing_there.stderr
    mistake = bench_load(tmp_path, address, "--header", f"Authorization Bearer {SECRET}")
    assert b"is not a header" in mistake.stderr
    no_model = bench_load(tmp_path, f"http://me:{SECRET}@127.0.0.1:{locked.server_port}/v1/completions")
    assert b"names no model" in no_model.stderr
    for each in (done, refused, nothing_there, mistake, no_model):
        assert SECRET.encode() not in each.stdout + each.stderr
        assert b"Traceback" not in each.stderr
    assert SECRET.encode() not in (tmp_path / "x.parquet").read_bytes()


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_load_that_is_ended_by_a_signal_leaves_no_samples_and_no_process(tmp_path, number):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with ephemeral_server("seamark.testservers.null") as port:
        process = subprocess.Popen(
            [*BENCH, f"http://127.0.0.1:{port}/", "--duration", "60", "--shards", "2", "--concurrency", "4"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(temporary)},
        )
        grown = eventually(lambda: any(p.stat().st_size > 1000 for p in temporary.rglob("*.samples")), 30)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        time.sleep(0.05)
        if process.poll() is None:
            process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert grown
    assert process.returncode == 128 + number
    assert b"no samples were kept" in said
    assert b"Traceback" not in said
    assert [path for path in temporary.rglob("*") if path.suffix in (".samples", ".parquet", ".json")] == []
    assert list(temporary.glob("seamark-load-*")) == []
    assert eventually(lambda: not any(child.is_running() for child in children))
