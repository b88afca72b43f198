"""Redaction of secrets in files and output: headers, passwords in URLs, values of settings named like a secret.

A secret given on a command line or in a setting is used; stored and printed text has REDACTED in its place.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar, cast

from seamark.storage.documents import replacing

Noun = TypeVar("Noun")

REDACTED = "***"
HARMLESS_HEADERS = frozenset(
    (
        *("accept", "accept-encoding", "accept-language", "cache-control", "connection", "content-encoding"),
        *("content-length", "content-type", "host", "user-agent"),
    )
)
"""Headers whose values are shown. Any other may contain a key under a name chosen by its service."""

REFERENCE = re.compile(r"(?P<before>[A-Za-z]+ +)?(?P<kind>env|file):(?P<name>.*)")
"""A value that names where a secret is, and is none itself."""
_NO_REFERENCE = r"(?![\"']?(?:[A-Za-z]+ +)?(?:env|file):)"
SHORTEST_SECRET = 6
"""A shorter value is not replaced in texts: it would be a part of other words."""
SAID = ("reason", "words", "log_tail")
"""Fields of records with what servers, libraries and programs say."""
_SYMBOLS = {code: 0x2400 + code for code in range(32) if code not in b"\t\n"}
_SYMBOLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)

_SECRET_NAME = (
    r"(?:[\w-]*(?:password|passwd|passphrase|secret|credentials?|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|auth[_-]?key|access[_-]?token|auth[_-]?token|session[_-]?token|signature)|(?:proxy-)?authorization|(?:set-)?cookie)"
)
_NAMED = re.compile(rf"{_SECRET_NAME}|(?:[\w-]+[_-])?(?:token|pwd)|sig|auth", re.IGNORECASE)
_HALVES = ("ACCESS_KEY_ID", "SECRET_KEY")
_IN_URL = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/?#:@'\"]*:)[^\s/?#@'\"]+@", re.IGNORECASE)
_IN_QUERY = re.compile(r"(?P<before>[?&](?P<name>[\w.~-]+)=)[^\s&#'\"]+")
_OF_HEADER = re.compile(
    r"(?P<before>\b(?:proxy-)?authorization[\"']?\s*[:=]\s*+[\"']?|\b(?:set-)?cookie[\"']?\s*:\s*+[\"']?)"
    rf"{_NO_REFERENCE}[^\"'\r\n]+",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    rf"(?P<before>(?<![\w-]){_SECRET_NAME}[\"']?\s*[:=]\s*+)"
    rf"{_NO_REFERENCE}(?P<value>\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\s,;&\"'}}\]]+)",
    re.IGNORECASE,
)
_SHAPES = re.compile(r"(?P<before>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{6,}|\b(?:hf_\w{16,}|sk-[\w-]{16,})")


def visible(text: str) -> str:
    """Return a text with control characters, other than tabs and ends of lines, as symbols: `␛` for ESC.

    What a terminal or page would obey in the results of others is shown.
    """
    return text.replace("\r\n", "\n").translate(_SYMBOLS)


def redacted(value: Any, name: str = "") -> Any:
    """Return a document with its secrets replaced. `name` is the key of `value`, "" at the top.

    Texts that contain a JSON object, such as a load's `headers`, are searched as well. None and empty values are
    kept.
    """
    if isinstance(value, Mapping):
        return {key: redacted(entry, str(key)) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(entry, name) for entry in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if name == "headers":
        return _headers(str(value))
    if _NAMED.fullmatch(name):
        return REDACTED
    return _of_text(value) if isinstance(value, str) else value


def redacted_text(text: str) -> str:
    """Return a text (message, log line, file of settings) without the secrets that it names or that have a known
    form."""
    text = _IN_URL.sub(rf"\g<before>{REDACTED}@", text)
    text = _IN_QUERY.sub(_query, text)
    text = _OF_HEADER.sub(rf"\g<before>{REDACTED}", text)
    text = _ASSIGNED.sub(_assigned, text)
    return _SHAPES.sub(lambda match: f"{match['before'] or ''}{REDACTED}", text)


def secrets_here(more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the values of variables of this process that are named like a secret, such as HF_TOKEN, and `more` that
    are known; the longest first."""
    named = [name for name in os.environ if name.endswith(_HALVES) or (name != "PWD" and _NAMED.fullmatch(name))]
    found = {*more, *(os.environ[name].strip() for name in named)}
    return tuple(sorted((secret for secret in found if len(secret) >= SHORTEST_SECRET), key=len, reverse=True))


def without(value: Noun, secrets: Sequence[str]) -> Noun:
    """Return a text, or a document with its texts, with a mark in place of these values."""
    found: Any = value
    if isinstance(found, str):
        for secret in secrets:
            found = found.replace(secret, REDACTED)
    elif isinstance(found, Mapping):
        found = {key: without(inner, secrets) for key, inner in found.items()}
    elif isinstance(found, list | tuple):
        found = type(found)(without(inner, secrets) for inner in found)
    return cast(Noun, found)


def hidden(value: Noun, secrets: Sequence[str]) -> Noun:
    """Return a record, with the records in it, whose fields SAID are redacted and have none of these values."""
    found: Any = value
    if is_dataclass(found) and not isinstance(found, type):
        own = {each.name: getattr(found, each.name) for each in fields(found) if each.init}
        said = {name: redacted(without(own[name], secrets)) for name in SAID if name in own}
        said = {name: tuple(text) if isinstance(text, list) else text for name, text in said.items()}
        found = replace(found, **{name: hidden(inner, secrets) for name, inner in own.items()} | said)
    elif isinstance(found, Mapping):
        found = {key: hidden(inner, secrets) for key, inner in found.items()}
    elif type(found) is tuple:
        found = tuple(hidden(inner, secrets) for inner in found)
    return cast(Noun, found)


def hide_in_log(path: Path, secrets: Sequence[str]) -> None:
    """Replace these values in a log that has ended. Its time stays; one without any of them is not written."""
    words = [word.encode() for secret in secrets for word in {secret, json.dumps(secret)[1:-1]}]
    if not words or not path.is_file():
        return
    with path.open("rb") as log:
        if not any(word in line for line in log for word in words):
            return
    before = path.stat()
    with replacing(path, durable=False) as temporary:
        with path.open("rb") as log, temporary.open("wb") as kept:
            for line in log:
                kept.write(reduce(lambda text, word: text.replace(word, REDACTED.encode()), words, line))
        temporary.chmod(before.st_mode)
        os.utime(temporary, ns=(before.st_atime_ns, before.st_mtime_ns))


def _of_text(text: str) -> str:
    document = json_object(text)
    if document is None:
        return redacted_text(text)
    shown = redacted(document)
    return text if shown == document else json.dumps(shown)


def _headers(text: str) -> str:
    """Return the JSON object of a load's headers with redacted values, except those of harmless headers."""
    document = json_object(text)
    if document is None:
        return REDACTED
    return json.dumps({key: value if _is_shown(key, value) else REDACTED for key, value in document.items()})


def _is_shown(header: str, value: Any) -> bool:
    return header.lower() in HARMLESS_HEADERS or REFERENCE.fullmatch(str(value)) is not None


def without_sent(text: str, request: bytes) -> str:
    """Return a text, such as an answer, without the values that the headers of an HTTP request have sent."""
    lines = request.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    for name, _, value in (line.partition(": ") for line in lines):
        if name.lower() not in HARMLESS_HEADERS:
            sent = (value, value.rpartition(" ")[2])
            text = without(text, [secret for secret in sent if len(secret) >= SHORTEST_SECRET])
    return redacted_text(text)


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is, None for any other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _query(found: re.Match[str]) -> str:
    name = found["name"].rpartition(".")[2]
    secret = _NAMED.fullmatch(name) or name.lower() in ("key", "x-amz-credential")
    return f"{found['before']}{REDACTED}" if secret else found[0]


def _assigned(found: re.Match[str]) -> str:
    value = found["value"]
    if value.startswith(("$", "{", REDACTED)) or value.strip("\"'").lower() in ("", "null", "none", "true", "false"):
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{found['before']}{quote}{REDACTED}{quote}"


def masked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with the values of secret ones hidden."""
    return {name: str(redacted(value, name)) for name, value in variables.items()}


def masked_command(words: Sequence[str]) -> list[str]:
    """Return a command with the values of secret flags hidden: `--token=x`, `--token x` and `TOKEN=x`."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        name, equals, value = word.partition("=")
        flag = name.lstrip("-")
        if hide_next:
            shown.append(REDACTED)
        elif equals and flag.replace("-", "_").isidentifier():
            shown.append(f"{name}={redacted(value, flag)}")
        else:
            shown.append(redacted_text(word))
        hide_next = not hide_next and not equals and word.startswith("-") and redacted("x", flag) == REDACTED
    return shown


def masked_address(address: str) -> str:
    """Return an address without user and password: `***@host:1`."""
    _, at, host = address.rpartition("@")
    return f"{REDACTED}@{host}" if at else address
