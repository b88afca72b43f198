"""Paths of a study that cannot be used, found before anything runs: a tool of the site would misread them, or what a
setting names is not on this machine."""

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from os.path import expandvars
from pathlib import Path

from seamark.config.yaml_source import printable
from seamark.dispatch.dispatcher import leaves_this_machine
from seamark.errors import Mistake, UserError
from seamark.load.driver import hooks_of
from seamark.model.parties import PARTIES
from seamark.model.scenario import filled
from seamark.model.trial import Trial
from seamark.planning.driver_check import one_of_each_kind
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


def missing_here(study: Study) -> list[Mistake]:
    """Return what settings name that this machine does not have: folders of models and data, programs, devices.
    Nothing is said where servers run elsewhere, or in containers, which have files of their own."""
    site = study.site
    if site.in_images or not site.starts_servers or site.images.jobs or leaves_this_machine(site):
        return []
    mistakes = []
    starts = study.plan.starts
    for trial in one_of_each_kind([trial for trial in study.plan.measured if not starts[trial.deployment].external]):
        service, lacking = study.services[trial.service], None
        with suppress(Exception):  # a library of the driver is in its own environment alone
            lacking = hooks_of(service.driver).lacking
        if lacking is not None and not (service.load == "program" and service.environment):
            mistakes += [
                Mistake.at(_place(study, trial, name), text, "missing")
                for name, text in lacking(filled(trial.settings))
            ]
    return list(dict.fromkeys(mistakes))


def _place(study: Study, trial: Trial, name: str) -> str:
    """Return the line of a setting in the scenario, else its name."""
    lines = study.scenario.lines
    paths = [
        workload.path
        for workload in study.scenario.workloads
        if workload.name == trial.group.partition(".")[0] and workload.service in (trial.service, PARTIES.name)
    ]
    own = [f"{path}.per_service.{trial.service}" for path in paths]
    places = [f"{path}.{name}" for path in (*own, *paths, "defaults")]
    return next((lines[key] for key in places if key in lines), f"{study.scenario_path}: {name}")


def _mistakes(study: Study) -> Iterator[str]:
    site, paths = study.site, list(_paths(study))
    for label, path in paths:
        if wrong := "".join(letter for letter in path if not letter.isprintable()):
            yield _line(label, path, wrong[0], "programs of servers, such as initdb, refuse it")
    for label, path in _named_folders(study):
        yield from _violations(BRACE, label, path, "Snakemake takes it for a wildcard")
    profile = study.file(f"profiles/{site.profile}")
    if not profile.is_relative_to(study.root):
        yield from _violations(
            PATTERN, "the folder of seamark's profiles", str(profile), "Snakemake takes it for a pattern"
        )
    if leaves_this_machine(site) or site.images.jobs:
        for label, path in (*paths, *_shell_words(study)):
            yield from _violations(BATCH, label, path, "the shell lines of batch jobs and containers do not quote it")
    elif site.in_images:
        for label, path in paths:
            yield from _violations(BIND, label, path, "Apptainer separates binds there")
    if site.in_images or site.images.jobs:
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
    for label, path in (
        *_named_folders(study),
        (f"paths.scratch of site '{study.site_name}'", study.site.paths.scratch),
    ):
        yield label, UNSET.sub("", str(Path(expandvars(path)).expanduser()))


def _shell_words(study: Study) -> Iterator[Named]:
    """Yield the other values in the shell lines of batch jobs."""
    yield "the scenario's file", str(study.scenario_path)
    yield "the site's name", study.site_name
    yield "the interpreter's path", sys.executable


def _violations(wrong: re.Pattern[str], place: str, path: str, why: str) -> Iterator[str]:
    if match := wrong.search(path):
        yield _line(place, path, match[0][-1], why)


def _line(place: str, path: str, letter: str, why: str) -> str:
    reason = f"it contains '{printable(letter)}'; {why}"
    return f"{place}, '{printable(path)}', cannot be used: {reason}. Choose another name."
