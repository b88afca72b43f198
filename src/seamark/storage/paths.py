"""Every path of a study, and atomic writing of its files: under a temporary name, then renamed."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from os.path import expandvars
from pathlib import Path
from typing import Any, TypeVar

from seamark.errors import UserError
from seamark.model.trial import PARTY, party_of, whole_of
from seamark.storage.codec import decode, encode, parse, parse_object

Noun = TypeVar("Noun")

PROBES = "probes"
PARTIES = "parties"
MEMBERS = "members"
HISTORY = "history"
"""Folder of the runs that were set aside, in the root of results: HISTORY/SCENARIO/RUN."""
DEPLOYMENTS = ("*/deployments/*", f"*/deployments/*/{MEMBERS}/*")
"""Patterns of all folders of deployments, and of their members, below the root of results."""

_DERIVED = "Remove it: `bench collect` and `bench submit` derive it again from the samples."
REMEDIES: Mapping[str, str] = {
    "load.json": "`bench submit` writes it again from samples.json, or measures the trial again.",
    "samples.json": "`bench submit` measures the trial again; `bench status` shows it meanwhile.",
    "metrics.json": _DERIVED,
    "histogram.json": _DERIVED,
    "meta.json": "Where the trial was measured is not known then; `bench retry TRIAL` measures it again.",
    "endpoint.json": "`bench submit` starts the server again.",
    "deployment.json": "Remove it: `bench submit` writes it again.",
    "plan.json": "`bench plan` writes it again.",
    "summary.json": "`bench collect` writes it again.",
}
"""How to get a damaged file again, by its name."""
OTHERWISE = "Remove the file; the next run makes it again."


def expanded(path: str, root: Path | None = None) -> Path:
    """Return a path of a site with `~` and `$NAME` expanded; a relative one below `root` (None: the working
    folder)."""
    return (Path.cwd() if root is None else root) / Path(expandvars(path)).expanduser()


@dataclass(frozen=True, kw_only=True)
class TrialFolder:
    """The files of one trial."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "effective_config.yaml"

    @property
    def planned(self) -> Path:
        """Trial and deployment as planned, which the trial's jobs read instead of planning again."""
        return self.root / "trial.json"

    @property
    def load(self) -> Path:
        return self.root / "load.json"

    @property
    def samples(self) -> Path:
        return self.root / "samples.parquet"

    @property
    def chunks(self) -> Path:
        """Arrival times of the parts of streamed replies; absent if replies are whole."""
        return self.root / "chunks.parquet"

    @property
    def replies(self) -> Path:
        """The replies themselves; absent unless `keep_replies` is set."""
        return self.root / "replies.parquet"

    @property
    def events(self) -> Path:
        """The stages that each request went through; absent unless `keep_events` is set."""
        return self.root / "events.parquet"

    @property
    def answers(self) -> Path:
        """The kept replies with their scores; absent unless the service has a `judge`."""
        return self.root / "answers.parquet"

    @property
    def asked(self) -> Path:
        """Which question each scored item was; absent unless the service's `judge` knows it."""
        return self.root / "asked.json"

    @property
    def answers_record(self) -> Path:
        """How the replies were scored."""
        return self.root / "answers.json"

    @property
    def executions(self) -> Path:
        """The node executions of simulated workflows; absent for everything else."""
        return self.root / "executions.parquet"

    @property
    def files(self) -> Path:
        """Files that a program keeps, such as its output."""
        return self.root / "files"

    @property
    def record(self) -> Path:
        """Commit record of a finished measurement, written after its samples: it confirms that they are complete."""
        return self.root / "samples.json"

    @property
    def telemetry(self) -> Path:
        return self.root / "telemetry.parquet"

    @property
    def telemetry_csv(self) -> Path:
        return self.root / "telemetry.csv"

    @property
    def client_telemetry(self) -> Path:
        """Telemetry of the load's own processes; same columns as a deployment's telemetry."""
        return self.root / "client.csv"

    @property
    def series(self) -> Path:
        return self.root / "series.csv"

    @property
    def histogram(self) -> Path:
        return self.root / "histogram.json"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.json"

    @property
    def metrics_csv(self) -> Path:
        return self.root / "metrics.csv"

    @property
    def meta(self) -> Path:
        return self.root / "meta.json"

    @property
    def log(self) -> Path:
        return self.root / "log.jsonl"

    @property
    def attempts(self) -> Path:
        """Samples and records of earlier attempts, kept by `bench retry`."""
        return self.root / "attempts"

    @property
    def search(self) -> Path:
        """Probes and result of a search, written again after each probe."""
        return self.root / "search.json"

    @property
    def probes(self) -> Path:
        """Loads of a search, each in a folder like a trial's."""
        return self.root / PROBES

    @property
    def parties(self) -> Path:
        """Parties of a trial with several, each in a folder like a trial's."""
        return self.root / PARTIES

    def party(self, name: str) -> "TrialFolder":
        """Return the folder of one party."""
        return TrialFolder(root=self.parties / name)

    @property
    def parts(self) -> Path:
        """Output of running loads, each in a folder named by its process; removed once its samples are complete."""
        return self.root / ".parts"

    @property
    def sessions(self) -> Path:
        """Sessions of a finite load that has not ended, each in a folder of its number; a later one goes on."""
        return self.root / ".sessions"

    @property
    def own_parts(self) -> Path:
        """Output of the load of this process."""
        return self.parts / str(os.getpid())


@dataclass(frozen=True, kw_only=True)
class DeploymentFolder:
    """The files of one deployment; those under `runtime` matter only while its supervisor lives."""

    root: Path

    @property
    def endpoint(self) -> Path:
        return self.root / "endpoint.json"

    @property
    def together(self) -> Path:
        return self.root / "together"

    @property
    def warmup(self) -> Path:
        return self.root / "warmup.json"

    @property
    def record(self) -> Path:
        return self.root / "deployment.json"

    @property
    def server_log(self) -> Path:
        return self.root / "server.log"

    @property
    def waiting(self) -> Path:
        """Exists, with a recent time, while a load of the deployment waits for another one on its node."""
        return self.root / "waiting.json"

    def part_log(self, part: str, node: str) -> Path:
        """The log of a part of a server on one node; the server's own process writes `server_log`."""
        return self.root / f"server-{part}-{node}.log"

    @property
    def telemetry(self) -> Path:
        return self.root / "telemetry.csv"

    @property
    def members(self) -> Path:
        """Members of a deployment with several servers, each in a folder like a deployment's."""
        return self.root / MEMBERS

    def member(self, name: str) -> "DeploymentFolder":
        """Return the folder of one member."""
        return DeploymentFolder(root=self.members / name)

    @property
    def results(self) -> Path:
        """Root of all results."""
        above = self.root.resolve().parents
        return above[4] if above[0].name == MEMBERS else above[2]

    @property
    def runtime(self) -> Path:
        return self.root / ".keeper"


@dataclass(frozen=True, kw_only=True)
class ScenarioFolder:
    """The files of one scenario below the root of results."""

    root: Path

    def trial(self, trial_id: str) -> TrialFolder:
        """Return the folder of one trial; that of a party lies in the whole trial's."""
        if party := party_of(trial_id):
            return TrialFolder(root=self.root / whole_of(trial_id)).party(party)
        return TrialFolder(root=self.root / trial_id)

    def deployment(self, deployment_id: str) -> DeploymentFolder:
        """Return the folder of one deployment; that of a member lies in the whole deployment's."""
        whole, mark, member = deployment_id.partition(PARTY)
        folder = DeploymentFolder(root=self.root / "deployments" / whole)
        return folder.member(member) if mark else folder

    @property
    def lanes(self) -> Path:
        """List, claims and outcomes of the lanes of the present run, in a folder of its name; removed at its end."""
        return self.root / ".lanes"

    def deaths(self, service: str) -> Path:
        """Return the count of a service's deaths in the latest run."""
        return self.root / ".deaths" / f"{service}.json"

    @property
    def plan(self) -> Path:
        return self.root / "plan.json"

    @property
    def scenario(self) -> Path:
        """The scenario's file at the time of the plan."""
        return self.root / "scenario.yaml"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    @property
    def run_note(self) -> Path:
        """Name and commit of a run that was set aside; absent in the folder that `bench submit` fills."""
        return self.root / "run.json"


def history_index(results: Path) -> Path:
    """Return the index of all runs below a root of results: derived, and made again when it is missing."""
    return results / ".history.duckdb"


def failure_of(environment: Path) -> Path:
    """Return the file with the reason why the environment of a record could not be created."""
    return environment.with_suffix(".failed")


def put_away(path: Path) -> None:
    """Clear a path that must be free: a file is removed; anything else is foreign and renamed to `NAME.aside-1`."""
    if path.is_file() or path.is_symlink():
        path.unlink()
        return
    number = 1
    while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    with suppress(FileNotFoundError):
        path.rename(aside)


def require_folder(path: Path) -> None:
    """Raise UserError if `path` or a folder above it exists and is not a folder."""
    for each in (path, *path.parents):
        if each.is_dir():
            return
        if os.path.lexists(each):
            raise UserError(f"{each}: is not a folder, but results belong into it. Move it away, or correct paths.")


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds, else remove it.

    A folder at `path` is set aside. Without `durable` a crash of the machine may leave an empty file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        put_away(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if durable:
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the new one, never a part."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document atomically. NaN is an error: a missing number is null."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


class DamagedFileError(UserError, ValueError):
    """A file of the results is damaged: the message names it and the remedy."""


def read(path: Path, noun: type[Noun]) -> Noun:
    """Read a document of the results.

    A damaged document, or a folder or a loop of links in its place, raises DamagedFileError with file, mistake and
    remedy; a missing one raises FileNotFoundError, an unreadable one PermissionError.
    """
    with _damage_named(path):
        return parse(path.read_text(encoding="utf-8"), noun)


def read_or_none(path: Path, noun: type[Noun]) -> Noun | None:
    """Read a document, None when it is missing, damaged or unreadable."""
    try:
        return read(path, noun)
    except (OSError, ValueError):
        return None


def read_json(path: Path, noun: Any = Mapping[str, Any]) -> dict[str, Any]:
    """Read a document as a JSON object, checked against its noun. Raises like `read`."""
    with _damage_named(path):
        document = parse_object(path.read_text(encoding="utf-8"))
        decode(document, noun)
        return document


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as cause:
        raise DamagedFileError(
            f"{path}: {cause.strerror}. Move it away. {REMEDIES.get(path.name, OTHERWISE)}"
        ) from cause
    except ValueError as cause:
        raise DamagedFileError(f"{path}: {cause}. {REMEDIES.get(path.name, OTHERWISE)}") from cause


def write(path: Path, noun: object) -> None:
    """Write a noun of the results as JSON, atomically."""
    write_json(path, encode(noun))


def amend(source: Path, target: Path, noun: type, **changes: object) -> None:
    """Write a document with other values of some fields to `target`; fields of a later version are kept. Raises like
    `read`."""
    write_json(target, read_json(source, noun) | encode(changes))


def is_damaged(path: Path, noun: type) -> bool:
    """Return whether a document exists and cannot be read."""
    return os.path.lexists(path) and read_or_none(path, noun) is None


def append_log(path: Path, trial_id: str, event: str, **facts: Any) -> None:
    """Append a line to a JSONL log: time, trial, event and facts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "trial_id": trial_id, "event": event, **facts}
    with path.open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")
