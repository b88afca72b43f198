"""Progress line, output file and signals of a quick load."""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.report.numbers import number
from seamark.stats.live_rate import LiveRate
from seamark.storage.paths import replacing

SHOW_EVERY_S = 0.5


class LiveLine:
    """Shows the number of recorded requests and their rate on the progress line."""

    def __init__(self, line: Any) -> None:
        self._line = line
        self._rate = LiveRate()
        self._shown_at_s = time.monotonic()

    def __call__(self, recorded: Mapping[str, int]) -> None:
        now_s = time.monotonic()
        rate = self._rate.update(now_s, recorded)
        if now_s - self._shown_at_s >= SHOW_EVERY_S:
            self._shown_at_s = now_s
            live = "" if rate is None else f", {number(rate)}/s"
            self._line.update(counted(sum(recorded.values()), "request") + live)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM, SIGHUP and SIGINT into the exit code that a shell expects, after cleaning up.

    Workers are ended and the temporary folder with its samples is removed first; a second signal does not interrupt
    that.
    """
    every = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    caught = [each for each in every if signal.getsignal(each) is not signal.SIG_IGN]  # nohup ignores SIGHUP

    def end(number: int, frame: FrameType | None) -> NoReturn:
        for each in caught:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, end) for each in caught}
    try:
        yield
    except SystemExit:  # signals stay ignored: this process has nothing left to do
        click.echo("Stopped before the end of the load: there are no figures, and no samples were kept.", err=True)
        raise
    for each, handler in before.items():
        signal.signal(each, handler)


def output_file(given: str | None) -> Path | None:
    """Return the path for the samples. Raises UserError when a file cannot be written there."""
    if given is None:
        return None
    path = Path(given)
    if path.exists() and not path.is_file() and not path.is_dir():
        return path
    if path.is_dir():
        raise UserError(f"--output {given}: a folder. Name a file in it, as {path / 'samples.parquet'}.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise UserError(
            f"--output {given}: no file can be written in {path.parent} ({error.strerror}). Name another folder."
        ) from None


def write_output(samples: Path, output: Path) -> None:
    """Write the samples atomically; into a pipe or device, as a stream."""
    if output.exists() and not output.is_file():
        shutil.copyfile(samples, output)
        return
    with replacing(output) as temporary:
        shutil.copyfile(samples, temporary)
