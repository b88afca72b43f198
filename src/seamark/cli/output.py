"""What verbs print: JSON documents, progress, warnings of the machine, and text in any locale."""

import codecs
import json
import locale
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from seamark.storage.redaction import visible

if TYPE_CHECKING:
    from rich.console import Console

LINE_S = 2.0
"""Least time between two lines of progress without a terminal."""


def print_json(**document: object) -> None:
    """Print the document of --json, with the version of its form."""
    click.echo(json.dumps({"schema_version": 1, **document}, indent=1))


@contextmanager
def said_beside() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what a report has come to, on standard error: in one place of a terminal, else a
    line every two seconds."""
    console = terminal(stderr=True)
    last_s = time.monotonic()

    def say(text: str) -> None:
        nonlocal last_s
        if console.is_terminal:
            status.update(f"report: {text}")
        elif time.monotonic() - last_s >= LINE_S:
            last_s = time.monotonic()
            click.echo(f"report: {text}", err=True)

    with console.status("report") as status:
        yield say


@contextmanager
def ended_by_signals(said: str) -> Iterator[None]:
    """Exit on SIGTERM, SIGHUP and SIGINT, after what was started is ended and removed, and say so."""
    from seamark.platform.process_tree import exit_on_signals

    try:
        with exit_on_signals(signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            yield
    except SystemExit:
        click.echo(f"Stopped before the end{said}", err=True)
        raise


def warn_of_machine(
    *, several_machines: bool = False, results: Path | None = None, own: int | None = None, quiet: bool = False
) -> float | None:
    """Print a line on standard error for each thing that would spoil the numbers of a load here, unless `quiet`;
    return the ratio of its processors that others use. The process `own` and those below it are no others."""
    from seamark.housekeeping.machine_state import SHORT_S, state_of, warnings_before_load

    state = state_of(interval_s=SHORT_S, own=(own,))
    for line in warnings_before_load(state, several_machines=several_machines, results=results):
        if not quiet:
            click.echo(line, err=True)
    return state.others_ratio


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
    **dict(zip("▁▂▃▄▅▆▇█", "_.,-=+*#", strict=True)),
}
HANDLER = "seamark.nearest"


def nearest(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return the replacement of characters that cannot be encoded, for `codecs.register_error`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(NEAREST.get(letter, "?") for letter in letters), error.end


class Shown:
    """Standard output or error, with control characters of what is written as symbols."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # Rich writes there: colours are its own, and `terminal` shows the rest

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(visible(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def terminal(*, stderr: bool = False) -> "Console":
    """Return a console of Rich, with control characters of what it prints as symbols."""
    from rich.console import Console
    from rich.segment import Segment

    class Terminal(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for part in super().render(renderable, options):
                yield part if part.control else Segment(visible(part.text), part.style)

    return Terminal(stderr=stderr)


def print_in_any_locale() -> None:
    """Make standard output and error accept any text and obey none, whatever the locale, and child processes use
    UTF-8, as files do."""
    codecs.register_error(HANDLER, nearest)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=HANDLER)
        if stream is not None and not isinstance(stream, Shown):
            setattr(sys, name, Shown(stream))
    if codecs.lookup(locale.getpreferredencoding(False)).name != "utf-8":
        os.environ.setdefault("PYTHONUTF8", "1")
