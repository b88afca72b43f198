"""Runs of a scenario with figures of a given level: only the files that the history reads, in their own form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from samples import a_metrics

from seamark.analysis.metrics.table import VERSION
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.times import BoundedDistribution
from seamark.model.results.trial_meta import Software, TrialMeta
from seamark.model.results.trial_metrics import RequestCounts, Throughput
from seamark.model.server_identity import ServerRecord
from seamark.storage.documents import write
from seamark.storage.paths import TrialFolder

FIRST = datetime(2026, 1, 1, 3, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Night:
    """One run: throughputs by repetition for each number of users, and where and of what it was measured."""

    number: int
    throughputs: Mapping[int, Sequence[float | None]]
    """None: the trial failed."""
    commit: str | None = None
    machine: str = "node1"
    seamark: str = "0.1.0"
    verdict: str = "VALID"
    p99_ms: float | None = 5.0
    p99_bound: bool = False
    p99_most: float | None = None
    unit: str = "replies_per_s"
    partition: str | None = None
    score: float = 0.9

    @property
    def at(self) -> str:
        return (FIRST + timedelta(days=self.number)).isoformat()

    def write(self, folder: Path) -> Path:
        """Write the run as the results of one scenario, in a folder of its name."""
        for users, values in self.throughputs.items():
            for repetition, value in enumerate(values, 1):
                self._write(folder, f"one--concurrency-{users}", repetition, value, users)
        return folder

    def _write(self, folder: Path, treatment: str, repetition: int, value: float | None, users: int) -> None:
        trial = TrialFolder(root=folder / f"{treatment}--r{repetition}")
        trial.root.mkdir(parents=True, exist_ok=True)
        ok = value is not None
        metrics = a_metrics(
            metrics_version=VERSION,
            trial_id=f"{self.number}-{users}-{repetition}",
            trial=trial.root.name,
            scenario=folder.name,
            treatment=treatment,
            timestamp=self.at,
            component="null",
            service="null",
            status="ok" if ok else "failed",
            category=None if ok else "server_start",
            reason=None if ok else "it did not start",
            repetition=repetition,
            config={"concurrency": users},
            changed={"concurrency": users},
            throughput=Throughput(value=value, unit=self.unit),
            latency_ms=BoundedDistribution(
                p99=self.p99_ms if ok else None,
                ranges={"p99": (self.p99_ms, self.p99_most)} if self.p99_bound else {},
            ),
            counts=RequestCounts(ok=10, failed=0, lost=0),
            quality={"recall_at_10": 0.9, "score": self.score} if ok else {},
            verdict=self.verdict if ok else "INVALID",
        )
        server = ServerRecord(
            digest=f"{self.machine}-server", site="local", machine=self.machine, partition=self.partition
        )
        write(trial.metrics, metrics)
        write(
            trial.load, LoadRecord(status=metrics.status, started_at=self.at, server_identity=server if ok else None)
        )
        if ok:
            software = Software(seamark=self.seamark, git_commit=self.commit, git_dirty=False)
            meta = TrialMeta(git_commit=self.commit, node=self.machine, server_identity=server, software=software)
            write(trial.meta, meta)


def nights(
    results: Path, levels: Sequence[float], scenario: str = "made", users: Sequence[int] = (1,)
) -> list[Night]:
    """Write a kept run for each level, with three repetitions around it and a commit of its number; return them."""
    made = []
    for number, level in enumerate(levels):
        night = Night(
            number=number,
            throughputs={each: (level * each, level * each * 1.01, level * each * 0.99) for each in users},
            commit=f"{number:04d}abcdef{number:030d}",
        )
        night.write(results / "history" / scenario / f"night-{number}")
        made.append(night)
    return made
