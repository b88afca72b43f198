"""Import of results from another folder or machine: fetched by rsync beside the local ones, then merged.

Trials finished locally stay.
"""

import filecmp
import hashlib
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.errors import SiteError, UserError
from seamark.model.plurals import counted
from seamark.model.results.load_record import LoadRecord, Measurement, SamplesRecord
from seamark.model.trial import Plan, Trial
from seamark.storage.documents import append_log, read
from seamark.storage.paths import DeploymentFolder, ScenarioFolder, TrialFolder
from seamark.telemetry.cut import cut_telemetry
from seamark.trials.trial_files import (
    commit_mark,
    complete,
    put_aside,
    republished,
    settled,
)

RUN_FILES = (".parts", ".keeper", ".job.lock", ".*.tmp", "endpoint.json", "warmup.json", "waiting.json")
"""Files that only matter to a run at the source."""
DERIVED = (
    *("plan.json", "scenario.yaml", "summary.*", "logs"),
    *(f"*--*/{name}" for name in ("metrics.*", "series.csv", "histogram.json", "telemetry.*")),
)
"""Files of a scenario that are derived locally."""
HOME = re.compile(r"^([^/:]+:)~/")
"""Home folder of a remote machine; rsync starts there by itself."""
VANISHED = 24
NOT_THERE = 23


def fetch(source: str, scenario: str, results: Path) -> Path:
    """Copy a scenario from `source`, a folder of results as rsync names it; return the root of the copy.

    `results` is the local results folder, which holds the copy: an interrupted transfer resumes, and files equal to
    local ones are linked, not sent. Calibrations of the nodes are included. Raises SiteError when rsync is missing or
    fails, and UserError for a missing source.
    """
    if shutil.which("rsync") is None:
        raise SiteError(
            "bench collect --from: rsync is not on PATH. Install it here, and on the machine of the results."
        )
    source = HOME.sub(r"\1", source.rstrip("/") or "/")
    _require_another(source, scenario, results)
    copy = results / ".incoming" / hashlib.sha256(f"{source}/{scenario}".encode()).hexdigest()[:12]
    copy.mkdir(parents=True, exist_ok=True)
    rules = [*(f"--exclude={name}" for name in RUN_FILES), *(f"--exclude=/{scenario}/{name}" for name in DERIVED)]
    rules += [f"--include=/{scenario}/***", "--include=/.calibration/***", "--exclude=*"]
    # the names go to the other side as data, since its shell would read them as its own
    # -rlpt: neither owners nor pipes and devices
    words = ["rsync", "--protect-args", "-rlpt", "--partial", "--delete", *rules]
    _run([*words, f"--link-dest={results.resolve()}", "--", f"{source}/", f"{copy}/"], source)
    if not (copy / scenario).is_dir():
        forget(copy)
        raise UserError(_not_there(f"{source}/{scenario}"))
    return copy


def forget(copy: Path) -> None:
    """Remove a copy after its files are merged or refused."""
    shutil.rmtree(copy, ignore_errors=True)
    with suppress(OSError):
        copy.parent.rmdir()


def _require_another(source: str, scenario: str, results: Path) -> None:
    """Raise UserError for a missing local folder, or the study's own. A host name has no slash before its colon."""
    if ":" in source.partition("/")[0]:
        return
    if not (Path(source) / scenario).is_dir():
        raise UserError(_not_there(f"{source}/{scenario}"))
    if Path(source).resolve() == results.resolve():
        raise UserError(
            f"{source}: these are the results of this study. `bench collect` without --from sums them up."
        )


def _run(words: list[str], source: str) -> None:
    done = subprocess.run(
        words, stderr=subprocess.PIPE, text=True, errors="replace", check=False, env=os.environ | {"LC_ALL": "C"}
    )
    if done.returncode in (0, VANISHED):
        return
    if done.returncode == NOT_THERE and "change_dir" in done.stderr:
        raise UserError(_not_there(source))
    said = " ".join(done.stderr.split())[-500:]
    remedy = (
        "Install it there as well."
        if "not found" in said
        else "Transferred files are kept; repeat the command to resume."
    )
    raise SiteError(f"{source}: rsync ends with {done.returncode}. {remedy} Its error: {said}")


def _not_there(what: str) -> str:
    return (
        f"{what}: no such folder. --from names a folder of results, such as login.example.org:my-study/results, and"
        " -c the scenario in it."
    )


CALIBRATIONS = ".calibration"
Prefer = Literal["here", "there"]
MOST_NAMED = 10
NOT_RECORDED = "server not recorded"


@dataclass(frozen=True, kw_only=True)
class Merged:
    """Fetched trials: `taken` were merged, `kept` were finished locally, `unfinished` are unfinished at the source.

    `places` counts the merged trials by where they were measured.
    """

    taken: tuple[str, ...]
    places: Mapping[str, int]
    kept: tuple[str, ...]
    unfinished: tuple[str, ...]


def merge(
    plan: Plan, theirs: ScenarioFolder, ours: ScenarioFolder, source: str, prefer: Prefer | None = None
) -> Merged:
    """Merge every trial that is finished or failed at the source and not finished locally, of any server.

    A trial counts as finished if its samples are whole and have the configuration of the plan; a trial with missing
    files is unfinished. Raises UserError, before any change, for trials measured both here and there, also with
    another local configuration, unless `prefer` is given; local trials are then set aside, not lost.
    """
    there = {trial.id: _outcome(theirs.trial(trial.id), trial) for trial in plan.trials}
    here = {trial.id: _outcome(ours.trial(trial.id), trial) for trial in plan.trials}
    twice = [
        trial.id
        for trial in plan.trials
        if there[trial.id] == "ok"
        and (
            (here[trial.id] == "ok" and not _same(ours.trial(trial.id), theirs.trial(trial.id)))
            or _otherwise(ours.trial(trial.id), trial)
        )
    ]
    if twice and prefer is None:
        raise UserError(*_conflicts(twice, theirs, ours, source))
    wanted = [
        trial
        for trial in plan.trials
        if (there[trial.id] == "ok" and here[trial.id] != "ok" and trial.id not in twice)
        or (there[trial.id] == "failed" and here[trial.id] is None and not _otherwise(ours.trial(trial.id), trial))
        or (trial.id in twice and prefer == "there")
    ]
    for trial in wanted:
        _take(trial, theirs, ours.trial(trial.id), source)
    kept_deployments = {trial.deployment for trial in plan.trials if here[trial.id] == "ok" and trial not in wanted}
    for deployment in {trial.deployment for trial in wanted} - kept_deployments:
        _take_deployment(theirs.deployment(deployment), ours.deployment(deployment))
    taken = tuple(trial.id for trial in wanted)
    return Merged(
        taken=taken,
        places=Counter(_place(ours.trial(trial.id)) for trial in wanted),
        kept=tuple(name for name, outcome in there.items() if outcome and name not in taken),
        unfinished=tuple(
            name for name, outcome in there.items() if outcome is None and theirs.trial(name).root.exists()
        ),
    )


def _outcome(folder: TrialFolder, trial: Trial) -> Literal["ok", "failed"] | None:
    """Return the outcome of a trial in a folder; None if unknown or incomplete."""
    if complete(folder, commit_mark(folder), trial.config_hash):
        return "ok" if _readable(folder) else None
    return "failed" if settled(folder, trial) else None


def _otherwise(folder: TrialFolder, trial: Trial) -> bool:
    """Return whether a whole measurement of the trial with another configuration exists."""
    mark = commit_mark(folder)
    return mark is not None and mark.config_hash != trial.config_hash and complete(folder, mark, mark.config_hash)


def _place(folder: TrialFolder) -> str:
    """Return where a trial was measured."""
    for path in (folder.load, folder.record):
        try:
            known = read(path, Measurement).server_identity
        except (OSError, ValueError):
            continue
        return NOT_RECORDED if known is None else known.place
    return NOT_RECORDED


def _readable(folder: TrialFolder) -> bool:
    """Return whether samples are complete and of the configuration in their record: of a search that of its best
    probe."""
    record = read(folder.record, SamplesRecord)
    try:
        open_samples(folder.samples, record.config_hash if record.probe is None else record.probe.config_hash)
    except DamagedError:
        return False
    return True


def _same(ours: TrialFolder, theirs: TrialFolder) -> bool:
    """Return whether two finished trials are the same measurement."""
    one, other = ours.samples, theirs.samples
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)


def _conflicts(twice: list[str], theirs: ScenarioFolder, ours: ScenarioFolder, source: str) -> Iterable[str]:
    scenario = ours.root.name
    for name in twice[:MOST_NAMED]:
        at = [
            f"{read(folder.record, SamplesRecord).finished_at}, {_place(folder)}"
            for folder in (ours.trial(name), theirs.trial(name))
        ]
        yield (
            f"{name}: measured twice, in {ours.root / name} ({at[0]}) and in {source}/{scenario}/{name} ({at[1]})."
        )
    yield (
        f"{counted(len(twice), 'trial')} measured here and there. Nothing was changed. Choose with --prefer here, or"
        " --prefer there, which moves the local ones into 'attempts'."
    )


def _take(trial: Trial, theirs: ScenarioFolder, folder: TrialFolder, source: str) -> None:
    """Move a trial's files here, those that mark it as finished last."""
    came = theirs.trial(trial.id)
    if not settled(came, trial):
        republished(came, trial)
    cut_telemetry(
        theirs.deployment(trial.deployment).telemetry, came.client_telemetry, read(came.load, LoadRecord), came
    )
    shutil.rmtree(folder.parts, ignore_errors=True)
    put_aside(folder, probes=True)
    marks = (came.record, came.load)
    for path in sorted(path for path in came.root.rglob("*") if path.is_file() and path not in (*marks, came.log)):
        _move(path, folder.root / _numbered(path.relative_to(came.root), folder))
    if came.log.exists():
        with folder.log.open("a", encoding="utf-8") as log:
            log.write(came.log.read_text(encoding="utf-8", errors="replace"))
    append_log(folder.log, trial.trial_id, "collected", source=source)
    for mark in marks:
        if mark.exists():
            _move(mark, folder.root / mark.name)


def take_calibrations(copy: Path, results: Path) -> None:
    """Import calibrations of nodes that are missing locally: verdicts of trials need them."""
    for path in sorted((copy / CALIBRATIONS).glob("*.json")):
        if not (results / CALIBRATIONS / path.name).exists():
            _move(path, results / CALIBRATIONS / path.name)


def _numbered(path: Path, folder: TrialFolder) -> Path:
    """Return the local path of a fetched file: fetched attempts get names of their own."""
    if path.parts[0] != folder.attempts.name:
        return path
    return Path(path.parts[0], f"there-{path.parts[1]}", *path.parts[2:])


def _take_deployment(theirs: DeploymentFolder, ours: DeploymentFolder) -> None:
    for path in sorted(theirs.root.glob("*"), key=lambda path: path == theirs.record):
        if path.is_file():
            _move(path, ours.root / path.name)
    for member in sorted(theirs.members.glob("*/")):
        _take_deployment(DeploymentFolder(root=member), ours.member(member.name))


def _move(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
