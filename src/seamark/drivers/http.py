"""Any HTTP address: one request, again and again. What `bench load` sends when no API is named."""

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from seamark.load.driver import Body, Target, Wire
from seamark.load.engine.http import HttpDecoder, http_request
from seamark.platform.tls import VERIFIED, tls_context


class Http(Wire):
    """Sends the request of its settings: `url`, `method`, `headers` (a JSON object) and `body` (a file); over https
    with `tls` and `tls_ca_file`, see platform/tls.py."""

    unit = "reply"
    body_count = 1

    def __init__(self, target: Target) -> None:
        settings = target.settings
        self._url = urlsplit(str(settings["url"]))
        self._method = str(settings.get("method") or "GET")
        self._headers: dict[str, str] = json.loads(str(settings.get("headers") or "{}"))
        body = settings.get("body")
        self._content = None if body is None else Path(str(body)).read_bytes()
        self.kinds: Sequence[str] = (self._method.lower(),)
        secure = {**settings, "tls": settings.get("tls") or VERIFIED}
        self.tls = tls_context(secure) if self._url.scheme == "https" else None

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
