"""A scenario as job scripts for Slurm: one for the deployments of equal resources, one for the report, submit.sh."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined

from seamark.dispatch.dispatcher import leaves_this_machine
from seamark.dispatch.job import (
    JobResources,
    deployment_min,
    gpus_per_node,
    loads_min,
    most_jobs,
    resources_of,
    submit_limits,
)
from seamark.dispatch.order import ALL
from seamark.dispatch.slurm.commands import clock, sbatch_options
from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.model.trial import Deployment, Plan
from seamark.planning.study import Study
from seamark.storage.documents import write_text
from seamark.workflow.lanes import jobs_at_once

LONGEST_ARRAY = 1000
"""Slurm's own limit, unless a site has changed it (MaxArraySize)."""
REPORT_MIN = 30
REPORT_GB = 4
END_S = 120
"""SIGTERM reaches a job this long before its time limit."""


@dataclass(frozen=True, kw_only=True)
class ExportedJob:
    """Deployments of equal resources: the tasks of one array, or a plain job where there is one only.

    `needs_min` are the minutes that the longest of them takes, `time_min` the time limit: less, where the QoS ends a
    job earlier. `service` is that of the first; all request the same GPUs of a node.
    """

    deployments: tuple[Deployment, ...]
    service: Service
    needs_min: int
    time_min: int

    @property
    def is_array(self) -> bool:
        return len(self.deployments) > 1

    def summary(self) -> str:
        """Return one line: number of deployments, resources, time limit."""
        first, count = self.deployments[0], len(self.deployments)
        count_gpus = gpus_per_node(first, self.service) if first.gpus else 0
        gpus = f", {count_gpus} GPU{'s' * (count_gpus > 1)} a node" if count_gpus else ""
        what = f"an array of {count} deployments" if self.is_array else "1 deployment"
        return f"{what}, {first.nodes} x {first.cpus_per_task} CPUs{gpus}, {clock(self.time_min)} at most"


def jobs_of(plan: Plan, site: Site, services: Mapping[str, Service]) -> list[ExportedJob]:
    """Return the jobs of a plan in the order of its deployments; `services` are the recipes by name.

    Raises UserError when a single trial takes longer than the QoS lets a job run.
    """
    trials = plan.by_deployment()
    limit_s = site.qos.get(plan.qos or "")
    limit_min = None if limit_s is None else limit_s // 60
    if limit_min is not None:
        _require_room(plan, site, limit_min)
    found = []
    for alike in _alike(plan.deployments, services):
        for part in _parts(alike, LONGEST_ARRAY):
            needs_min = max(deployment_min(trials[deployment.id], site) for deployment in part)
            time_min = needs_min if limit_min is None else min(needs_min, limit_min)
            service = services[part[0].service]
            found.append(ExportedJob(deployments=part, service=service, needs_min=needs_min, time_min=time_min))
    return found


def options(plan: Plan, site: Site, job: ExportedJob, name: str, at_once: int | None) -> list[str]:
    """Return the options of sbatch for a job; of an array at most `at_once` tasks run at the same time."""
    resources = resources_of(plan, job.deployments[0], job.service, time_min=job.time_min)
    return [
        f"--job-name={name}",
        *(f"--{key}={value}" for key, value in sbatch_options(resources, site).items()),
        *([f"--array=0-{len(job.deployments) - 1}{f'%{at_once}' if at_once else ''}"] if job.is_array else []),
        *_output(plan, "%x_%A_%a" if job.is_array else "%x_%j"),
        f"--signal=B:TERM@{END_S}",
        *site.job_options,
    ]


def report_options(plan: Plan, site: Site, name: str) -> list[str]:
    """Return the options of sbatch for the job that writes the report."""
    charged = JobResources(account=plan.account, partition=plan.partition, qos=plan.qos)
    resources = replace(charged, cpus_per_task=1, mem_gb=REPORT_GB, time_min=REPORT_MIN)
    options = sbatch_options(resources, site).items()
    return [f"--job-name={name}", *(f"--{key}={value}" for key, value in options), *_output(plan, "%x_%j")]


def _output(plan: Plan, name: str) -> list[str]:
    logs = f"logs/{plan.scenario}/{name}"
    return [f"--output={logs}.out", f"--error={logs}.err", "--open-mode=append"]


def _alike(deployments: Sequence[Deployment], services: Mapping[str, Service]) -> Iterator[list[Deployment]]:
    """Yield the deployments of equal resources together, in the order of their first."""

    def resources(each: Deployment) -> tuple[int, ...]:
        return each.nodes, gpus_per_node(each, services[each.service]), each.cpus_per_task, each.mem_gb

    first = {key: at for at, key in reversed(list(enumerate(map(resources, deployments))))}
    for _, alike in groupby(sorted(deployments, key=lambda deployment: first[resources(deployment)]), key=resources):
        yield list(alike)


def _parts(deployments: Sequence[Deployment], longest: int) -> Iterator[tuple[Deployment, ...]]:
    for begin in range(0, len(deployments), longest):
        yield tuple(deployments[begin : begin + longest])


def _require_room(plan: Plan, site: Site, limit_min: int) -> None:
    longest = max(plan.trials, key=lambda trial: loads_min([trial]))
    needs_min = deployment_min([longest], site) + END_S // 60
    if needs_min > limit_min:
        raise UserError(
            f"{plan.source}: qos: '{plan.qos}' ends a job after {limit_min} min, but one trial of {longest.treatment}"
            f" takes {needs_min} min with its server. Choose another QoS, or a shorter duration_s."
        )


SUBMIT = "submit.sh"
REPORT = "report.sbatch"
UNSAFE = re.compile(r'([\\"`]|\$(?![A-Za-z_{]))')
CHECKED = (
    "python=${{SEAMARK_PYTHON:-{python}}}\n"
    "\"$python\" -c 'import seamark' || {{\n"
    '  echo "$python: no interpreter that has seamark. Name one in SEAMARK_PYTHON." >&2\n'
    "  exit 3\n"
    "}}"
)
SHIPPED = "scripts=$(\"$python\" -c 'import seamark; print(seamark.__path__[0])')/shipped/scripts"


@dataclass(frozen=True, kw_only=True)
class Export:
    """Scripts written to `folder`: jobs by script, and notes for the user."""

    folder: Path
    jobs: Mapping[str, ExportedJob]
    notes: tuple[str, ...]


def export_slurm(study: Study, folder: Path, *, python: str | None = None, at_once: int | None = None) -> Export:
    """Write the job scripts of the study's scenario to `folder`, below the study's.

    `python` is the interpreter on the machine of the jobs, None for the study's own, or python3 of PATH; `at_once` is
    the number of concurrent tasks of an array, None for that of the site's profile. Raises UserError for a folder
    elsewhere, and for a site without a batch system.
    """
    if not leaves_this_machine(study.site):
        raise UserError(
            f"site '{study.site_name}': it has no batch system. Name one that has, with --site;"
            " `bench submit` runs it here."
        )
    root = study.root.resolve()
    if not folder.resolve().is_relative_to(root) or folder.resolve() == root:
        raise UserError(f"{folder}: not a folder below the study, {study.root}. Scripts find the study from there.")
    jobs = jobs_of(study.plan, study.site, study.services)
    text, below = _templates(study, python or _python(study.root)), folder.resolve().relative_to(root)
    at_once = jobs_at_once(study) if at_once is None else at_once
    numbers = [f"-{k}" if len(jobs) > 1 else "" for k in range(1, len(jobs) + 1)]
    scripts = {f"deployments{number}.sbatch": job for number, job in zip(numbers, jobs, strict=True)}
    for old in folder.glob("deployments*.sbatch"):
        old.unlink()
    name = study.scenario.name
    for number, (script, job) in zip(numbers, scripts.items(), strict=True):
        several = f"{len(job.deployments)} deployments, a task of an array each,"
        job_text = text(
            "deployments.sbatch.j2",
            what=several if job.is_array else job.deployments[0].id,
            options=options(study.plan, study.site, job, f"{name}{number}", at_once),
            modules=_module_lines(study),
            deployments=[deployment.id for deployment in job.deployments],
        )
        write_text(folder / script, job_text)
    report = report_options(study.plan, study.site, f"{name}-report")
    write_text(folder / REPORT, text("report.sbatch.j2", options=report))
    submit = text(
        "submit.sh.j2",
        limits=submit_limits(study.site, study.plan.qos),
        count=counted(len(study.plan.deployments), "deployment"),
        folder=str(below),
        up="/".join([".."] * len(below.parts)),
    )
    write_text(folder / SUBMIT, submit)
    (folder / SUBMIT).chmod(0o755)
    return Export(folder=folder, jobs=scripts, notes=tuple(_notes(study, jobs)))


def _templates(study: Study, python: str) -> Callable[..., str]:
    """Return what renders a template of this package, by its name, with the facts of a study and other values."""
    environment = Environment(
        loader=FunctionLoader(lambda name: files("seamark.workflow").joinpath(name).read_text(encoding="utf-8")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = shlex.quote
    facts = {
        "scenario": study.scenario.name,
        "scenario_file": str(study.scenario_path),
        "site": study.site_name,
        "interpreter": CHECKED.format(python=shell_path(python)),
        "where": "scripts=scripts" if (study.root / "scripts").is_dir() else SHIPPED,
    }
    return lambda template, **values: environment.get_template(template).render(facts | values)


def shell_path(path: str) -> str:
    """Return a path of a site as a word of bash: `~` and `$NAME` keep their meaning, everything else is quoted."""
    home = path == "~" or path.startswith("~/")
    text = UNSAFE.sub(r"\\\1", path[1:] if home else path)
    plain = re.fullmatch(r"[\w./$+-]*", text) and not home
    return text if plain and "$" not in text else f'"{"$HOME" if home else ""}{text}"'


def _python(root: Path) -> str:
    own = Path(sys.executable)
    here = root.absolute()
    return str(own.relative_to(here)) if own.is_relative_to(here) else "python3"


def _module_lines(study: Study) -> list[str]:
    site = study.site
    if not site.modules:
        return []
    start = [f". {shell_path(site.module_init)}"] if site.module_init else []
    return [*start, f"module load {' '.join(map(shlex.quote, site.modules))}"]


def _notes(study: Study, jobs: Sequence[ExportedJob]) -> list[str]:
    plan = study.plan
    notes = [
        f"{counted(len(job.deployments), 'deployment')} may take {clock(job.needs_min)}, and QoS '{plan.qos}' ends a"
        f" job after {clock(job.time_min)}: it ends with what it has measured then; submit.sh goes on from there."
        for job in jobs
        if job.time_min < job.needs_min
    ]
    tasks, most = sum(len(job.deployments) for job in jobs), most_jobs(study.site, plan.qos)
    if most is not None and tasks + 1 > most:
        notes.append(
            f"A user may have {most} jobs here, and these are {tasks + 1}: {SUBMIT} submits them part by part and"
            " waits until there is room. Leave it running (tmux, nohup); called again, it goes on."
        )
    if study.site.order != ALL.name:
        notes.append(f"`bench submit` keeps the order '{study.site.order}', and these scripts do not.")
    if study.site.in_images:
        notes.append(f"Images come first: bench prepare -c {study.scenario_path} --site {study.site_name}")
    if _python(study.root) == "python3" and "SEAMARK_PYTHON" not in os.environ:
        notes.append("Jobs run python3 of the PATH they are submitted with; --python names another interpreter.")
    return notes
