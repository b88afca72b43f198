"""Every path of a study: folders of trials, deployments and scenarios, and the files in each."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import expandvars
from pathlib import Path
from typing import Any

from seamark.model.trial import PARTY, Trial, party_of, whole_of

PROBES = "probes"
PARTIES = "parties"
MEMBERS = "members"
HISTORY = "history"
"""Folder of the runs that were set aside, in the root of results: HISTORY/SCENARIO/RUN."""
DEPLOYMENTS = ("*/deployments/*", f"*/deployments/*/{MEMBERS}/*")
"""Patterns of all folders of deployments, and of their members, below the root of results."""


def expanded(path: str, root: Path | None = None) -> Path:
    """Return a path of a site with `~` and `$NAME` expanded; a relative one below `root` (None: the working
    folder)."""
    return (Path.cwd() if root is None else root) / Path(expandvars(path)).expanduser()


class Entry:
    """A file or folder of a fixed name in one of the folders below."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: Any, kind: type) -> Path:
        path: Path = folder.root / self._name
        return path


@dataclass(frozen=True, kw_only=True)
class TrialFolder:
    """The files of one trial."""

    root: Path

    config = Entry("effective_config.yaml")
    planned = Entry("trial.json")
    """Trial and deployment as planned, which the trial's jobs read instead of planning again."""
    load = Entry("load.json")
    samples = Entry("samples.parquet")
    chunks = Entry("chunks.parquet")
    """Arrival times of the parts of streamed replies; absent if replies are whole."""
    replies = Entry("replies.parquet")
    """The replies themselves; absent unless `keep_replies` is set."""
    events = Entry("events.parquet")
    """The stages that each request went through; absent unless `keep_events` is set."""
    answers = Entry("answers.parquet")
    """The kept replies with their scores; absent unless the service has a `judge`."""
    asked = Entry("asked.json")
    """Which question each scored item was; absent unless the service's `judge` knows it."""
    answers_record = Entry("answers.json")
    """How the replies were scored."""
    executions = Entry("executions.parquet")
    """The node executions of simulated workflows; absent for everything else."""
    files = Entry("files")
    """Files that a program keeps, such as its output."""
    record = Entry("samples.json")
    """Commit record of a finished measurement, written after its samples: it confirms that they are complete."""
    telemetry = Entry("telemetry.parquet")
    telemetry_csv = Entry("telemetry.csv")
    client_telemetry = Entry("client.csv")
    """Telemetry of the load's own processes; same columns as a deployment's telemetry."""
    series = Entry("series.csv")
    histogram = Entry("histogram.json")
    metrics = Entry("metrics.json")
    metrics_csv = Entry("metrics.csv")
    meta = Entry("meta.json")
    log = Entry("log.jsonl")
    attempts = Entry("attempts")
    """Samples and records of earlier attempts, kept by `bench retry`."""
    search = Entry("search.json")
    """Probes and result of a search, written again after each probe."""
    probes = Entry(PROBES)
    """Loads of a search, each in a folder like a trial's."""
    parts = Entry(".parts")
    """Output of running loads, each in a folder named by its process; removed once its samples are complete."""
    sessions = Entry(".sessions")
    """Sessions of a finite load that has not ended, each in a folder of its number; a later one goes on."""

    def party(self, name: str) -> "TrialFolder":
        """Return the folder of one party, which is like a trial's."""
        return TrialFolder(root=self.root / PARTIES / name)

    def measured(self, trial: Trial) -> "list[tuple[TrialFolder, Trial]]":
        """Return those that have figures of the trial of this folder, itself or its parties, each with its folder."""
        return [(self if part is trial else self.party(str(part.party)), part) for part in trial.measured]

    @property
    def own_parts(self) -> Path:
        """Output of the load of this process."""
        return self.parts / str(os.getpid())


@dataclass(frozen=True, kw_only=True)
class DeploymentFolder:
    """The files of one deployment; those under `runtime` matter only while its supervisor lives."""

    root: Path

    endpoint = Entry("endpoint.json")
    together = Entry("together")
    warmup = Entry("warmup.json")
    record = Entry("deployment.json")
    server_log = Entry("server.log")
    values = Entry("values.yaml")
    waiting = Entry("waiting.json")
    """Exists, with a recent time, while a load of the deployment waits for another one on its node."""
    telemetry = Entry("telemetry.csv")
    members = Entry(MEMBERS)
    """Members of a deployment with several servers, each in a folder like a deployment's."""
    runtime = Entry(".keeper")

    def part_log(self, part: str, node: str) -> Path:
        """The log of a part of a server on one node; the server's own process writes `server_log`."""
        return self.root / f"server-{part}-{node}.log"

    def member(self, name: str) -> "DeploymentFolder":
        """Return the folder of one member."""
        return DeploymentFolder(root=self.members / name)

    @property
    def results(self) -> Path:
        """Root of all results."""
        above = self.root.resolve().parents
        return above[4] if above[0].name == MEMBERS else above[2]


@dataclass(frozen=True, kw_only=True)
class ScenarioFolder:
    """The files of one scenario below the root of results."""

    root: Path

    plan = Entry("plan.json")
    scenario = Entry("scenario.yaml")
    """The scenario's file at the time of the plan."""
    summary = Entry("summary.json")
    run_note = Entry("run.json")
    """Name and commit of a run that was set aside; absent in the folder that `bench submit` fills."""
    lanes = Entry(".lanes")
    """List, claims and outcomes of the lanes of the present run, in a folder of its name; removed at its end."""

    def trial(self, trial_id: str) -> TrialFolder:
        """Return the folder of one trial; that of a party lies in the whole trial's."""
        if party := party_of(trial_id):
            return TrialFolder(root=self.root / whole_of(trial_id)).party(party)
        return TrialFolder(root=self.root / trial_id)

    def trials_with(self, name: str) -> Iterator[TrialFolder]:
        """Yield the folders of all trials and parties that have a file of that name, in the order of their names."""
        found = (path for pattern in ("*--*", f"*--*/{PARTIES}/*") for path in self.root.glob(f"{pattern}/{name}"))
        yield from (TrialFolder(root=path.parent) for path in sorted(found))

    def deployment(self, deployment_id: str) -> DeploymentFolder:
        """Return the folder of one deployment; that of a member lies in the whole deployment's."""
        whole, mark, member = deployment_id.partition(PARTY)
        folder = DeploymentFolder(root=self.root / "deployments" / whole)
        return folder.member(member) if mark else folder

    def lane(self, run: str) -> "LaneFolder":
        """Return the files of the lanes of a run."""
        return LaneFolder(root=self.lanes / run)

    def deaths(self, service: str) -> Path:
        """Return the count of a service's deaths in the latest run."""
        return self.root / ".deaths" / f"{service}.json"

    def inputs(self) -> tuple[Path, ...]:
        """What verbs read of a scenario's results: its files, and its folders of trials and deployments."""
        folders = (path for path in self.root.glob("*") if path.is_dir())
        return (self.plan, self.scenario, self.summary, self.run_note, *folders)


def history_index(results: Path) -> Path:
    """Return the index of all runs below a root of results: derived, and made again when it is missing."""
    return results / ".history.duckdb"


def failure_of(environment: Path) -> Path:
    """Return the file with the reason why the environment of a record could not be created."""
    return environment.with_suffix(".failed")


@dataclass(frozen=True, kw_only=True)
class LaneFolder:
    """Files of the lanes of one run."""

    root: Path

    claims = Entry("units")
    """The list of units, with a file for each in its present state."""

    def outcome(self, number: str) -> Path:
        """Return the file that a lane writes when it has ended."""
        return self.root / f"lane-{number}.json"

    def load(self, trial: str) -> Path:
        """Return the kept load.json of a trial."""
        return self.root / "loads" / f"{trial}.json"

    def record(self, deployment: str) -> Path:
        """Return the kept deployment.json."""
        return self.root / "deployments" / f"{deployment}.json"
