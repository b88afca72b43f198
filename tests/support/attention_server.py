"""The server of transformers models for tests: started in its own environment, and questions asked in that one."""

import http.client
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import seamark
from seamark.services.runtimes.environments import prepare_environment

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
ISOLATED_MAIN = Path(seamark.__file__).parent / "platform/isolated_main.py"
TIMEOUT_S = 120.0


def in_evaluation(module: str, question: str, **given: Any) -> Any:
    """Call `question(**given)` of a module of tests/servers in the environment `evaluation`; its answer as JSON."""
    done = subprocess.run(
        [*_python(), module, question, json.dumps(given)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "servers"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@dataclass(frozen=True, kw_only=True)
class AttentionServer:
    """A server that listens; `model` is the name for requests."""

    port: int
    model: str

    def connection(self) -> http.client.HTTPConnection:
        """Return a new connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a GET request."""
        connection = self.connection()
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()

    def post(self, body: Any) -> tuple[int, dict[str, Any]]:
        """Return status and JSON of a completion request whose body is this, text or JSON."""
        connection = self.connection()
        connection.request("POST", "/v1/completions", body if isinstance(body, str) else json.dumps(body))
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())

    def ask(self, **fields: Any) -> dict[str, Any]:
        """Return the reply to a request that is right."""
        status, reply = self.post({"model": self.model, **fields})
        assert status == 200, reply
        return reply

    def stream(self, **fields: Any) -> list[dict[str, Any]]:
        """Return the events of a streamed reply; it must end with its end mark."""
        connection = self.connection()
        body = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}, **fields}
        connection.request("POST", "/v1/completions", json.dumps(body))
        reply = connection.getresponse()
        assert (reply.status, reply.getheader("Content-Type")) == (200, "text/event-stream; charset=utf-8")
        lines = reply.read().decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""]
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    def counter(self, name: str) -> float:
        """Return a value of /metrics, by its whole name with labels; 0 if it is not there."""
        lines = dict(line.rsplit(" ", 1) for line in self.get("/metrics")[1].splitlines() if line[0] != "#")
        return float(lines.get(name, 0))


@contextmanager
def attention_server(model: Path, **options: Any) -> Iterator[AttentionServer]:
    """Serve a model's folder on any port, with options of the command line."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [*_python(), "seamark.servers.attention.serve", f"--model={model}", "--port=0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on "), line
            yield AttentionServer(port=int(line.split()[-1]), model=str(options.get("served_model", model)))
        finally:
            process.terminate()
            assert process.wait(30) == 0


def _python() -> tuple[str, str]:
    environment = prepare_environment("evaluation", ROOT / "envs", CACHE / "envs")
    return str(environment / "bin" / "python"), str(ISOLATED_MAIN)


def text_of(reply: Mapping[str, Any]) -> str:
    """Return the text of a whole reply."""
    return str(reply["choices"][0]["text"])
