"""The caches of a server before a trial with `caches: reset`; with `caches: warm` its driver fills them."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from seamark.load.coordinator.coordinator import LoadError
from seamark.load.engine.http import in_url
from seamark.load.fetch import Fetched, fetch
from seamark.model.results.deployment_record import Endpoint
from seamark.model.service import ResetCall, Service, Value
from seamark.platform.tls import tls_context

RESET_S = 30.0
"""Longest time of a call, and until a server whose last requests still end has emptied its caches."""
AGAIN_S = 0.2
SHOWN = 300


def reset_caches(
    service: Service, endpoint: Endpoint, settings: Mapping[str, Value], party: str | None = None
) -> None:
    """Empty the caches of all processes of a server by its own calls, if the settings of a trial ask for that.

    Raises LoadError, with the status and the name of the party, for a call that fails.
    """
    if settings.get("caches") != "reset":
        return
    calls = list(_calls(service, endpoint))
    if service.server is None or len(calls) < len(service.server.reset_calls):
        raise LoadError("caches: the addresses of the server's parts are not known here", (), party, "setup_failed")
    for call, host, port in calls:
        if why := _refused(call, host, port, settings):
            url = f"{in_url(host)}:{port}{call.path}"
            raise LoadError(f"caches: {call.method} {url}: {why}", (), party, "setup_failed")


def _calls(service: Service, endpoint: Endpoint) -> Iterator[tuple[ResetCall, str, int]]:
    """Yield each call with host and port: of the server itself, then of each process of its parts."""
    server = service.server
    if server is not None and server.reset_caches is not None:
        yield server.reset_caches, endpoint.host or "", endpoint.ports[server.ports[0]]
    for process in endpoint.parts:
        part = server.part(process.name or "") if server is not None else None
        if part is not None and part.reset_caches is not None:
            yield part.reset_caches, process.host or "", process.ports[part.ports[0]]


def _refused(call: ResetCall, host: str, port: int, settings: Mapping[str, Value]) -> str | None:
    """Return why a server has not emptied its caches. vLLM says `success: false` while it has requests at work."""
    until_s = time.monotonic() + RESET_S
    while True:
        try:
            reply = fetch(
                host, port, call.path, limit_s=RESET_S, method=call.method, body=b"", tls=tls_context(settings)
            )
        except OSError as error:
            return str(error)
        if not 200 <= reply.status < 300:
            return f"HTTP {reply.status}: {reply.body[:SHOWN].decode(errors='replace')}"
        if not _denied(reply):
            return None
        if time.monotonic() > until_s:
            return f"HTTP {reply.status}, and no success in {RESET_S:g} s"
        time.sleep(AGAIN_S)


def _denied(reply: Fetched) -> bool:
    with suppress(ValueError):
        document = json.loads(reply.body)
        return isinstance(document, dict) and document.get("success") is False
    return False
