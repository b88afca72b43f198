"""A study in which servers stand by themselves, and how `bench` is called in it."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import in_process
import psutil
import yaml
from in_process import ended
from study_folder import BENCH, HANG_S


@dataclass(frozen=True, kw_only=True)
class StandingStudy:
    """A folder made by `bench init`; `environment` is what its commands see beyond ours."""

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def bench(self, *words: str, code: int | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `bench WORDS`, which ends with the exit code that is given."""
        done = subprocess.run(
            [*BENCH, *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
            env={**os.environ, **self.environment},
        )
        return ended(done, code)

    def ask(self, *words: str, code: int | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `bench WORDS`, which starts no process that outlives it, in this process."""
        return ended(in_process.bench(*words, cwd=self.root, **self.environment), code)

    def started(self, *words: str) -> dict[str, Any]:
        """Start a server; return what `--json` says of it."""
        done = self.bench("servers", "start", *words, "--json", code=0)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def listed(self, *words: str) -> dict[str, dict[str, Any]]:
        """Return what `bench servers ps` says, by id."""
        rows = json.loads(self.ask("servers", "ps", *words, "--json").stdout)["servers"]
        return {row["id"]: row for row in rows}

    def folder(self, name: str) -> Path:
        return self.root / "results" / "standing" / name

    def json(self, name: str, file: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder(name) / file).read_text())
        return document

    def site(self, name: str, **changes: Any) -> None:
        """Write a site of the study."""
        text = yaml.safe_dump({"name": name, "summary": "a test's", **changes})
        (self.root / "config" / "sites" / f"{name}.yaml").write_text(text)

    def scenario(self, name: str, **changes: Any) -> None:
        """Write a scenario of the null service with two trials of a quarter of a second."""
        workload = {"component": "null", "service": "null", "concurrency": [1, 2], "duration_s": 0.25, "warmup_s": 0}
        document = {"scenario": name, "repetitions": 1, "workload": workload | changes.pop("workload", {})} | changes
        (self.root / "config" / "scenarios" / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    def processes(self, wanted: Callable[[psutil.Process], bool] = lambda _: True) -> list[psutil.Process]:
        """Return every live process that was started for this study, and is wanted; any may end at any moment."""
        found = []
        for process in psutil.process_iter():
            try:
                named = str(self.root) in " ".join(process.cmdline()) or str(self.root) in process.cwd()
                live = process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid()
                if named and live and wanted(process):
                    found.append(process)
            except psutil.Error:
                continue
        return found


@contextmanager
def standing_study(root: Path, environment: Mapping[str, str] | None = None) -> Iterator[StandingStudy]:
    """Make a study; end what is left of it afterwards."""
    in_process.said_by(["init", str(root)])
    study = StandingStudy(root=root, environment=environment or {})
    yield study
    for process in study.processes():
        process.kill()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
