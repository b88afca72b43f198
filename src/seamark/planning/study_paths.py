"""Paths of a study that a tool of its site would misread: they are refused before anything runs."""

import re
import sys
from collections.abc import Iterator
from os.path import expandvars
from pathlib import Path

from seamark.dispatch.dispatcher import leaves_this_machine
from seamark.errors import UserError
from seamark.planning.study import Study

BATCH = re.compile(r"[^\w./@+=~ -]")
"""Snakemake puts paths between Python quotes in the shell lines of batch jobs and containers."""
BIND = re.compile(r"[:,\\]")
BRACE = re.compile(r"[{}]")
PATTERN = re.compile(r"[*?[]")
SPLIT = re.compile(r",|(?:.*?:){3}")
UNSET = re.compile(r"\$\{?\w+\}?")
"""A variable that is not set here may be set where the run happens; a run without it is refused there."""
Named = tuple[str, str]
"""What a path is, and the path."""


def require_paths(study: Study) -> None:
    """Raise UserError with a line for each path that cannot be used on the study's site."""
    mistakes = list(dict.fromkeys(_mistakes(study)))
    if mistakes:
        raise UserError(*mistakes)


def _mistakes(study: Study) -> Iterator[str]:
    site, paths = study.site, list(_paths(study))
    for place, path in paths:
        if wrong := "".join(letter for letter in path if not letter.isprintable()):
            yield _line(place, path, wrong[0], "programs of servers, such as initdb, refuse it")
    for place, path in _named_folders(study):
        yield from _violations(BRACE, place, path, "Snakemake takes it for a wildcard")
    profile = study.file(f"profiles/{site.profile}")
    if not profile.is_relative_to(study.root):
        yield from _violations(
            PATTERN, "the folder of seamark's profiles", str(profile), "Snakemake takes it for a pattern"
        )
    if leaves_this_machine(site) or site.images.jobs:
        for place, path in (*paths, *_shell_words(study)):
            yield from _violations(BATCH, place, path, "the shell lines of batch jobs and containers do not quote it")
    elif site.runtime == "apptainer":
        for place, path in paths:
            yield from _violations(BIND, place, path, "Apptainer separates binds there")
    if site.runtime == "apptainer" or site.images.jobs:
        for bind in map(expandvars, study.plan.binds):
            yield from _violations(SPLIT, f"a bind of {study.scenario_path}", bind, "Apptainer separates binds there")


def _named_folders(study: Study) -> Iterator[Named]:
    """Yield the folders that a site names for the output of rules."""
    for name in ("results", "reports", "metrics"):
        if path := getattr(study.site.paths, name):
            yield f"paths.{name} of site '{study.site_name}'", path


def _paths(study: Study) -> Iterator[Named]:
    """Yield the study's folder, and those that its site names."""
    yield "the study's folder", str(study.root)
    for place, path in (
        *_named_folders(study),
        (f"paths.scratch of site '{study.site_name}'", study.site.paths.scratch),
    ):
        yield place, UNSET.sub("", str(Path(expandvars(path)).expanduser()))


def _shell_words(study: Study) -> Iterator[Named]:
    """Yield the other values in the shell lines of batch jobs."""
    yield "the scenario's file", str(study.scenario_path)
    yield "the site's name", study.site_name
    yield "the interpreter's path", sys.executable


def _violations(wrong: re.Pattern[str], place: str, path: str, why: str) -> Iterator[str]:
    if match := wrong.search(path):
        yield _line(place, path, match[0][-1], why)


def _line(place: str, path: str, letter: str, why: str) -> str:
    reason = f"it contains '{_printable(letter)}'; {why}"
    return f"{place}, '{_printable(path)}', cannot be used: {reason}. Choose another name."


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
