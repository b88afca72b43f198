"""Files of one trial: completeness and configuration of its measurement, and files put aside."""

from pathlib import Path
from statistics import median

from seamark.model.failure_categories import INTERRUPTED
from seamark.model.results.load_record import LoadRecord, SamplesRecord
from seamark.model.results.search_record import SearchRecord
from seamark.model.server_identity import ServerRecord, belongs, same_server
from seamark.model.trial import Plan, Trial
from seamark.storage.documents import amend, read, read_or_none
from seamark.storage.paths import ScenarioFolder, TrialFolder
from seamark.trials.repeated_failures import NOT_TRIED


def commit_mark(folder: TrialFolder) -> SamplesRecord | None:
    """Return the commit mark of a finished measurement, None without a readable one."""
    return read_or_none(folder.record, SamplesRecord)


def complete(
    folder: TrialFolder, mark: SamplesRecord | None, config_hash: str, server: ServerRecord | None = None
) -> bool:
    """Return whether a commit mark is of this configuration, and its samples are complete or pruned. The samples of a
    trial with parties are theirs.

    With `server`, also whether it is of that one; a mark without a server matches any.
    """
    if mark is None or mark.config_hash != config_hash or not same_server(mark.server_identity, server):
        return False
    if mark.parties:
        parties = (folder.party(name) for name in mark.parties)
        return all(complete(party, commit_mark(party), config_hash) for party in parties)
    try:
        return mark.pruned_at is not None or (
            folder.samples.stat().st_size == mark.samples_bytes
            and (mark.executions_bytes is None or folder.executions.stat().st_size == mark.executions_bytes)
        )
    except OSError:
        return False


def stands(folder: TrialFolder, load: LoadRecord, mark: SamplesRecord | None) -> bool:
    """Return whether a load.json is a result: the trial was tried and not interrupted, and the samples of a good one,
    by its commit mark, are complete or pruned."""
    if load.category in (NOT_TRIED, INTERRUPTED):
        return False
    return not load.ok or complete(folder, mark, str(load.config_hash))


def settled(folder: TrialFolder, trial: Trial, server: ServerRecord | None = None) -> bool:
    """Return whether load.json is a result of this trial's configuration, and on `server` if given."""
    try:
        load = read(folder.load, LoadRecord)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    if not stands(folder, load, commit_mark(folder) if load.ok else None):
        return False
    return load.config_hash is not None and belongs(load, trial.config_hash, server)


def republished(folder: TrialFolder, trial: Trial, server: ServerRecord | None = None) -> bool:
    """Write load.json again if the trial's samples are complete, on `server` if given; return whether they are."""
    if not complete(folder, commit_mark(folder), trial.config_hash, server):
        return False
    amend(folder.record, folder.load, SamplesRecord, republished=True)
    return True


def finite_lengths_s(plan: Plan, results: ScenarioFolder) -> dict[str, float]:
    """Return the median length of the finite loads and programs that were run, by treatment, in real time."""
    lengths_s: dict[str, list[float]] = {}
    for trial in plan.trials:
        load = read_or_none(results.trial(trial.id).load, LoadRecord) if trial.load.finite else None
        length_s = None if load is None or not load.ok else _length_s(load)
        if length_s is not None:
            lengths_s.setdefault(trial.treatment, []).append(length_s)
    return {treatment: median(values) for treatment, values in lengths_s.items()}


def _length_s(load: LoadRecord) -> float | None:
    """Return the real time of a load, None where it is not known; `duration_s` of a program is its limit."""
    if load.kind != "program":
        return load.duration_s
    return max((worker.wall_s for worker in load.workers if worker.wall_s is not None), default=None)


def search_ended(folder: TrialFolder) -> bool:
    """Return whether a trial is a search that has ended, with or without a result."""
    search = read_or_none(folder.search, SearchRecord)
    return search is not None and search.outcome is not None


def put_aside(folder: TrialFolder, *, probes: bool = False) -> Path | None:
    """Move the files of an attempt to `attempts/N`, so that the trial is measured again; return that folder.

    The trial's log stays. Probes of an unfinished search stay too, unless `probes`: the search continues with them.
    The commit mark moves first: an interrupted move leaves a trial that is not measured.
    """
    stays = {folder.attempts, folder.log, folder.planned}
    if not probes and not search_ended(folder):
        stays |= {folder.search, folder.probes}
    kept = [path for path in folder.root.glob("[!.]*") if path not in stays]
    if all(path == folder.config for path in kept):
        return None
    target = folder.attempts / str(1 + max(map(_number, folder.attempts.glob("*")), default=0))
    target.mkdir(parents=True)
    for path in sorted(kept, key=lambda path: path not in (folder.record, folder.load)):
        path.rename(target / path.name)
    return target


def _number(attempt: Path) -> int:
    return int(attempt.name) if attempt.name.isdigit() else 0
