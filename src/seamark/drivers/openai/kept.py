"""Kept replies of servers with the OpenAI API: the text of an answer, why it ended, and fields beside the API's."""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any

from seamark.drivers.openai.events import REASONING, texts_in

DATA, DONE, BYTE_ORDER_MARK = b"data:", b"[DONE]", b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class KeptReply:
    """One reply: the `text` of its first choice without reasoning, its finish reason, and the document `seamark` that
    our own servers add. `text` is None for a reply that is not good: damaged, or an error, with `error` as its code
    or else its type where the server names one."""

    text: str | None
    error: str | None = None
    finish: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


NOTHING = KeptReply(text=None)


class _Received:
    """The bytes of a reply as HTTPResponse reads them from a socket."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply

    def makefile(self, mode: str) -> io.BytesIO:
        """Return the bytes as a file."""
        return io.BytesIO(self._reply)


def read_kept(reply: bytes) -> KeptReply:
    """Return what a reply says, from its bytes as they came, HTTP head included."""
    response = HTTPResponse(_Received(reply))  # type: ignore[arg-type]
    try:
        response.begin()
        body = response.read()
        documents = list(_documents(body))
        if not 200 <= response.status < 300:
            return KeptReply(text=None, error=_error_of(documents[0] if documents else None))
    except (HTTPException, OSError, ValueError):
        return NOTHING
    texts: list[str] = []
    facts: dict[str, Any] = {}
    finish = None
    for document in documents:
        if not isinstance(document, dict) or document.get("error"):
            return KeptReply(text=None, error=_error_of(document))
        facts.update(document["seamark"] if isinstance(document.get("seamark"), dict) else {})
        for choice in document.get("choices") or ():
            if choice.get("index", 0) == 0:
                texts += [str(text) for name, text in texts_in(choice) if text and name not in REASONING]
                finish = choice.get("finish_reason") or finish
    return KeptReply(text="".join(texts), finish=finish, facts=facts) if documents else NOTHING


def _error_of(document: object) -> str | None:
    """Return the code of an error object of the API, its type where the code is no word; None without both."""
    error = document.get("error") if isinstance(document, dict) else None
    named = [error.get(name) for name in ("code", "type")] if isinstance(error, dict) else []
    return next((word for word in named if isinstance(word, str) and word and not word.isdigit()), None)


def _documents(body: bytes) -> Iterator[Any]:
    """Yield the JSON documents of a body: the events of a stream, or the one of a whole reply."""
    body = body.removeprefix(BYTE_ORDER_MARK)
    if not body.lstrip().startswith(DATA):
        yield json.loads(body)
        return
    for line in body.splitlines():
        if line.startswith(DATA) and (data := line.removeprefix(DATA).strip()) and data != DONE:
            yield json.loads(data)
