"""Output in any locale: characters that its encoding lacks are replaced by similar ASCII."""

import codecs
import locale
import os
import sys

NEAREST = {
    **dict.fromkeys("–—−", "-"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
    "…": "...",
    "×": "x",
    "≥": ">=",
    "≤": "<=",
    "±": "+/-",
    "µ": "u",
    "†": "+",
    "→": "->",
    "·": ".",
    "✓": "+",
}
HANDLER = "seamark.nearest"


def nearest(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return the replacement of characters that cannot be encoded, for `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(NEAREST.get(letter, "?") for letter in letters), error.end


def print_in_any_locale() -> None:
    """Make standard output and error accept any text, and child processes use UTF-8.

    A locale that lacks a letter of a table is no reason to lose what was measured. Files are UTF-8 everywhere.
    """
    codecs.register_error(HANDLER, nearest)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=HANDLER)
    if codecs.lookup(locale.getpreferredencoding(False)).name != "utf-8":
        os.environ.setdefault("PYTHONUTF8", "1")
