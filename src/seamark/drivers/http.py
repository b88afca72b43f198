"""Any HTTP address: one request, again and again. Sent by `bench load` without an API, and for `http`."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seamark.config.secrets import resolve
from seamark.errors import UserError
from seamark.load.driver import Body, Target, Wire
from seamark.load.engine.http import HttpDecoder, http_request, in_url
from seamark.model.service import Value
from seamark.platform.tls import VERIFIED, tls_context

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header or a method."""
VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
WANTS_A_KEY = "It wants a key: export KEY=..., then add --header 'Authorization: Bearer env:KEY'."
OF_THE_BODY = ("content-length", "transfer-encoding")
PATH = re.compile(r"/[!-~]*")
WITH_BODY = ("POST", "PUT", "PATCH")


class Http(Wire):
    """Sends the request of its settings: `url`, else `path` of the service; `method`, `headers` (a JSON object), and
    `body` (a text) or `body_file`; over https with `tls` and `tls_ca_file`, see platform/tls.py."""

    unit = "reply"
    body_count = 1

    def __init__(self, target: Target) -> None:
        settings = target.settings
        self._url = urlsplit(str(settings.get("url") or _url(target)))
        body, file = settings.get("body"), settings.get("body_file")
        if body is not None and file is not None:
            raise UserError("body and body_file: a request has one body. Remove one of the two.")
        self._content = (
            Path(str(file)).read_bytes() if file is not None else body if body is None else str(body).encode()
        )
        self._method = str(settings.get("method") or ("GET" if self._content is None else "POST"))
        if self._content is None and self._method in WITH_BODY:
            self._content = b""
        self._headers = own_headers(settings)
        self.kinds: Sequence[str] = (self._method.lower(),)
        secure = {**settings, "tls": settings.get("tls") or VERIFIED}
        self.tls = tls_context(secure if self._url.scheme == "https" else settings)

    def address(self) -> tuple[str, int]:
        """Return host and port of the address."""
        return self._url.hostname or "127.0.0.1", self._url.port or (443 if self.tls else 80)

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return the only request, `count` times."""
        return [Body(content=self._content)] * count

    def encode(self, body: Body) -> bytes:
        """Return the request on the wire."""
        path = self._url.path or "/"
        return http_request(
            self._method,
            f"{path}?{self._url.query}" if self._url.query else path,
            host=self._url.netloc.rpartition("@")[2],
            headers=self._headers,
            body=body.content,
        )

    def decoder(self) -> HttpDecoder:
        """Return a decoder for one connection."""
        return HttpDecoder(headless=self._method == "HEAD")


def _url(target: Target) -> str:
    """Return the address of the setting `path` at the service's server."""
    path = str(target.settings["path"])
    if not PATH.fullmatch(path):
        raise UserError(f"path: '{path}' is no path. Begin it with '/', and write other letters and blanks as %20.")
    scheme = "http" if target.settings.get("tls") is None else "https"
    return f"{scheme}://{in_url(target.host)}:{target.ports['main']}{path}"


def own_headers(settings: Mapping[str, Value]) -> dict[str, str]:
    """Return the headers of the setting `headers`, with the secrets that they refer to. Raises UserError for one that
    cannot be sent."""
    found: dict[str, str] = {}
    for name, value in json_object(settings, "headers", '{"X-Team": "storage"}').items():
        if not TOKEN.fullmatch(name) or name.lower() in (*OF_THE_BODY, *map(str.lower, found)):
            why = "says how long the body is, as the load does" if name.lower() in OF_THE_BODY else "is written twice"
            raise UserError(
                f"headers: '{name}' {why if TOKEN.fullmatch(name) else 'is no name of a header'}. Remove it."
            )
        try:
            found[name] = resolve(value if isinstance(value, str) else json.dumps(value))
        except UserError as error:
            raise UserError(f"headers: {name}: {error}") from None
        if not VALUE.fullmatch(found[name]):
            raise UserError(f"headers: {name}: a value is one line of Latin letters, digits and signs.")
    return found


def json_object(settings: Mapping[str, Value], name: str, example: str) -> dict[str, Any]:
    """Return a setting that is a JSON object, {} if it is not set. Raises UserError for another text."""
    try:
        found = json.loads(str(settings.get(name) or "{}"))
    except ValueError as cause:
        raise UserError(f"{name}: not JSON: {cause}. Write it as '{example}'.") from cause
    if not isinstance(found, dict):
        raise UserError(f"{name}: not a JSON object. Write it as '{example}'.")
    return found
