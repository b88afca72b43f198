"""Test server of the standalone API: models are downloaded, loaded onto GPUs, served and called, at set times.

docs/how-to-simulate.md has the API. It holds no model; it keeps to the order that a real one would need: a model is
loaded after its download, served after its load, and called while it is on its GPUs. With `--journal` every request
is a line of a file, so that a test sees the order of requests and what a client measured of them.
"""

import argparse
import json
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from seamark.testservers.reference import count, number, whole

ENDPOINTS = ("download", "load", "serve", "estimate", "call")
FOREVER_S = 1e6


class RefusedRequestError(Exception):
    """A request that is answered with an error: its status, and the text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(kw_only=True)
class Models:
    """Which models are downloaded, what each GPU holds, and which instances are served."""

    gpus: int
    downloaded: set[str] = field(default_factory=set)
    holds: dict[int, str] = field(default_factory=dict)
    instances: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    calls: int = 0
    loads: int = 0

    def load(self, model: str, gpus: tuple[int, ...]) -> tuple[str, bool]:
        """Give GPUs to a model, in place of what they hold; return the instance, and whether they held another."""
        if model not in self.downloaded:
            raise RefusedRequestError(409, f"the model {model} is not downloaded")
        if not gpus or any(not 0 <= gpu < self.gpus for gpu in gpus):
            raise RefusedRequestError(400, f"no GPUs {list(gpus)}: there are 0 to {self.gpus - 1}")
        gone = {self.holds[gpu] for gpu in gpus if gpu in self.holds}
        for instance in gone:
            for gpu in self.instances.pop(instance)[1]:
                self.holds.pop(gpu, None)
            self.served.discard(instance)
        self.loads += 1
        instance = f"{model}-{self.loads}"
        self.instances[instance] = (model, gpus)
        self.holds.update(dict.fromkeys(gpus, instance))
        return instance, bool(gone)

    def require(self, instance: str, *, served: bool) -> None:
        """Refuse a request for an instance that is not on its GPUs, or not served."""
        if instance not in self.instances:
            raise RefusedRequestError(404, f"no instance {instance}")
        if served and instance not in self.served:
            raise RefusedRequestError(409, f"the instance {instance} is not served")


class StandaloneServer(ThreadingHTTPServer):
    """The server: one thread a request, one lock for its state. `options` are those of the command line: how long
    each endpoint takes, the estimate, and the faults. A load onto GPUs that hold another model takes `switch_ms`."""

    daemon_threads = True

    def __init__(self, options: argparse.Namespace) -> None:
        """Raises OSError where the address cannot be had."""
        super().__init__((options.host, options.port), _Request)
        self._options = options
        self._models = Models(gpus=options.gpus)
        self._lock = threading.Lock()

    def answer(self, endpoint: str, instance: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the reply to a request once its time is over. Raises RefusedRequestError."""
        begun_ns = time.monotonic_ns()
        try:
            self._fail(endpoint)
            with self._lock:
                reply, takes_ms = self._reply(endpoint, instance, document)
            time.sleep(takes_ms / 1000)
            if endpoint == "call":
                with self._lock:
                    self._models.require(instance, served=True)
            return reply
        finally:
            self._note(endpoint, instance, document, begun_ns)

    def _fail(self, endpoint: str) -> None:
        faults = self._options
        if faults.refuse == endpoint:
            raise RefusedRequestError(500, f"fault requested by --refuse {endpoint}")
        if faults.silent == endpoint:
            time.sleep(FOREVER_S)
        if endpoint != "call":
            return
        with self._lock:
            self._models.calls += 1
            calls = self._models.calls
        if faults.silent_every and calls % faults.silent_every == 0:
            time.sleep(FOREVER_S)
        if faults.error_every and calls % faults.error_every == 0:
            raise RefusedRequestError(503, "fault requested by --error-every")

    def _reply(self, endpoint: str, instance: str, document: Mapping[str, Any]) -> tuple[Mapping[str, Any], float]:
        models, times = self._models, self._options
        if endpoint == "download":
            models.downloaded.add(_text(document, "model"))
            return {"status": "downloaded"}, times.download_ms
        if endpoint == "load":
            loaded, switched = models.load(_text(document, "model"), tuple(document.get("gpus", ())))
            return {"id": loaded}, times.switch_ms if switched else times.load_ms
        if endpoint == "serve":
            served = _text(document, "id")
            models.require(served, served=False)
            models.served.add(served)
            return {"id": served, "status": "serving"}, times.serve_ms
        if endpoint == "estimate":
            _text(document, "model")
            return {"estimated_time": times.estimate_s}, 0.0
        models.require(instance, served=True)
        return {"output": f"answer of {models.instances[instance][0]}"}, times.call_ms

    def _note(self, endpoint: str, instance: str, document: Mapping[str, Any], begun_ns: int) -> None:
        journal: Path | None = self._options.journal
        if journal is None:
            return
        line = {
            "endpoint": endpoint,
            "instance": instance or None,
            "request": document,
            "begun_ns": begun_ns,
            "ended_ns": time.monotonic_ns(),
        }
        with self._lock, journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class _Request(BaseHTTPRequestHandler):
    """One request: its path, its JSON, and the reply."""

    protocol_version = "HTTP/1.1"
    server: StandaloneServer

    def do_POST(self) -> None:
        """Answer a request to an endpoint."""
        try:
            endpoint, instance = self._endpoint()
            document = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            if not isinstance(document, dict):
                raise RefusedRequestError(400, "the body is no JSON object")
            self._send(200, self.server.answer(endpoint, instance, document))
        except RefusedRequestError as refused:
            self._send(refused.status, {"error": str(refused)})
        except ValueError as error:
            self._send(400, {"error": f"the body is no JSON: {error}"})

    def _endpoint(self) -> tuple[str, str]:
        parts = self.path.strip("/").split("/")
        if parts[0] == "standalone" and len(parts) == (3 if "call" in parts[1:2] else 2) and parts[1] in ENDPOINTS:
            return parts[1], parts[2] if len(parts) == 3 else ""
        raise RefusedRequestError(404, f"no endpoint {self.path}")

    def _send(self, status: int, document: Mapping[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing: the journal has every request."""


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise RefusedRequestError(400, f"the key '{key}' is missing")
    return value


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="standalone", description="The standalone API, at times that are set.", allow_abbrev=False
    )
    add = options.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, required=True, help="0: any; it is printed")
    add("--gpus", type=whole(1), default=64, help="GPUs that models can be loaded onto")
    add("--journal", type=Path, help="file with a JSON line per request")
    for name in ("download", "load", "switch", "serve", "call"):
        add(f"--{name}-ms", type=number, default=0.0, help=f"time of a {name}")
    add("--estimate-s", type=number, help="the estimated time of every node; without it, none is known")
    add("--refuse", choices=ENDPOINTS, help="this endpoint is answered with status 500")
    add("--silent", choices=ENDPOINTS, help="this endpoint is never answered")
    add("--error-every", type=count, help="period in calls: one is answered with status 503; 0: none")
    add("--silent-every", type=count, help="period in calls: one is never answered; 0: none")
    return options


def main(argv: Sequence[str]) -> int:
    """Parse the command line, and serve until SIGTERM or SIGINT."""
    options = _parser()
    try:
        server = StandaloneServer(options.parse_args(argv))
    except OSError as error:
        options.error(str(error))
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: threading.Thread(target=server.shutdown).start())
    with server:
        print(f"listening on {server.server_address[1]}", flush=True)
        server.serve_forever(poll_interval=0.05)
    return 0
