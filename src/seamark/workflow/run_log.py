"""What the log of a run's Snakemake says of jobs that broke off."""

import re
import shlex
import signal
from contextlib import suppress
from pathlib import Path

BROKEN_JOB = re.compile(
    r"^Command '[^\n]*?> ([^\n>]+) 2>&1' (?:died with <Signals\.(\w+)|returned non-zero exit status (\d+))",
    re.MULTILINE,
)
SHELLS_SIGNAL = 128
"""A shell ends with this plus the number of the signal that ended its command."""


def broken_jobs(text: str, root: Path) -> list[str]:
    """Return a line for each job that broke off: a killed one with its signal, another with the last line of its log.

    `text` is Snakemake's output, `root` the study's folder, which the paths in it are relative to. Empty where no job
    broke off, or on another machine.
    """
    return list(dict.fromkeys(_line(root, *match.groups()) for match in BROKEN_JOB.finditer(text)))


def _line(root: Path, log: str, killed_by: str | None, status: str | None) -> str:
    path = Path(shlex.split(log)[0])
    rule = path.stem if path.parent.name == "logs" else path.parent.name
    who = rule if path.stem == rule else f"{path.stem}: {rule}"
    code = int(status or 0)
    with suppress(ValueError):
        killed_by = killed_by or signal.Signals(code - SHELLS_SIGNAL).name
    if killed_by:
        return f"{who} was killed ({killed_by})."
    with suppress(OSError):
        lines = (root / path).read_text(encoding="utf-8", errors="replace").split("\n")
        if last := next((line.strip() for line in reversed(lines) if line.strip()), None):
            return f"{who} ended with exit code {code}. Last line of {path}: {last}"
    return f"{who} ended with exit code {code}."
