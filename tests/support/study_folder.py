"""A study of the null service in an empty folder, and how `bench` and Snakemake are called in it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import in_process
import psutil
import yaml
from in_process import ended

NO_PAGES = ("--", "--omit-from", "report")
HANG_S = 900
"""No command of a test takes longer beside two busy loops, with environments still to install."""
BENCH = [sys.executable, "-m", "seamark.cli.main"]


@dataclass(frozen=True)
class StudyFolder:
    """A study as its user sees it: a folder, and commands run in it, which end with the exit `code` that is given."""

    root: Path
    environment: Mapping[str, str] | None = None

    @classmethod
    def new(cls, root: Path, **more: Any) -> Self:
        """Make a study with `bench init`, and write its scenario."""
        in_process.said_by(["init", str(root)])
        folder = cls(root=root, **more)
        folder.write()
        return folder

    def copy(self, root: Path) -> Self:
        """Copy the whole study with its times, so that nothing of the copy is out of date."""
        return replace(self, root=Path(shutil.copytree(self.root, root, symlinks=True)))

    def write(self, **changes: Any) -> Path:
        """Write config/scenarios/try.yaml: two treatments of the null service, twice, a quarter of a second each."""
        workload = {"component": "null", "service": "null", "concurrency": [1, 2], "duration_s": 0.25, "warmup_s": 0}
        document = {"scenario": "try", "repetitions": 2, "workload": workload | changes.pop("workload", {})} | changes
        path = self.root / "config" / "scenarios" / "try.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    def bench(
        self, *words: str, pages: bool = False, code: int | None = None, **options: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Run `bench WORDS` to its end; a submit without its pages, which take as long as many short trials, unless
        they are asked for."""
        without = () if pages or words[0] != "submit" or {"--", "-n"} & {*words} else NO_PAGES
        done = subprocess.run(
            [*BENCH, *words, *without],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=options.pop("timeout", HANG_S),
            env=options.pop("env", self.environment),
            check=False,
            **options,
        )
        return ended(done, code)

    def ask(self, *words: str, code: int | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `bench WORDS`, which starts no process that outlives it, in this process."""
        return ended(in_process.bench(*words, cwd=self.root, **(self.environment or {})), code)

    def submit(self, code: int | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `bench submit` of the scenario, its pages included."""
        return self.bench("submit", "-c", "config/scenarios/try.yaml", pages=True, code=code)

    def measure(self, *options: str, code: int | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `bench submit` of the scenario without its pages."""
        return self.bench("submit", "-c", "config/scenarios/try.yaml", *options, code=code)

    def start(self, *options: str) -> "subprocess.Popen[bytes]":
        """Start such a `bench submit` and leave it running."""
        return subprocess.Popen(
            [*BENCH, "submit", "-c", "config/scenarios/try.yaml", *options, *NO_PAGES],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def snakemake(self, *words: str, code: int | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `snakemake WORDS` itself."""
        config = ["--config", "scenario=config/scenarios/try.yaml"]
        done = subprocess.run(
            [sys.executable, "-m", "snakemake", *words, *config],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            env=self.environment,
            check=False,
        )
        return ended(done, code)

    @property
    def results(self) -> Path:
        return self.root / "results" / "try"

    def trials(self) -> list[Path]:
        """Return the folders of all trials that were begun."""
        return sorted(path.parent for path in self.results.glob("*/effective_config.yaml"))

    def json(self, relative: str) -> dict[str, Any]:
        """Read a JSON file below the scenario's results."""
        document: dict[str, Any] = json.loads((self.results / relative).read_text())
        return document

    def measurements(self) -> dict[str, int]:
        """Return how often each trial was measured well, by its own log."""
        return {
            trial.name: sum('"status": "ok"' in line for line in (trial / "log.jsonl").read_text().splitlines())
            for trial in self.trials()
            if (trial / "log.jsonl").exists()
        }

    def processes(self, wanted: Callable[[psutil.Process], bool] = lambda _: True) -> list[psutil.Process]:
        """Return every live process that works in this study or was started for it, and is wanted.

        Any of them may end at any moment: what is to be known of it is asked for in `wanted`.
        """
        found = []
        for process in psutil.process_iter():
            try:
                here = str(self.root) in " ".join(process.cmdline()) or Path(process.cwd()).is_relative_to(self.root)
                live = process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid()
                if here and live and wanted(process):
                    found.append(process)
            except psutil.Error:
                continue
        return found
