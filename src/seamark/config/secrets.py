"""References to secrets in settings, `env:NAME` and `file:PATH`: read where they are used, and never written."""

import os
from pathlib import Path

from seamark.errors import UserError
from seamark.storage.redaction import REFERENCE


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
