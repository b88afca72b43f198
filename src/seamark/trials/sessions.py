"""Sessions of a finite load: what a killed or interrupted load has done, so that the next one does the rest only."""

import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seamark.load.coordinator.coordinator import EPOCH, LoadJob, LoadOutcome
from seamark.load.workers.records import read_segment
from seamark.load.workers.segments import PlacedSegment
from seamark.load.workers.work_list import as_text, items_in
from seamark.model.results.load_record import LoadRecord, LoadSession, Measurement
from seamark.model.sample import Failure
from seamark.model.server_identity import ServerRecord, belongs
from seamark.model.trial import Trial
from seamark.storage.documents import read_or_none, write
from seamark.storage.paths import TrialFolder

GOES_ON = ("interrupted", "client_died", "disk_full")
"""Categories of a failed finite load after which the next one does only what is left."""
SHORTEST_S = 0.1
"""Least time limit of a session: one that is out of time ends as such, and not for a wrong setting."""


@dataclass(frozen=True, kw_only=True)
class RecordedSession:
    """What one session has left in its folder: its start, its length, and the items that it has done. `ended`: it is
    the last one, whose requests all count, also those that were cancelled."""

    folder: Path
    epoch_unix_ns: int
    length_ns: int
    done: npt.NDArray[np.bool_]
    ended: bool = False

    @property
    def items(self) -> int:
        """Number of items that it has done."""
        return int(self.done.sum())

    def segments(self, suffix: str) -> list[Path]:
        """Return its files of samples, chunks or replies."""
        return sorted(self.folder.glob(f"worker-*.{suffix}"))


@dataclass(frozen=True, kw_only=True)
class RecordedSessions:
    """The sessions of a finite load so far."""

    root: Path
    mark: Measurement
    made: tuple[RecordedSession, ...] = ()
    independent: bool = False

    @staticmethod
    def of(
        folder: TrialFolder, trial: Trial, server: ServerRecord, *, independent: bool = False
    ) -> "RecordedSessions":
        """Return the sessions that a trial's unfinished load has left. Those of another configuration or server, and
        those that have done nothing, are removed.

        Where items are `independent` of each other, as questions are, those that lost their server are left to do.
        """
        found = []
        for path in sorted(folder.sessions.glob("[0-9]*"), key=lambda path: int(path.name)):
            mark = read_or_none(path / MARK, Measurement)
            usable = trial.load.finite and mark is not None and mark.config_hash is not None
            unanswered = (DYING if (path / SERVER_DIED).exists() else CUT_OFF) if independent else ()
            known = usable and mark and belongs(mark, trial.config_hash, server)
            session = _session(path, unanswered) if known else None
            if session is None:
                shutil.rmtree(path, ignore_errors=True)
            else:
                found.append(session)
        mark = Measurement(config_hash=trial.config_hash, server_identity=server.brief())
        return RecordedSessions(root=folder.sessions, mark=mark, made=tuple(found), independent=independent)

    def begin(self) -> Path:
        """Make the folder of the next session; return it."""
        last = max((int(session.folder.name) for session in self.made), default=0)
        folder = self.root / str(last + 1)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write(folder / MARK, self.mark)
        return folder

    def rest_of(self, job: LoadJob) -> LoadJob:
        """Return the load without the items that are done, and with the time limit that is left."""
        if not self.made:
            return job
        left_s = max(SHORTEST_S, job.load.length_s - self.length_ns / 1e9)
        return replace(job, done=as_text(self.done), settings={**job.settings, "limit_s": left_s})

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which items are done, up to the last of them."""
        size = max((session.done.size for session in self.made), default=0)
        done = np.zeros(size, dtype=np.bool_)
        for session in self.made:
            done[: session.done.size] |= session.done
        return done

    @property
    def length_ns(self) -> int:
        """Time in which a session ran."""
        return sum(session.length_ns for session in self.made)

    def placed(self, suffix: str) -> list[PlacedSegment]:
        """Return the samples, chunks or replies of all sessions, times on one axis."""
        return [
            PlacedSegment(path=path, offset_ns=offset_ns, only=None if session.ended else session.done)
            for session, offset_ns in self._with_offsets()
            for path in session.segments(suffix)
        ]

    def with_outcome(self, outcome: LoadOutcome, folder: Path) -> "RecordedSessions":
        """Return these sessions and the one that has ended in `folder`, with all of its requests.

        Earlier sessions have their items only, once it is known how many there are: an index beyond is an item that
        was sent again (`keep_busy`), under an index that this session has used too.
        """
        nothing = RecordedSession(folder=folder, epoch_unix_ns=outcome.epoch_unix_ns, length_ns=0, done=NOTHING)
        made = (*self.made, replace(_session(folder) or nothing, ended=True))
        return replace(self, made=tuple(replace(session, done=session.done[: outcome.items]) for session in made))

    @property
    def clients(self) -> list[Path]:
        """Files with the client's telemetry, in order of time."""
        return [session.folder / "client.csv" for session in self.made]

    def counted(self, record: LoadRecord, outcome: LoadOutcome) -> LoadRecord:
        """Return a load's record, which has the counters of its last session, with those of all sessions."""
        before = sum(session.items for session in self.made[:-1])
        began = datetime.fromtimestamp(self.made[0].epoch_unix_ns / 1e9, UTC)
        return replace(
            record,
            epoch_unix_ns=self.made[0].epoch_unix_ns,
            started_at=began.isoformat(timespec="milliseconds") if len(self.made) > 1 else record.started_at,
            duration_s=self.length_ns / 1e9,
            scheduled=outcome.scheduled + before,
            sent=outcome.sent + before,
            completed=outcome.completed + before,
            items=outcome.items,
            sessions=self.record(),
        )

    def record(self) -> tuple[LoadSession, ...]:
        """Return the sessions as load.json has them."""
        return tuple(
            LoadSession(
                epoch_unix_ns=session.epoch_unix_ns,
                offset_s=offset_ns / 1e9,
                length_s=session.length_ns / 1e9,
                items=session.items,
            )
            for session, offset_ns in self._with_offsets()
        )

    def _with_offsets(self) -> Iterator[tuple[RecordedSession, int]]:
        """Yield the sessions with their places on one time axis, on which they follow each other without a gap."""
        offsets_ns = accumulate((session.length_ns for session in self.made), initial=0)
        return zip(self.made, offsets_ns, strict=False)

    def keep_for_next(self, category: str | None, parts: Path) -> bool:
        """Return whether the next load does only what is left after a failure of that `category` in `parts`, and mark
        a session there whose server died.

        After the death of a server that is so for independent items: what a new server holds does not matter to them.
        """
        if category == "server_died" and self.independent and parts.is_dir():
            (parts / SERVER_DIED).touch()
            return True
        return category in GOES_ON


MARK = "session.json"
"""Configuration and server of a session, in its folder."""
SERVER_DIED = "server_died"
"""File in the folder of a session whose server ended under it."""
CUT_OFF = (Failure.CONNECT, Failure.RESET, Failure.PROTOCOL)
"""Connection failures. In an interrupted load they do not count as results: the server may have ended."""
DYING = (*CUT_OFF, Failure.SERVER_ERROR)
"""The same where the server died, which may have answered so before its end."""
NOTHING = np.zeros(0, dtype=np.bool_)


def _session(folder: Path, unanswered: Collection[Failure] = ()) -> RecordedSession | None:
    """Read a session from its files; None if it has done nothing. Requests with a failure that is `unanswered` are
    left to the next one."""
    try:
        epoch_unix_ns = int((folder / EPOCH).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    done, length_ns = NOTHING, 0
    for path in sorted(folder.glob("worker-*.samples")):
        with suppress(ValueError):  # cut before its first record
            items = items_in(path, unanswered=unanswered)
            done = np.pad(done, (0, max(0, items.size - done.size)))
            done[: items.size] |= items
            length_ns = max([length_ns, *(int(records["last_ns"].max()) for records in read_segment(path))])
    if not done.any():
        return None
    return RecordedSession(folder=folder, epoch_unix_ns=epoch_unix_ns, length_ns=length_ns, done=done)
