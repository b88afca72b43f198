"""Check of an address before a quick load: one connection, and one request by hand."""

import contextlib
import re
import socket
import ssl
import time
from dataclasses import dataclass, replace
from urllib.parse import SplitResult, urlsplit

from seamark.drivers.http import WANTS_A_KEY
from seamark.drivers.openai.events import read_chunk
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadJob
from seamark.load.driver import Wire, make_of
from seamark.load.engine.http import in_url
from seamark.load.engine.mix import mixed
from seamark.load.fetch import READ_BYTES, BodyDecoder, connect
from seamark.platform.tls import reason_of
from seamark.storage.redaction import without_sent

LOOK_S = 10.0
"""Longest time to connect, TLS included."""
ANSWER_S = 1.0
"""Longest time until the request by hand is answered."""
WHOLE_S = 5.0
"""Longest time until its reply is whole."""
MOST_BYTES = 1 << 16
SHOWN = 300
CODING = re.compile(rb"\r\ncontent-encoding:[ \t]*([^\r]+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class ReplySummary:
    """Answer to one request: the beginning of the reply, or why there was none, and a remedy."""

    text: str
    remedy: str = ""


def look(url: SplitResult, tls: ssl.SSLContext | None, limit_s: float = LOOK_S) -> None:
    """Connect once, with a TLS handshake if needed, and disconnect, within `limit_s`. Raises UserError with the
    remedy."""
    with contextlib.closing(_connected(url, tls, min(LOOK_S, limit_s))):
        pass


def port_of(url: SplitResult) -> int:
    """Return the port of an address, by its scheme if it names none."""
    return url.port or (443 if url.scheme == "https" else 80)


def request_of(driver: Wire, seed: int) -> bytes:
    """Return the bytes of the first request that a driver makes by a seed."""
    request = driver.encode(driver.bodies(1, seed)[0])
    return request if isinstance(request, bytes) else b"".join(request)


def answer_by_hand(job: LoadJob) -> str | None:
    """Return what the server of a load answers to its first request, sent once more by hand; None where its driver
    does not speak HTTP, or cannot be made here."""
    try:
        make, target = make_of(job.driver), job.target()
        driver = mixed(make, target) if target.load.mix else make(target)
        if driver.speaks != "wire" or job.workers != "wire":
            return None
        request, (host, port) = request_of(driver, job.seed_of_bodies), driver.address()
    except Exception:  # whatever a driver raises: the load has said so
        return None
    if b" HTTP/1.1\r\n" not in request[: request.find(b"\n") + 1]:
        return None
    url = urlsplit(f"{'http' if driver.tls is None else 'https'}://{in_url(host)}:{port}")
    return answer_of(url, driver.tls, request).text


def answer_of(url: SplitResult, tls: ssl.SSLContext | None, request: bytes) -> ReplySummary:
    """Send one request and return the beginning of the reply, without what the request has sent in its headers.
    Raises nothing."""
    answer = _answer(url, tls, request)
    return replace(answer, text=without_sent(answer.text, request))


def _answer(url: SplitResult, tls: ssl.SSLContext | None, request: bytes) -> ReplySummary:
    try:
        reply = BodyDecoder(MOST_BYTES, headless=request.startswith(b"HEAD "))
        until_s = time.monotonic() + ANSWER_S
        with contextlib.closing(_connected(url, tls, ANSWER_S)) as connection:
            connection.sendall(request)
            connection.settimeout(max(0.001, until_s - time.monotonic()))
            came = connection.recv(READ_BYTES)
            _read(connection, reply, came)
    except TimeoutError:
        return ReplySummary(text=f"no answer in {ANSWER_S:g} s", remedy="Raise --timeout, or look at the server.")
    except UserError as mistake:
        return ReplySummary(text=str(mistake))
    except OSError as error:
        came, why = b"", reason_of(error)
    else:
        why = "closed without a byte"
    if came.startswith(b"HTTP/1."):
        coding = CODING.search(came.partition(b"\r\n\r\n")[0])
        if coding and coding[1].lower() != b"identity":
            what = f"'{_line(came, request)}' with Content-Encoding: {_line(coding[1], request)}"
            return ReplySummary(
                text=what, remedy="Compressed replies are not read: turn that off in the server or proxy."
            )
        body = _words(reply.body)
        text = f"'{_line(came, request)}'" + (f" and '{_line(body, request)}'" if body else "")
        return ReplySummary(text=text, remedy=_of_status(came.split(maxsplit=2)[1:2], request))
    if url.scheme == "http" and (not came or came[:1] == b"\x15") and _speaks_tls(url):
        return ReplySummary(text="the port speaks TLS", remedy=f"Use https://{url.netloc}{url.path}.")
    if not came:
        return ReplySummary(text=f"the connection was {why}" if why.startswith("closed") else why)
    return ReplySummary(text=f"'{_line(came, request)}', which is no HTTP/1.1", remedy="Is it the right port?")


def _read(connection: socket.socket, reply: BodyDecoder, came: bytes) -> None:
    """Read the rest of a reply, as far as it comes."""
    until_s = time.monotonic() + WHOLE_S
    with contextlib.suppress(OSError):
        while came and not reply.feed(came) and (left_s := until_s - time.monotonic()) > 0:
            connection.settimeout(left_s)
            came = connection.recv(READ_BYTES)


def _words(body: bytes) -> bytes:
    """Return what a body says, in one line: the event of a stream with an error or a wrong usage, else its
    beginning."""
    for line in body.splitlines():
        try:
            chunk = read_chunk(line.removeprefix(b"data:"))
        except ValueError:
            continue
        if chunk.failed or (chunk.usage and chunk.usage.absurd):
            return line.removeprefix(b"data:").strip()
    return b" ".join(body.split())


def _connected(url: SplitResult, tls: ssl.SSLContext | None, limit_s: float) -> socket.socket:
    where, host, port = f"{url.scheme}://{url.netloc}", url.hostname or "", port_of(url)
    until_s = time.monotonic() + limit_s
    try:
        connection = connect(host, port, None, until_s)
    except (socket.gaierror, UnicodeError):
        raise UserError(f"{where}: no host has the name '{host}'. Is it spelled right?") from None
    except TimeoutError:
        text = f"{where}: no connection in {limit_s:g} s. Does the server accept connections, and is the port open?"
        raise UserError(text) from None
    except ConnectionRefusedError:
        raise UserError(f"{where}: nothing listens there (connection refused). Start the server first.") from None
    except OSError as error:
        raise UserError(f"{where}: no connection ({reason_of(error)}).") from None
    if tls is None:
        return connection
    try:
        return tls.wrap_socket(connection, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        remedy = "Name its authority with --cacert FILE, or do not ask for one: --insecure."
        text = f"{where}: its certificate fails verification ({reason_of(error)}). {remedy}"
    except TimeoutError:
        text = f"{where}: no TLS handshake in {limit_s:g} s. Does this port speak TLS? Else use http."
    except OSError as error:
        text = f"{where}: no TLS handshake ({reason_of(error)}). Does this port speak TLS? Else use http."
    connection.close()
    raise UserError(text) from None


def _speaks_tls(url: SplitResult) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with contextlib.closing(_connected(url, context, ANSWER_S)):
            return True
    except UserError:
        return False


def _line(came: bytes, request: bytes) -> str:
    """Return the first line, printable. It is cut last, so that no secret is cut in two."""
    line = without_sent(came.splitlines()[0].decode("latin-1"), request)[:SHOWN]
    return "".join(letter if letter.isprintable() else "." for letter in line)


def _of_status(words: list[bytes], request: bytes) -> str:
    status = words[0] if words else b""
    if status.startswith(b"3"):
        return "Redirects are not followed: load the address that it points to."
    if status in (b"401", b"403"):
        return WANTS_A_KEY
    if status in (b"400", b"422") and b"completions" in request.partition(b"\r\n")[0]:
        return "Leave a field out with --extra-body '{\"NAME\": null}', or rename it: see bench load --help."
    return ""
