"""Runs of scenarios: where they lie, and how a measured one is set aside, with a note in run.json, so that the next
one lies beside it."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from seamark.errors import UserError
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.values import Moment, Word
from seamark.storage.documents import read_or_none, write
from seamark.storage.paths import HISTORY, ScenarioFolder, TrialFolder

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
COMMIT = re.compile(r"[\w./+-]{1,64}", re.ASCII)
SHORT = 8
"""Digits of a commit where it is shown."""
REPORT = "report"


@dataclass(frozen=True, kw_only=True)
class KeptRun:
    """A run of a scenario under a name of its own. `commit` is that of the measured service, as its user gave it."""

    schema_version: int = 1
    scenario: str
    run: str
    kept_at: Moment = None
    commit: Word = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measurement of a scenario: its results folder, and its name in the history.

    `kept` tells a run that was set aside from the one that `bench submit` fills; `note` is its run.json, if any.
    """

    scenario: str
    name: str
    folder: ScenarioFolder
    kept: bool = False
    note: KeptRun | None = None

    def trials(self) -> Iterator[TrialFolder]:
        """Return the folders of all that have metrics."""
        return self.folder.trials_with("metrics.json")


def runs_in(results: Path, name: str) -> Iterator[Run]:
    """Yield the runs of a results folder: those set aside, by their names, then the present one of each scenario as
    `name`."""
    for folder in sorted(results.glob(f"{HISTORY}/*/*/")):
        run = _run(folder, scenario=folder.parent.name, name=folder.name)
        if run is not None:
            yield run
    for folder in sorted(results.glob("*/")):
        run = _run(folder, scenario=folder.name, name=name)
        if run is not None and run.scenario != HISTORY and not run.scenario.startswith("."):
            yield run


def _run(folder: Path, *, scenario: str, name: str) -> Run | None:
    run = Run(scenario=scenario, name=name, folder=ScenarioFolder(root=folder))
    if next(run.trials(), None) is None:
        return None
    is_kept = folder.parent.parent.name == HISTORY
    return replace(run, kept=True, note=read_or_none(run.folder.run_note, KeptRun)) if is_kept else run


def keep(results: Path, scenario: str, *, name: str | None, commit: str | None, page: Path | None = None) -> Run:
    """Set the present run of a scenario aside as results/history/SCENARIO/NAME; return it where it lies now.

    The folder is renamed in one step, so that a crash leaves it whole in one of the two places, and an existing run
    is never written over. `page`, the folder of its report, is copied beside it. Without a name the run is called by
    the time of its first load and its commit. Raises UserError for a scenario without measured trials, a name that is
    taken, or one that cannot name a folder.
    """
    found = {run.scenario: run for run in runs_in(results, "present") if run.folder.root.parent == results}
    if scenario == HISTORY:
        raise UserError(f"{scenario}: results/{HISTORY} holds kept runs. Give the scenario another name.")
    if scenario not in found:
        raise UserError(
            f"bench keep: no trial of {scenario} is measured in {results}. `bench submit` measures its trials."
        )
    if commit is not None and not COMMIT.fullmatch(commit):
        raise UserError(f"--commit '{commit}': is no commit. Give up to 64 letters and digits, as git prints it.")
    present = found[scenario].folder
    name = _default_name(found[scenario], commit) if name is None else name
    if not RUN_NAME.fullmatch(name):
        raise UserError(
            f"bench keep: '{name}' cannot name a run. Use up to 64 letters, digits, '.', '_' and '-', and begin with"
            " a letter or digit."
        )
    target = results / HISTORY / scenario / name
    if os.path.lexists(target):
        raise UserError(
            f"bench keep: a run '{name}' of {scenario} is there already ({target}). Choose another name with --name;"
            " nothing was moved."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    note = KeptRun(
        scenario=scenario, run=name, commit=commit, kept_at=datetime.now(UTC).isoformat(timespec="seconds")
    )
    write(present.run_note, note)
    try:
        present.root.rename(target)  # fails if another process has just made a run of this name
    except OSError as cause:
        present.run_note.unlink(missing_ok=True)
        raise UserError(f"bench keep: {present.root} cannot be moved to {target}: {cause.strerror}.") from cause
    if page is not None and page.is_dir():
        with suppress(OSError):
            shutil.copytree(page, target / REPORT)
    return Run(scenario=scenario, name=name, folder=ScenarioFolder(root=target), kept=True, note=note)


def _default_name(run: Run, commit: str | None) -> str:
    """Return `2026-11-23-151232`, the time in UTC of the first load, and the beginning of a given commit."""
    loads = (read_or_none(folder.load, LoadRecord) for folder in run.trials())
    starts = [datetime.fromisoformat(load.started_at) for load in loads if load and load.started_at]
    first = min(starts, default=datetime.now(UTC)).astimezone(UTC)
    short = re.sub(r"[^A-Za-z0-9._-]", "-", commit)[:SHORT] if commit else ""
    return f"{first:%Y-%m-%d-%H%M%S}{f'-{short}' if short else ''}"
