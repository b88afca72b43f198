"""When a streamed reply ends whose server says so only by closing the connection."""

import json
import socket
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from listening import listening

from seamark.load.workers.records import read_segments
from seamark.model.sample import CHUNK, Failure

LINGER_S = 0.25
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
EVENT = b"data: " + json.dumps({"choices": [{"index": 0, "text": " a", "finish_reason": None}]}).encode() + b"\n\n"


def stream_and_linger(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(HEAD)
    for _ in range(3):
        time.sleep(0.01)
        connection.sendall(EVENT)
    time.sleep(LINGER_S)
    connection.sendall(b"data: [DONE]\n\n")


@pytest.fixture
def lingering_server() -> Iterator[int]:
    """Streams without a length, says nothing for LINGER_S after the last content, and closes."""
    with listening(stream_and_linger) as port:
        yield port


@pytest.mark.covers("E-FR09")
@pytest.mark.services
def test_a_stream_that_a_close_ends_was_over_with_its_last_content(lingering_server: int, load: Callable) -> None:
    measured = load(
        "seamark.drivers.openai:OpenAi",
        port=lingering_server,
        requests=3,
        duration_s=20.0,
        model="m",
        prompt_len=4,
        gen_tokens=3,
    )
    assert measured.failures() == {Failure.NONE: 3}
    chunks = read_segments(measured.outcome.files["chunks"], CHUNK)
    last_ns = [chunks["at_ns"][chunks["index"] == index].max() for index in measured.samples["index"]]
    assert np.array_equal(measured.samples["last_ns"], last_ns)
