"""A study whose site is the Slurm of the tests: what its user asks, and what Slurm says of its jobs."""

import re
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
import yaml
from slurm_accounting import ACCOUNT
from study_folder import StudyFolder

SOON = Path(__file__).parent / "soon"
SITE = {
    "name": "slurm-test",
    "summary": "the Slurm of the tests",
    "profile": "slurm",
    "needs": ["partition", "account"],
    "partitions": {
        "cpu": {"nodes": 2, "cpus": 4, "mem_gb": 15},
        "gpu": {"nodes": 2, "cpus": 4, "mem_gb": 15, "gpus": 4},
    },
    "qos": {"default": 7200, "short": 1800, "test": 1800},
}
Job = Mapping[str, str]


class SlurmStudy(StudyFolder):
    """A study at the site `slurm-test`, called with the environment of its Slurm."""

    @classmethod
    def at(cls, root: Path, told: Mapping[str, str], **site: Any) -> Self:
        """Make the study; `site` are keys of its site, beyond or instead of those of SITE."""
        study = cls.new(root, environment={**told, "PYTHONPATH": str(SOON)})
        study.write_site(**site)
        study.write()
        return study

    def write_site(self, **changes: Any) -> None:
        """Write config/sites/slurm-test.yaml."""
        path = self.root / "config" / "sites" / "slurm-test.yaml"
        path.write_text(yaml.safe_dump({**SITE, **changes}, sort_keys=False))

    def write(self, **changes: Any) -> Path:
        """Write config/scenarios/try.yaml as a StudyFolder does, for one GPU, two CPUs and 2 GB of the site."""
        resources = {"nodes": 1, "gpus": 1, "cpus_per_task": 2, "mem_gb": 2} | changes.pop("resources", {})
        asked = {"site": "slurm-test", "partition": "gpu", "account": ACCOUNT, "qos": "short"}
        return super().write(**asked | changes, resources=resources)

    def slurm(self, *words: str) -> str:
        """Return what one of Slurm's commands prints."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False, timeout=30)
        return done.stdout

    def jobs(self) -> list[Job]:
        """Return every job of this study, in the order of their numbers, with what `scontrol show job` says."""
        told = [dict(_pairs(text)) for text in self.slurm("scontrol", "show", "jobs").split("\n\n")]
        mine = (job for job in told if job.get("WorkDir") == str(self.root))
        return sorted(mine, key=lambda job: int(job["JobId"]))

    def end(self) -> None:
        """End every job and process of this study."""
        for job in self.jobs():
            self.slurm("scancel", job["JobId"])
        for process in self.processes():
            with suppress(psutil.Error):
                process.kill()

    def job_in_state(self, *states: str, within_s: float = 60.0) -> Job:
        """Wait for a job of this study in one of the states, such as RUNNING, and return it."""
        limit_s = time.monotonic() + within_s
        while True:
            jobs = self.jobs()
            if found := [job for job in jobs if job["JobState"] in states]:
                return found[0]
            assert time.monotonic() < limit_s, f"no job is {' or '.join(states)}: {jobs}"
            time.sleep(0.2)


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the `Key=value` of a job as scontrol writes them."""
    return re.findall(r"(?:^|\s)([A-Za-z][\w/:]*)=(\S*)", text)
