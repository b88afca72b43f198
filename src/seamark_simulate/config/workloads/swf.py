"""Reader of the Standard Workload Format (SWF 2.2) of the Parallel Workloads Archive: jobs of batch systems.

Format: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. A job becomes a request of one node on as many GPUs
as it had processors (allocated, else requested). Its time is its run time in whole seconds, 0 for less than half of
one; a scheduler sees the time that was requested, where there is one. Jobs without run time or processors are left
out, and so are lines with parts of a job that was swapped out: another line has the whole job.
"""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from seamark.config.json_source import LARGEST_BYTES
from seamark.config.yaml_source import Mistakes, read_text
from seamark_simulate.config.workloads.samples import JOB, job_workflows, task_models
from seamark_simulate.simulation.system import Request, System
from seamark_simulate.simulation.workload import Requests

FIELDS = 18
NUMBER, SUBMIT, RUN, ALLOCATED, REQUESTED, ASKED, STATUS = 0, 1, 3, 4, 7, 8, 10
"""Places of the fields that are read: job number, submit time, run time, processors, requested time and status."""
CANCELLED, PARTIAL = 5, (2, 3, 4)
"""Of a status: the job was cancelled, before its start or after it; the line is a part of a job."""
MOST_MISTAKES = 20


def is_swf(head: bytes) -> bool:
    """Return whether comments begin with ';', or the first line is about 18 numbers."""
    lines = [line for line in head.splitlines() if line.strip() and not line.lstrip().startswith(b";")]
    try:
        columns = len([float(number) for number in lines[0].split()]) if lines else 0
    except ValueError:
        return False
    return columns == FIELDS or head.lstrip().startswith(b";") or abs(columns - FIELDS) < FIELDS // 2


def read_swf(path: Path, _: System | None, mistakes: Mistakes) -> Requests | None:
    """Return the jobs of a file, None after noting mistakes."""
    text = read_text(path, mistakes, LARGEST_BYTES, encoding="latin-1")  # comments may have any; data are ASCII
    if text is None:
        return None
    before = mistakes.count
    jobs: dict[str, tuple[float, int, float, float]] = {}
    begin_s: float | None = None
    left_out: Counter[str] = Counter()
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        plain = line.strip()
        if plain.startswith(";"):
            begin_s = begin_s if begin_s is not None else _unix_start(plain)
            continue
        if not plain:
            continue
        if mistakes.count - before >= MOST_MISTAKES:
            break
        values = _values(plain)
        if isinstance(values, str):
            cut = number == len(lines) and not text.endswith("\n")
            hint = " The file ends in mid-line: it is not whole." if cut else ""
            mistakes.of_file(path, f"{values}; SWF has {FIELDS} numbers, -1 for unknown.{hint}", "wrong_type", number)
            continue
        if values[STATUS] in PARTIAL:
            left_out["parts of a job that was swapped out"] += 1
            continue
        gpus = int(values[ALLOCATED] if values[ALLOCATED] > 0 else values[REQUESTED])
        name = f"job_{int(values[NUMBER])}"
        if name in jobs:
            mistakes.of_file(path, f"job {int(values[NUMBER])} is there already.", "written_twice", number)
        elif values[RUN] < 0:
            left_out["without a run time"] += 1
        elif values[STATUS] == CANCELLED and values[RUN] == 0 and values[ALLOCATED] <= 0:
            left_out["cancelled before the start"] += 1
        elif gpus <= 0:
            left_out["without processors"] += 1
        elif values[SUBMIT] < 0:
            left_out["without a submit time"] += 1
        else:
            asked_s = values[ASKED] if values[ASKED] > 0 else values[RUN]
            jobs[name] = (values[SUBMIT], gpus, values[RUN], asked_s)
    if not jobs and mistakes.count == before:
        text = "no job can be simulated: all lack run time, processors or submit time."
        mistakes.of_file(path, text, "no_value")
    if mistakes.count > before:
        return None
    return _workload(jobs, begin_s, left_out)


def _workload(
    jobs: dict[str, tuple[float, int, float, float]], begin_s: float | None, left_out: Counter[str]
) -> Requests:
    models = task_models(gpus for _, gpus, _, _ in jobs.values())
    first_s = min(submit_s for submit_s, *_ in jobs.values())
    requests = tuple(
        Request(
            id=name,
            workflow=f"task-{gpus}",
            at_s=submit_s - first_s,
            node_execution_times_s={JOB: run_s},
            node_estimates_s={JOB: asked_s},
        )
        for name, (submit_s, gpus, run_s, asked_s) in jobs.items()
    )
    began = None if begin_s is None else datetime.fromtimestamp(begin_s + first_s, UTC)
    total = len(jobs) + left_out.total()
    return Requests(
        system=System(models=models, workflows=job_workflows(models.values())),
        requests=requests,
        begin=None if began is None else began.strftime("%Y-%m-%d %H:%M:%S"),
        jobs_alone=True,
        notes=tuple(f"{count} of {total} jobs left out: {why}." for why, count in sorted(left_out.items())),
    )


def _values(line: str) -> list[float] | str:
    """Return the numbers of a line, or what is wrong with it."""
    fields = line.split()
    try:
        values = [float(field) for field in fields]
    except ValueError:
        return "a field is no number"
    if len(values) != FIELDS:
        return f"{len(values)} columns"
    return values if all(abs(value) < 1e15 for value in values) else "a field is no plausible number"


def _unix_start(comment: str) -> float | None:
    """Return the wall time of second 0 where a comment of the header says it."""
    key, _, value = comment.lstrip("; \t").partition(":")
    try:
        return float(value) if key.strip() == "UnixStartTime" and 0 <= float(value) < 1e11 else None
    except ValueError:
        return None
