"""The server of transformers models for tests: started in its own environment, with a client of its API."""

import http.client
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from service_environment import ISOLATED_MAIN, environment

TIMEOUT_S = 300.0


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
def attention_server(model: str, **options: Any) -> Iterator[AttentionServer]:
    """Serve a model's folder on any port, with options of the command line."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    python = environment("evaluation") / "bin" / "python"
    command = [str(python), str(ISOLATED_MAIN), "seamark_evaluate.server.serve", f"--model={model}", "--port=0"]
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True, env=quiet) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on "), line
            yield AttentionServer(port=int(line.split()[-1]), model=str(options.get("served_model", model)))
        finally:
            process.terminate()
            assert process.wait(30) == 0


def text_of(reply: Mapping[str, Any]) -> str:
    """Return the text of a whole reply."""
    return str(reply["choices"][0]["text"])
