"""A client that is slow and sure: one socket, every read kept with its time, decoded when all is there."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import seamark
from seamark.testservers.truth import Truth, read_truth

ISOLATED_MAIN = Path(seamark.__file__).parent / "platform/isolated_main.py"


@dataclass
class Known:
    """A reference server as a process."""

    process: "subprocess.Popen[str]"
    port: int
    truth_file: Path

    @classmethod
    def start(cls, folder: Path, *arguments: object) -> "Known":
        truth = folder / "truth.jsonl"
        command = [
            sys.executable,
            str(ISOLATED_MAIN),
            "seamark.testservers.reference",
            "--port=0",
            f"--truth={truth}",
        ]
        process = subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return cls(process=process, port=int(process.stdout.readline().split()[-1]), truth_file=truth)

    def client(self, timeout_s: float = 10.0) -> "Client":
        return Client(socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s))

    def ask(self, path: str = "/v1/completions", **body: Any) -> "Answer":
        """Make one request on a connection of its own."""
        with contextlib.closing(self.client()) as client:
            return client.ask(path, **body)

    def end(self) -> tuple[Truth, str]:
        """End the server; return its truth and what it said."""
        self.process.terminate()
        assert self.process.stdout is not None
        said = self.process.stdout.read()
        assert self.process.wait(10) == 0
        return read_truth(self.truth_file), said


@dataclass
class Answer:
    """What came for one request: reads with the time of each, ns of CLOCK_MONOTONIC."""

    sent_ns: int
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    broken: type[Exception] | None = None

    @property
    def raw(self) -> bytes:
        return b"".join(data for _, data in self.reads)

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def json(self) -> Any:
        return json.loads(self.raw.partition(b"\r\n\r\n")[2])

    def body(self) -> tuple[bytes, list[tuple[int, int]]]:
        """Undo the chunked transfer; return the body, and where in it and in the raw bytes each chunk ends."""
        raw, body = self.raw, bytearray()
        ends = []
        at = raw.index(b"\r\n\r\n") + 4
        while at < len(raw):
            end = raw.index(b"\r\n", at)
            length = int(raw[at:end], 16)
            at = end + 2 + length
            body += raw[end + 2 : at]
            ends.append((len(body), at))
            assert raw[at : at + 2] == b"\r\n"
            at += 2
        return bytes(body), ends

    def events(self, line_end: bytes = b"\n") -> list[tuple[int, Any]]:
        """Return each SSE event with the time when all of it was there; "[DONE]" as it is."""
        body, ends = self.body()
        found = []
        at = 0
        for text in body.split(line_end * 2)[:-1]:
            at += len(text) + 2 * len(line_end)
            raw_at = next(raw for inside, raw in ends if inside >= at)
            assert text.startswith(b"data:")
            value = text[5:].strip().decode()
            found.append((self.read_ns(raw_at), value if value == "[DONE]" else json.loads(value)))
        return found

    def read_ns(self, raw_at: int) -> int:
        """Return when the raw bytes up to `raw_at` were there."""
        length = 0
        for at_ns, data in self.reads:
            length += len(data)
            if length >= raw_at:
                return at_ns
        raise AssertionError("not received")

    def chunks(self) -> list[tuple[int, str]]:
        """Return the content chunks of choice 0 that carry text, with their times."""
        texts = [(at_ns, text_of(event)) for at_ns, event in self.events() if event != "[DONE]"]
        return [(at_ns, text) for at_ns, text in texts if text]


def text_of(event: Any) -> str:
    for choice in event["choices"][:1]:
        said = choice.get("delta", choice)
        return str(said.get("text") or said.get("content") or "")
    return ""


def finishes(answer: Answer) -> list[str]:
    """Return why the choices of a stream ended."""
    events = [event for _, event in answer.events() if event != "[DONE]"]
    return [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]


class Client:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Answer:
        """Send bytes; return an answer without any read yet."""
        answer = Answer(sent_ns=time.monotonic_ns())
        self.socket.sendall(data)
        return answer

    def receive(self, answer: Answer) -> Answer:
        """Read until the answer is whole or the connection ends."""
        while not is_whole(answer):
            try:
                data = self.socket.recv(1 << 16)
            except (ConnectionResetError, TimeoutError) as error:
                answer.broken = type(error)
                break
            if not data:
                break
            answer.reads.append((time.monotonic_ns(), data))
        return answer

    def ask(self, path: str = "/v1/completions", name: str | None = None, **body: Any) -> Answer:
        """Ask for a completion: the defaults are a stream with usage."""
        return self.receive(self.send(completion(path, name, **body)))

    def get(self, path: str) -> Answer:
        return self.receive(self.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()))


def completion(path: str = "/v1/completions", name: str | None = None, **body: Any) -> bytes:
    """Return a request: a prompt of three words, streamed, with usage, unless `body` says otherwise."""
    prompt = {"messages": [{"role": "user", "content": "one two three"}]} if "chat" in path else {"prompt": "a b c"}
    defaults: dict[str, Any] = {**prompt, "stream": True, "stream_options": {"include_usage": True}}
    content = json.dumps({"model": "known", **defaults, **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + (f"X-Request-Id: {name}\r\n" if name else "").encode() + b"\r\n" + content


def is_whole(answer: Answer) -> bool:
    """Say whether nothing more will come; looks at all of it only when its end may be there."""
    data = b"".join(data for _, data in answer.reads[:9] + answer.reads[9:][-9:])
    head, found, _ = data.partition(b"\r\n\r\n")
    if not found:
        return False
    if b"chunked" in head:
        return data.endswith(b"\r\n0\r\n\r\n")
    length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
    return len(answer.raw) >= len(head) + 4 + length
