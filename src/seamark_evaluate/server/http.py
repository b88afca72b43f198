"""HTTP/1.1 of the server: connections, requests parsed by h11, paths, and streams that stop with their client."""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import h11

from seamark.errors import did_you_mean
from seamark_evaluate.server import replies
from seamark_evaluate.server.engine import Engine, Ticket
from seamark_evaluate.server.errors import RequestError, wrong
from seamark_evaluate.server.generate import Answer, Piece
from seamark_evaluate.server.replies import compact, error_document
from seamark_evaluate.server.request import Completion, read_completion

READ_BYTES = 1 << 16
MOST_BODY_BYTES = 1 << 28
JSON_TYPE = "application/json"
STREAM_TYPE = "text/event-stream; charset=utf-8"
PATHS = {"/health": "GET", "/metrics": "GET", "/v1/models": "GET", "/v1/completions": "POST"}


@dataclass(frozen=True, kw_only=True)
class Api:
    """What connections answer from: the engine and the name of its model. Replies are numbered."""

    engine: Engine
    served_model: str
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until either side closes it."""
        connection = _Connection(self, reader, writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):  # the latter when the server ends
                await connection.serve()
        finally:
            writer.close()


class _Connection:
    """One connection. While an answer is computed it is read from, so that a client that goes is noticed."""

    def __init__(self, api: Api, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._api, self._reader, self._writer = api, reader, writer
        self._http = h11.Connection(h11.SERVER)
        self._reading: asyncio.Task[bytes] | None = None

    async def serve(self) -> None:
        try:
            while (request := await self._next_request()) is not None:
                method, path, body = request
                await self._answer(method, path, body)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                status = error.error_status_hint
                self._send(status, compact(error_document(RequestError(status, "wrong_request", f"HTTP: {error}"))))
        finally:
            if self._reading is not None:
                self._reading.cancel()

    async def _next_request(self) -> tuple[str, str, bytes] | None:
        """Return method, path and body of the next request, None when there is none any more."""
        method = path = ""
        body = bytearray()
        while True:
            got = self._http.next_event()
            if got is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._write(h11.InformationalResponse(status_code=100, headers=[]))
                self._http.receive_data(await self._read())
            elif isinstance(got, h11.Request):
                method, path = got.method.decode("latin-1"), got.target.decode("latin-1").partition("?")[0]
            elif isinstance(got, h11.Data):
                body += got.data
                if len(body) > MOST_BODY_BYTES:
                    raise h11.RemoteProtocolError("the body is too large", 413)
            elif isinstance(got, h11.EndOfMessage):
                return method, path, bytes(body)
            else:
                return None

    async def _read(self) -> bytes:
        reading, self._reading = self._reading, None
        return await (reading or self._reader.read(READ_BYTES))

    async def _answer(self, method: str, path: str, body: bytes) -> None:
        try:
            allowed = PATHS.get(path)
            if allowed is None:
                raise RequestError(404, "wrong_request", f"{path}: no such path.{did_you_mean(path, PATHS)}")
            if method != allowed:
                raise RequestError(405, "wrong_request", f"{path}: takes {allowed}, not {method}.")
            if path == "/v1/completions":
                await self._complete(read_completion(_json(body), served_model=self._api.served_model))
            else:
                self._look_up(path)
        except RequestError as error:
            self._send(error.status, compact(error_document(error)))

    def _look_up(self, path: str) -> None:
        engine = self._api.engine
        if path == "/metrics":
            self._send(200, engine.counters.page().encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/v1/models":
            self._send(200, compact(replies.models(self._api.served_model, engine.model.max_model_len)))
        elif engine.failure is not None:
            raise RequestError(503, engine.failure, "the device failed. Start the server again.")
        else:
            self._send(200, b'{"status":"ok"}')

    async def _complete(self, completion: Completion) -> None:
        """Answer a completion. Raises RequestError as long as no part of the reply is sent."""
        ticket = self._api.engine.submit(completion)
        self._reading = asyncio.ensure_future(self._reader.read(READ_BYTES))
        self._reading.add_done_callback(lambda reading: _cancel_if_gone(ticket, reading))
        try:
            if completion.stream:
                await self._stream(ticket)
            else:
                await self._whole(ticket)
        finally:
            ticket.cancel()  # changes nothing once it is done

    async def _whole(self, ticket: Ticket) -> None:
        pieces: list[Piece] = []
        while isinstance(result := await ticket.results.get(), Piece):
            pieces.append(result)
        if isinstance(result, RequestError):
            raise result
        self._send(200, compact(replies.whole(self._head(), pieces, result)))

    async def _stream(self, ticket: Ticket) -> None:
        """Send an event for each token at once. The head comes with the first, so that errors before it are replies
        of their own; an error after it is the last event of a stream without an end mark."""
        head = self._head()
        result = await ticket.results.get()
        if isinstance(result, RequestError):
            raise result
        headers = [("Content-Type", STREAM_TYPE), ("Cache-Control", "no-cache")]
        self._writer.write(self._bytes(h11.Response(status_code=200, headers=headers)))
        while isinstance(result, Piece):
            self._write(h11.Data(data=replies.piece_event(head, result)))
            await self._writer.drain()
            result = await ticket.results.get()
        if isinstance(result, Answer):
            last = replies.last_event(head, result, include_usage=ticket.completion.include_usage)
            self._write(h11.Data(data=last))
            self._write(h11.Data(data=replies.DONE))
        else:
            self._write(h11.Data(data=replies.event(error_document(result))))
        self._write(h11.EndOfMessage())

    def _head(self) -> Mapping[str, Any]:
        return replies.head(self._api.served_model, next(self._api.numbers))

    def _send(self, status: int, body: bytes, kind: str = JSON_TYPE) -> None:
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        self._writer.write(
            self._bytes(h11.Response(status_code=status, headers=headers))
            + self._bytes(h11.Data(data=body))
            + self._bytes(h11.EndOfMessage())
        )

    def _write(self, part: Any) -> None:
        self._writer.write(self._bytes(part))

    def _bytes(self, part: Any) -> bytes:
        return bytes(self._http.send(part) or b"")


def _cancel_if_gone(ticket: Ticket, reading: asyncio.Task[bytes]) -> None:
    if reading.cancelled() or reading.exception() is not None or not reading.result():
        ticket.cancel()


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise wrong(f"the body is no JSON: {error}") from error
    return document
