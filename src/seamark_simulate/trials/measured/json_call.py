"""One HTTP call with a JSON object in the request and in the reply, and what its failure is called."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from seamark.errors import UserError
from seamark.load.fetch import ClosedError, FetchError, fetch
from seamark_simulate.trials.measured.model_servers import ModelError

SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """Where a server is: host and port, and the path before its endpoints."""

    host: str
    port: int
    base: str = ""

    @classmethod
    def of(cls, url: str, option: str) -> "ServerAddress":
        """Return the address of a URL. Raises UserError, which names the option."""
        wrong = f"{option} {url}: is no address of a server. Give it as http://localhost:8000."
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UserError(wrong) from None
        plain = url.isascii() and url.isprintable() and " " not in url
        if (
            not plain
            or parts.scheme != "http"
            or not parts.hostname
            or parts.query
            or parts.fragment
            or parts.username
        ):
            raise UserError(wrong)
        return cls(host=parts.hostname, port=80 if port is None else port, base=parts.path.rstrip("/"))

    def post(self, path: str, document: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Return the object of a reply. Raises ModelError: `server_died` where the connection was refused or broke,
        `timeout`, or `call_failed` for an error, and for a reply that is no JSON object."""
        what = f"POST {self.base}{path}"
        try:
            body = json.dumps(document, allow_nan=False).encode()
        except ValueError as error:
            raise ModelError("call_failed", f"{what}: the inputs are no JSON: {error}") from None
        try:
            reply = fetch(
                self.host,
                self.port,
                self.base + path,
                limit_s=limit_s,
                method="POST",
                headers={"Content-Type": "application/json"},
                body=body,
            )
        except TimeoutError:
            raise ModelError("timeout", f"{what}: no whole reply within {limit_s:.3g} s", emptied=True) from None
        except ClosedError:
            raise ModelError("server_died", f"{what}: the server closed the connection", emptied=True) from None
        except FetchError as error:
            raise ModelError("call_failed", f"{what}: {error}") from None
        except OSError as error:
            raise ModelError("server_died", f"{what}: {error.strerror or error}", emptied=True) from None
        except UnicodeError:
            raise ModelError("server_died", f"{what}: {self.host} is no name of a host", emptied=True) from None
        text = reply.body.decode("utf-8", "replace")
        if not 200 <= reply.status < 300:
            raise ModelError("call_failed", f"{what}: status {reply.status}: {error_of(text)}")
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ModelError("call_failed", f"{what}: the reply is no JSON object: {_line(text)}")
        return answer


def error_of(text: str) -> str:
    """Return the message of an error reply, `{"error": "..."}` or that of the OpenAI API; else the text itself."""
    try:
        document = json.loads(text)
    except ValueError:
        return _line(text)
    error = document.get("error", document) if isinstance(document, dict) else document
    return _line(str(error.get("message", error) if isinstance(error, dict) else error))


def _line(text: str) -> str:
    """Return a text as one line of bounded length."""
    line = "".join(letter if letter.isprintable() else "." for letter in " ".join(text.split()))
    return (line[:SHOWN] + "...") if len(line) > SHOWN else line or "an empty reply"
