"""Progress line, samples and signals of a quick load."""

import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from seamark.model.plurals import counted
from seamark.platform.process_tree import exit_on_signals
from seamark.report.numbers import number
from seamark.stats.live_rate import LiveRate
from seamark.storage.documents import replacing

SHOW_EVERY_S = 0.5


class LiveLine:
    """Shows the number of recorded requests and their rate on the progress line."""

    def __init__(self, line: Any) -> None:
        self._line = line
        self._rate = LiveRate()
        self._shown_at_s = time.monotonic()
        self.text = ""

    def __call__(self, recorded: Mapping[str, int]) -> None:
        now_s = time.monotonic()
        rate = self._rate.update(now_s, recorded)
        live = "" if rate is None else f", {number(rate)}/s"
        self.text = counted(sum(recorded.values()), "request") + live
        if now_s - self._shown_at_s >= SHOW_EVERY_S:
            self._shown_at_s = now_s
            self._line.update(self.text)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Exit on SIGTERM, SIGHUP and SIGINT, after workers are ended and the folder with samples is removed."""
    try:
        with exit_on_signals(signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            yield
    except SystemExit:
        click.echo("Stopped before the end of the load: there are no metrics, and no samples were kept.", err=True)
        raise


def write_output(samples: Path, output: Path) -> None:
    """Write the samples atomically; into a pipe or device, as a stream."""
    if output.exists() and not output.is_file():
        shutil.copyfile(samples, output)
        return
    with replacing(output) as temporary:
        shutil.copyfile(samples, temporary)
