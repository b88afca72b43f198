"""References to secrets in settings, `env:NAME` and `file:PATH`: read where they are used, and never written."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from seamark.errors import UserError
from seamark.storage.redaction import REFERENCE, json_object, secrets_here


def reference_mistake(text: str) -> str | None:
    """Return what is wrong with the form of a reference; None for a good one, and for a text that is none."""
    match = REFERENCE.fullmatch(text)
    if match is None or (match["name"].isidentifier() if match["kind"] == "env" else match["name"].strip()):
        return None
    return f"'{text}' names no secret. Write env:NAME, the name of a variable, or file:PATH."


def resolve(text: str) -> str:
    """Return the secret that a text refers to, after the word before the reference (`Bearer env:NAME`); any other
    text as it is. Blanks around a secret are left out. Raises UserError, never with a value, if there is none."""
    match = REFERENCE.fullmatch(text)
    if match is None:
        return text
    if mistake := reference_mistake(text):
        raise UserError(mistake)
    kind, name = match["kind"], match["name"]
    try:
        secret = os.environ.get(name, "") if kind == "env" else Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text"
        raise UserError(f"file:{name} cannot be read where the load runs ({reason}).") from None
    if not (secret := secret.strip()) or not secret.isascii() or not secret.isprintable():
        what = f"the environment variable {name}" if kind == "env" else name
        raise UserError(f"{kind}:{name}: {what} is not one line of ASCII where the load runs. Set it there.")
    return f"{match['before'] or ''}{secret}"


def secrets_of(*settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the secrets that a server or a library may repeat, the longest first: those that settings refer to, and
    those of the variables of this process."""
    found: set[str] = set()
    for reference in {*_references(settings)}:
        with suppress(UserError):  # the load that needs it says so
            found.add(resolve(reference))
    return secrets_here(found)


def _references(value: Any, name: str = "") -> Iterator[str]:
    """Yield each reference in settings, without the word before it; `api_key_env` has the name of a variable."""
    inner = (json_object(value) or value) if isinstance(value, str) else value
    if isinstance(inner, Mapping):
        for key, entry in inner.items():
            yield from _references(entry, str(key))
    elif isinstance(inner, tuple | list):
        for entry in inner:
            yield from _references(entry, name)
    elif isinstance(inner, str):
        if match := REFERENCE.fullmatch(inner):
            yield f"{match['kind']}:{match['name']}"
        elif name.endswith("_env"):
            yield f"env:{inner}"
