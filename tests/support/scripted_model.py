"""A completions server that fails on demand: `python scripted_model.py HOST PORT MODEL [FLAG]`.

By its model's name it answers every request (`good`), says that it is out of memory (`oom`), says so of every other
request (`half`) or of those about a variable (`picky`), never answers (`hangs`) or ends with the first request
(`dies`). A model `until` is out of memory until the file `FLAG` is there. One in the folder `absent` is not found.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

OUT_OF_MEMORY = {"error": {"message": "not enough memory", "type": "server_error", "code": "gpu_out_of_memory"}}


class Handler(BaseHTTPRequestHandler):
    """Answers `GET /health` and `POST /v1/completions`."""

    protocol_version = "HTTP/1.1"
    numbers = count()

    def do_GET(self) -> None:
        """Say that it is well."""
        self._reply(200, b"{}")

    def do_POST(self) -> None:
        """Answer, or fail as the model says."""
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        model, number = sys.argv[3], next(self.numbers)
        if model == "hangs":
            time.sleep(3600)
        if model == "dies":
            os._exit(9)
        full = (
            model == "oom"
            or (model == "half" and number % 2)
            or (model == "picky" and b"variable" in asked)
            or (model == "until" and not Path(sys.argv[4]).exists())
        )
        if full:
            self._reply(500, json.dumps(OUT_OF_MEMORY).encode())
            return
        choice = {"index": 0, "text": " Lisbon", "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        events = [{"choices": [choice]}, {"choices": [], "usage": usage}]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self._reply(200, body.encode(), "text/event-stream")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    if sys.argv[3].startswith("absent/"):
        sys.exit(f"model_not_found: --model {sys.argv[3]}: there is no such folder")
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
