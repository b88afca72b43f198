"""Permissions of the files that a run writes, and the remedy when they belong to another user."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from seamark.errors import UserError
from seamark.planning.study import Study
from seamark.storage.paths import ScenarioFolder

SHOWN = 3
REMEDY = (
    "Work in a study of your own (`bench init FOLDER`), to which `bench collect --from FOLDER/results` brings what is"
    " finished there; or name folders of your own in `paths` of the site; or have the owner share it:"
    " chmod -R g+w and umask 002."
)


def require_ours(study: Study) -> None:
    """Raise UserError, before anything runs, when a run could not write a file or folder of another user."""
    closed = [path for path in dict.fromkeys(map(_nearest, _written(study))) if not _may(path, os.W_OK)]
    if closed:
        more = f" So are {len(closed) - SHOWN} more." if len(closed) > SHOWN else ""
        raise UserError(*(_closed(path) for path in closed[:SHOWN]), f"{REMEDY}{more}")


def refusal(path: Path) -> str:
    """Return the message for a file or folder to which the system has refused access."""
    found = _nearest(path)
    if found.exists() and not _may(found, os.R_OK):
        return f"{found}: it is {owner(found)}'s, and you may not read it. Have the owner share it: chmod -R g+rX."
    return f"{_closed(found)} {REMEDY}"


def owner(path: Path) -> str:
    """Return the name of a file's owner, or the number if it has no name."""
    return user_named(path.stat().st_uid)


def user_named(uid: int) -> str:
    """Return the name of a user, or the number if it has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _closed(path: Path) -> str:
    return f"{path}: it is {owner(path)}'s, and you may not write there."


def _nearest(path: Path) -> Path:
    """Return the path, or the lowest existing folder above it, which decides whether the path can be created."""
    return next((ancestor for ancestor in (path, *path.absolute().parents) if os.path.lexists(ancestor)), path)


def _written(study: Study) -> Iterator[Path]:
    """Yield the paths that a run writes, folders before their content."""
    name = study.scenario.name
    folder = study.folder(name)
    yield from (study.root / ".snakemake", study.root / ".seamark", study.results, folder.root)
    yield from (folder.root / "logs", study.reports / name, study.reports / name / "figures")
    if study.metrics:
        yield study.metrics / name
    yield from _of_deployments(study, folder)
    for trial in study.plan.trials:
        own = folder.trial(trial.id)
        yield from (own.root, own.log)


def _of_deployments(study: Study, folder: ScenarioFolder) -> Iterator[Path]:
    for deployment in study.plan.deployments:
        own = folder.deployment(deployment.id)
        yield from (own.root, own.runtime)
        if own.runtime.is_dir():
            yield from own.runtime.glob("*.lock")
