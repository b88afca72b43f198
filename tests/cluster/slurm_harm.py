"""A run on the Slurm of the tests while harm is done to jobs, nodes and controller; and what must stand after it."""

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from processes import eventually, running
from slurm import home
from slurm_study import Job, SlurmStudy
from study_folder import BENCH

SUBMIT = ("submit", "-c", "config/scenarios/try.yaml", "--", "--slurm-init-seconds-before-status-checks", "1")
"""The last option for tests only: Slurm is first asked for a job after a second."""

LOAD = "rules_api:load"
"""Name of the process of a load, given by the fork server of its job."""
FAKE_SQUEUE = """\
#!/bin/sh
# Slurm's own answer, but for jobs in $FAKE_STATES, a file with a line `NUMBER STATE` for each.
PATH={real}:$PATH
squeue "$@" > {folder}/answer.$$ || exit $?
while read number state; do sed -i "s/^$number|[A-Z_]*|/$number|$state|/" {folder}/answer.$$; done < {folder}/states
cat {folder}/answer.$$
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One `bench submit` at work; `output` has what it prints."""

    study: SlurmStudy
    process: "subprocess.Popen[bytes]"
    output: Path

    def until(self, there: Callable[[], Any], within_s: float = 300.0) -> Any:
        """Return what `there` gives as soon as that is something; the run must go on until then."""
        limit_s = time.monotonic() + within_s
        while not (found := there()):
            assert self.process.poll() is None, f"the run has ended: {self.said()}"
            assert time.monotonic() < limit_s, f"{there} in vain: {self.study.jobs()}"
            time.sleep(0.05)
        return found

    def ends(self, within_s: float = 300.0) -> int:
        """Wait for the end of the run; return its exit code."""
        return self.process.wait(within_s)

    def said(self) -> str:
        return self.output.read_text()


def started(study: SlurmStudy) -> Run:
    """Start `bench submit`."""
    output = study.root / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*BENCH, *SUBMIT], cwd=study.root, env=study.environment, stdout=file, stderr=subprocess.STDOUT
        )
    return Run(study=study, process=process, output=output)


def half_done(study: SlurmStudy, deployment: str) -> psutil.Process | None:
    """Return the process of a deployment's second load, once its first trial is measured and that is at work."""
    trials = list(study.results.glob(f"{deployment}--*"))
    if not any((trial / "load.json").exists() for trial in trials):
        return None
    return at_work(study, deployment)


def at_work(study: SlurmStudy, deployment: str = "") -> psutil.Process | None:
    """Return the process of a load that is at work, of a deployment or of any."""
    for parts in study.results.glob(f"{deployment}*--*/.parts/*"):
        with suppress(psutil.Error, ValueError):
            load = psutil.Process(int(parts.name))  # the folder of a killed load stays, and its number is given anew
            if load.name().startswith(LOAD) and load.status() != psutil.STATUS_ZOMBIE:
                return load
    return None


def job_of(study: SlurmStudy, deployment: str) -> Job:
    """Return a deployment's job, by the comment that it is submitted with."""
    (job,) = (each for each in study.jobs() if f"_{deployment}_" in each["Comment"])
    return job


def samples(study: SlurmStudy) -> dict[str, str]:
    """Return the SHA-256 of the samples of every trial that is measured, by its name."""
    return {
        path.parent.name: hashlib.sha256(path.with_name("samples.parquet").read_bytes()).hexdigest()
        for path in study.results.glob("*/samples.json")
    }


def assert_whole(study: SlurmStudy, measured: Mapping[str, str], trials: int) -> None:
    """Assert that a resumed run is complete, what was `measured` before it is the very same, and nothing is left."""
    assert {name: found for name, found in samples(study).items() if name in measured} == measured
    assert study.measurements() == dict.fromkeys(study.measurements(), 1)
    assert len(study.measurements()) == trials
    assert study.json("summary.json")["ok"] == trials
    assert (study.root / "reports" / "try" / "index.html").is_file()
    assert eventually(lambda: study.processes() == [], 120), left_of(study)
    assert in_queue(study) == []


def left_of(study: SlurmStudy) -> list[str]:
    """Return what is known of each process of a study that is left."""
    said = []
    for process in study.processes():
        with suppress(psutil.Error):
            line, above = " ".join(process.cmdline()), [each.name() for each in process.parents()]
            job = process.environ().get("SLURM_JOB_ID")
            said.append(f"{process} {line!r} in {process.cwd()} below {above}, job {job}")
    return said


def in_queue(study: SlurmStudy) -> list[str]:
    """Return the numbers of all jobs of this study that have not ended."""
    mine = {job["JobId"] for job in study.jobs()}
    return [number for number in study.slurm("squeue", "-h", "-o", "%i").split() if number in mine]


@contextmanager
def other_states(study: SlurmStudy, folder: Path) -> Iterator[Path]:
    """Put a squeue before Slurm's that says other states of some jobs; give the file that names them."""
    folder.mkdir()
    told = dict(study.environment or {})
    (folder / "states").touch()
    (folder / "squeue").write_text(FAKE_SQUEUE.format(folder=folder, real=home(told) / "bin"))
    (folder / "squeue").chmod(0o755)
    path = told["PATH"]
    study.environment["PATH"] = f"{folder}:{path}"
    yield folder / "states"
    study.environment["PATH"] = path


def kill_node(told: Mapping[str, str], k: int) -> None:
    """Kill the daemon of a node and everything that runs there, all at once, as when a node loses its power."""
    doomed = {psutil.Process(int((home(dict(told)) / f"slurmd-n{k}.pid").read_text()))}
    programs = f"{home(dict(told))}/bin"  # in the PATH of the jobs of this Slurm, and of no other here
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            its = process.environ()
            if its.get("SLURMD_NODENAME") == f"n{k}" and programs in its.get("PATH", "").split(":"):
                doomed |= {process, *(each for each in process.parents() if "slurmstepd" in each.name())}
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in doomed:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


def stop_controller(told: Mapping[str, str]) -> None:
    """End slurmctld, and wait until it has gone."""
    controller = psutil.Process(int((home(dict(told)) / "slurmctld.pid").read_text()))
    controller.terminate()
    assert eventually(lambda: not controller.is_running() or controller.status() == psutil.STATUS_ZOMBIE, 60)


def controller(told: Mapping[str, str]) -> AbstractContextManager[object]:
    """Run slurmctld again, from the state that it has saved."""
    folder = home(dict(told))
    return running([f"{folder}/bin/slurmctld", "-D"], folder / "slurmctld.log", told)
