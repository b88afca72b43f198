"""Circuit breaker: after equal failures of a service in a run, its other trials are not tried.

A failure counts if it came before the first request: of a load with a healthy server, or of a server that never
answered. Three trials or two deployments that fail in the same way, one after the other, are enough: a start may take
minutes. A load that sends requests resets the count, and so does the next run. A trial that was not tried has no
result: the next `bench submit` tries it.

Models are counted apart: three that are not there say nothing of a fourth.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from seamark.dispatch.fencing import EPOCH
from seamark.dispatch.identity import allocation
from seamark.model.service import Value
from seamark.storage.documents import put_away, read, write
from seamark.storage.paths import ScenarioFolder

NOT_TRIED = "not_tried"
"""Category of a trial that was not tried, and of a server that was not started, after repeated failures."""
UNCOUNTED = (NOT_TRIED, "interrupted", "disk_full", "port_taken")
"""Categories that do not count: their cause is not the service."""
OF_DATA = ("dataset_error", "network_error", "filesystem_error")
"""Categories of loads that do not count either: other trials of the service have data of their own."""
MOST = {"trial": 3, "deployment": 2}
CHANGING = re.compile(r"\d+|\S*/\S*")
"""Parts that differ between failures of one cause: numbers and paths."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What failures are counted of: a service, and its model if it has that setting."""

    service: str
    model: str | None = None

    def __str__(self) -> str:
        return f"the service '{self.service}'" + ("" if self.model is None else f" with the model {self.model}")

    def file(self, folder: ScenarioFolder) -> Path:
        """Return the file of its count."""
        part = "" if self.model is None else f"-{sha256(self.model.encode()).hexdigest()[:8]}"
        return folder.deaths(f"{self.service}{part}")


def counted_of(service: str, settings: Mapping[str, Value]) -> Counted:
    """Return what failures of a service with these settings are counted of."""
    model = settings.get("model")
    return Counted(service=service, model=None if model is None else str(model))


@dataclass(frozen=True, kw_only=True)
class Deaths:
    """Failures of a service or model in one run of one cause: `names` are trials or deployments, as `kind` says."""

    run: str
    kind: str
    cause: str
    said: str
    names: tuple[str, ...]


def run_of(environment: Mapping[str, str]) -> str | None:
    """Return the id of this run; None outside of `bench` and of batch jobs, where nothing is counted."""
    return environment.get(EPOCH) or allocation(environment)


def note_death(
    folder: ScenarioFolder, of: Counted, run: str | None, *, kind: str, name: str, said: str, tail: Sequence[str]
) -> None:
    """Count the failure of the trial or deployment (`kind`) `name`; `tail` are the last lines of its log."""
    if run is None:
        return
    cause = CHANGING.sub("#", " ".join([said, *tail[-1:]]))
    known = _known(folder, of, run)
    before = known.names if known is not None and (known.cause, known.kind) == (cause, kind) else ()
    names = tuple(dict.fromkeys((*before, name)))
    write(of.file(folder), Deaths(run=run, kind=kind, cause=cause, said=said, names=names))


def note_life(folder: ScenarioFolder, of: Counted) -> None:
    """Reset the count: a load of the service has sent requests."""
    if of.file(folder).exists():
        put_away(of.file(folder))


def why_not_tried(folder: ScenarioFolder, of: Counted, run: str | None, but: str = "") -> str | None:
    """Return why no more trials of a service or model are tried in this run; None while they are, and for the
    deployment `but` if it is one that failed: its own failure is that of its trials."""
    known = None if run is None else _known(folder, of, run)
    if known is None or len(known.names) < MOST.get(known.kind, 3) or but in known.names:
        return None
    said = known.said.rstrip(".")
    return (
        f"{len(known.names)} {known.kind}s of {of} failed in the same way before their first request: {said}."
        f" `bench submit` tries the rest, `bench retry` also those that failed."
    )


def _known(folder: ScenarioFolder, of: Counted, run: str) -> Deaths | None:
    try:
        known = read(of.file(folder), Deaths)
    except (OSError, ValueError):
        return None
    return known if known.run == run else None
