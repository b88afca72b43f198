"""Secrets are sent by a run, and stand in none of its files and in no command line, whatever servers say of them."""

import gzip
import json
import os
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml
from answering import Reply, answering
from study_folder import StudyFolder

SECRETS = {"THE_KEY": "k3y-Of-The-Environment", "THE_HEADER": "h3ader-Of-The-Environment"}


@pytest.mark.e2e
@pytest.mark.covers("E-SEC")
def test_an_api_key_and_a_header_of_the_environment_are_in_no_file_of_a_run(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path, environment={**os.environ, **SECRETS})
    study.write(
        repetitions=1,
        workload={
            "component": "inference",
            "service": "known",
            "concurrency": 1,
            "duration_s": 0.5,
            "gen_tokens": 2,
            "api_key_env": "THE_KEY",
            "headers": {"X-Key": "env:THE_HEADER"},
            "extra_body": {"seed": 4},
        },
    )
    done = study.bench("submit", "--config", "config/scenarios/try.yaml", pages=True, code=0)
    assert not [secret for secret in SECRETS.values() if secret in done.stdout + done.stderr]
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"meta.json", "plan.json", "metrics.json", "index.html"} <= names
    assert list(tmp_path.glob(".snakemake/**/*.log"))
    assert files_with(SECRETS, tmp_path) == set()
    [plan] = [path for path in tmp_path.rglob("plan.json") if "env:THE_HEADER" in path.read_text()][:1]
    assert "THE_KEY" in plan.read_text()


CANARIES = SECRETS | {
    "HF_TOKEN": "canary-Of-The-Hub",
    "AWS_ACCESS_KEY_ID": "canaryOfTheAccessKey",
    "AWS_SECRET_ACCESS_KEY": "/canary+Of/The+Secret+Key",
    "AWS_SESSION_TOKEN": "canaryOfTheSession",
    "PGPASSWORD": "canary-Of-The-Database",
    "MILVUS_TOKEN": "me:canary-Of-The-Vectors",
    "APPTAINER_DOCKER_PASSWORD": "canary-Of-The-Registry",
}
"""Each kind of secret that Seamark reads from the environment."""
OF_A_FILE = "canary-Of-A-File"
ECHO = """\
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections, requests = 0, 0

    def do_GET(self):
        said = " ".join(self.headers.values())
        print(said, flush=True)
        self.requests += self.path != "/health"  # on this connection
        Echo.connections += self.requests == 1
        if self.path == "/end" and self.requests > 5 and Echo.connections > 1:  # not in the warm-up
            os._exit(3)
        self.send_response(200 if self.path == "/health" else 403)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said.encode())

print(*os.environ.values(), flush=True)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"""


def files_with(secrets: dict[str, str], folder: Path) -> set[str]:
    """Return each file below a folder that has a secret, with the name of that."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            content = gzip.decompress(content) if path.suffix == ".gz" else content
            found |= {f"{path.relative_to(folder)}: {name}" for name in secrets if secrets[name].encode() in content}
    return found


@contextmanager
def command_lines(secrets: dict[str, str], marks: tuple[str, ...]) -> Iterator[set[str]]:
    """Give the names of secrets, and the marks, that are in the command line of any process in this time."""
    found, ended = set[str](), threading.Event()
    wanted = {**secrets, **{mark: mark for mark in marks}}

    def look() -> None:
        while not ended.wait(0.1):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    words = path.read_bytes()
                    found.update(name for name, text in wanted.items() if text.encode() in words)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


@contextmanager
def refusing_database() -> Iterator[int]:
    """Give the port of a PostgreSQL that wants a password in clear text, and repeats it as it refuses it."""

    class Login(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while len(head := self.rfile.read(8)) == 8:
                size, code = struct.unpack("!ii", head)
                self.rfile.read(size - 8)
                if code == 3 << 16:  # version 3 of the protocol; else it asks for TLS or GSS
                    break
                self.wfile.write(b"N")
            else:
                return
            self.wfile.write(b"R" + struct.pack("!ii", 8, 3))
            _, size = struct.unpack("!ci", self.rfile.read(5))
            said = b"SFATAL\0C28P01\0Mnobody has " + self.rfile.read(size - 4).rstrip(b"\0") + b"\0\0"
            self.wfile.write(b"E" + struct.pack("!i", len(said) + 4) + said)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Login) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def refusing_store(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
    """Refuse a request with the session's token, and with what it was signed by."""
    sent = f"{request.headers['X-Amz-Security-Token']} {request.headers['Authorization']}"
    said = f"<Error><Code>AccessDenied</Code><Message>nobody has {sent}</Message></Error>"
    return 403, said.encode(), {"Content-Type": "application/xml"}


@pytest.mark.e2e
@pytest.mark.services
@pytest.mark.slow
@pytest.mark.covers("D4", "E-SEC")
def test_no_secret_that_servers_repeat_is_in_a_file_page_archive_manifest_or_command_line(tmp_path: Path) -> None:
    made, key = tmp_path / "made", tmp_path / "key"
    key.write_text(f"{OF_A_FILE}\n")
    (made / "tmp").mkdir(parents=True)
    environment = {**os.environ, **CANARIES, "PGUSER": "me", "TMPDIR": str(made / "tmp")}
    study = StudyFolder.new(made / "study", environment=environment)
    (study.root / "echo.py").write_text(ECHO)
    headers = {"Authorization": "Bearer env:THE_KEY", "X-Key": "env:THE_HEADER", "X-File": f"file:{key}"}
    load = {"concurrency": 1, "duration_s": 0.5, "warmup_s": 0}
    echo = {"service": "http", "command": "python3 {study}/echo.py {ports[main]}", "health": "/health", **load}
    echo |= {"name": "echo", "path": ["/refused", "/end"], "headers": headers}
    secrets = CANARIES | {"OF_A_FILE": OF_A_FILE}
    with (
        refusing_database() as database,
        answering(refusing_store) as store,
        command_lines(secrets, ("echo.py",)) as seen,
    ):
        parties = {
            "database": {"service": "postgres", "external": {"address": f"127.0.0.1:{database}"}},
            "store": {"service": "s3", "objects": 1, "external": {"address": f"127.0.0.1:{store}"}},
        }
        theirs = {"name": "theirs", "parties": parties, "sets": [[*parties]], **load}
        scenarios = study.root / "config/scenarios"
        (scenarios / "try.yaml").write_text(
            yaml.safe_dump({"scenario": "try", "repetitions": 1, "workloads": [echo, theirs]})
        )
        (scenarios / "echo.yaml").write_text(yaml.safe_dump({"scenario": "echo", "workload": echo}))
        done = study.submit(code=1)
    assert seen == {"echo.py"}
    study.bench("logs", "get", "try", code=0)
    study.bench("export", "tekton", "-c", "config/scenarios/echo.yaml", "-o", "out", code=0)

    loads = [json.loads(path.read_text()) for path in study.results.glob("*/load.json")]
    ended = {load["category"]: load for load in loads}
    assert "403" in ended["all_requests_failed"]["reason"]
    assert any("***" in line for line in ended["server_died"]["log_tail"])
    records = study.results.glob("deployments/*/members/*/deployment.json")
    reasons = {path.parent.name: json.loads(path.read_text())["reason"] for path in records}
    assert {name: "nobody has ***" in reason for name, reason in reasons.items()} == dict.fromkeys(parties, True)
    logs = [path.read_text() for path in study.results.glob("deployments/*/server.log")]
    assert any(log.count("***") > len(CANARIES) for log in logs)
    names = {path.name for path in made.rglob("*") if path.is_file()}
    assert {"index.html", "try-logs.tar.gz", "experiment-task.yaml", "meta.json", "keeper.log"} <= names
    assert files_with(secrets, made) == set()
    assert not [name for name, secret in secrets.items() if secret in done.stdout + done.stderr]
