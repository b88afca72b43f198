"""Files of one trial: whether its measurement is complete and of which configuration, and files put aside."""

from pathlib import Path

from seamark.model.results.load_record import CommitMark, LoadRecord, SamplesRecord
from seamark.model.server_identity import ServerIdentity, belongs, same_server
from seamark.model.trial import Trial
from seamark.storage.paths import TrialFolder, amend, read, read_json, read_or_none
from seamark.trials.repeated_failures import NOT_TRIED

BROKEN_OFF = "interrupted"
"""Category of a load whose run was ended: nothing is known of its trial."""


def samples_complete(folder: TrialFolder, config_hash: str, server: ServerIdentity | None = None) -> bool:
    """Whether a trial was measured with this very configuration and its samples are all there, or were pruned.

    With `server`, also whether it was measured on that one; a record that knows no server counts as of any.
    """
    mark = commit_mark(folder)
    return mark is not None and complete(folder, mark, config_hash, server)


def commit_mark(folder: TrialFolder) -> CommitMark | None:
    """Return what tells a finished measurement from another one, None where there is none that can be read."""
    record = read_or_none(folder.record, SamplesRecord)
    return record.mark if record else None


def complete(folder: TrialFolder, mark: CommitMark, config_hash: str, server: ServerIdentity | None = None) -> bool:
    """Whether a trial's commit mark is of this configuration and server, and its samples are all there or pruned."""
    try:
        whole = mark.pruned_at is not None or folder.samples.stat().st_size == mark.samples_bytes
    except OSError:
        return False
    return whole and mark.config_hash == config_hash and same_server(mark.server_identity, server)


def stands(folder: TrialFolder, load: LoadRecord, mark: CommitMark | None) -> bool:
    """Whether a trial's load.json is a result: the trial was tried, and the samples of a good one, of which `mark` is
    the commit mark, are all there or pruned."""
    if load.category == NOT_TRIED:
        return False
    return not load.ok or (mark is not None and complete(folder, mark, str(load.config_hash)))


def settled(folder: TrialFolder, trial: Trial, server: ServerIdentity | None = None) -> bool:
    """Whether load.json is the result of this very trial: on `server`, if that is given."""
    try:
        load = read(folder.load, LoadRecord)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    if load.category == BROKEN_OFF or not stands(folder, load, commit_mark(folder) if load.ok else None):
        return False
    return load.config_hash is not None and belongs(load, trial.config_hash, server)


def republished(folder: TrialFolder, trial: Trial, server: ServerIdentity | None = None) -> bool:
    """Whether the trial's samples are all there, of `server` if it is given; load.json is written again then."""
    if not samples_complete(folder, trial.config_hash, server):
        return False
    amend(folder.record, folder.load, republished=True)
    return True


def search_ended(folder: TrialFolder) -> bool:
    """Whether a trial is a search that came to its end, with a result or without one; not one that broke off."""
    try:
        return read_json(folder.search)["outcome"] is not None
    except (OSError, ValueError, KeyError):
        return False


def put_aside(folder: TrialFolder, *, probes: bool = False) -> Path | None:
    """Keep everything that an attempt left under `attempts/N`, so that the trial is measured again; return where.

    The trial's log goes on. Probes of a search that has not come to its end stay, unless `probes`: it goes on with
    them. The commit mark goes first: an interrupted move leaves a trial that is not measured.
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
