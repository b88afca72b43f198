"""A study whose site is a small Slurm, and the scripts that `bench export slurm` writes for it."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from in_process import ended
from study_folder import BENCH, HANG_S

import seamark

ACCOUNT = "p200000"
SCRIPTS = Path(seamark.__file__).parent / "shipped" / "scripts"
SITE: dict[str, Any] = {
    "name": "here",
    "summary": "a Slurm for tests",
    "profile": "slurm",
    "runtime": "venv",
    "partitions": {"all": {"nodes": 2, "cpus": 256, "mem_gb": 480, "gpus": 4}},
    "lease_s": 5.0,
}
WORKLOAD = {"service": "null", "reply_bytes": [2, 64], "concurrency": [1, 2], "duration_s": 0.25, "warmup_s": 0}
"""Two deployments, each with two treatments."""


@dataclass(frozen=True)
class Exporting:
    """A study's folder. What bench says goes to the caller."""

    root: Path

    @classmethod
    def at(cls, root: Path, *, site: dict[str, Any] | None = None, **scenario: Any) -> "Exporting":
        """Make a study of the null service, with the site `here` and the scenario `try`."""
        made = subprocess.run([*BENCH, "init", str(root)], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        (root / "config/sites/here.yaml").write_text(yaml.safe_dump(SITE | (site or {})))
        study = cls(root=root)
        study.ask(**scenario)
        return study

    def ask(self, **scenario: Any) -> None:
        """Write the scenario anew."""
        asked = {"scenario": "try", "partition": "all", "account": ACCOUNT, "repetitions": 2}
        asked["workload"] = WORKLOAD | scenario.pop("workload", {})
        (self.root / "config/scenarios/try.yaml").write_text(yaml.safe_dump(asked | scenario))

    def bench(
        self, *words: str, site: str = "here", code: int | None = None, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run `bench WORDS -c config/scenarios/try.yaml --site SITE` to its end, with the exit code that is given;
        `env` is set besides."""
        named = [*BENCH, *words, "-c", "config/scenarios/try.yaml", "--site", site]
        done = subprocess.run(
            named, cwd=self.root, capture_output=True, text=True, timeout=HANG_S, check=False, env=os.environ | env
        )
        return ended(done, code)

    def export(self, *words: str) -> Path:
        """Write the scripts; return their folder."""
        self.bench("export", "slurm", *words, code=0)
        return self.root / "slurm" / "try"

    def start_deployment(self, deployment: str, **env: str) -> "subprocess.Popen[str]":
        """Start what an exported job runs for a deployment, here and without Slurm."""
        words = [sys.executable, SCRIPTS / "deployment.py", "config/scenarios/try.yaml", "here", "try", deployment]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, cwd=self.root, env=os.environ | env, stdout=pipe, stderr=pipe, text=True)

    def run_deployment(self, deployment: str, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run it to its end."""
        process = self.start_deployment(deployment, **env)
        said, complained = process.communicate(timeout=HANG_S)
        return subprocess.CompletedProcess(process.args, process.returncode, said, complained)

    @property
    def results(self) -> Path:
        return self.root / "results" / "try"


def options(script: Path) -> dict[str, str]:
    """Return the options of sbatch that a script asks for, by their long names."""
    found = re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script.read_text(), re.MULTILINE)
    assert len(found) == script.read_text().count("#SBATCH")
    return dict(found)
