"""What depends on the inside of Snakemake: methods that are replaced, and files that it keeps. All of it is here.

| function | touches | why | without it |
| --- | --- | --- | --- |
| `check_groups_once` | `DAG._ready`, `update_ready`, `_check_groups` | takes the cube of a group's jobs | slow runs |
| `check_targets` | `DAG.init` | a wrong target ends in a traceback | Snakemake's own message |
| `lift_default_rate_limit` | `job_rate_limiter` | every job leaves a timer | a core is full after 1,000 trials |
| `forget_lock` | `.snakemake/locks` | a killed run leaves its lock | `snakemake --unlock` by hand |
| `was_interrupted` | `.snakemake/incomplete` | what waits for such a file is not made | a second `bench submit` |

Methods are replaced in versions that this was tried with. Any other Snakemake runs as it is, and one line says so.
"""

import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from seamark.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from seamark.workflow.dag import Dag

TRIED = ("9.27.",)
"""Beginnings of the versions of Snakemake whose methods may be replaced."""

DEFAULT_RATE = (100, 1)
"""Snakemake's own limit: 100 jobs in one second."""


def adapt(version: str, dag_class: Any, dag: "Dag", error: type[Exception]) -> str | None:
    """Replace methods of Snakemake's class DAG in this process; return a line if this version was not tried.

    `error` is what Snakemake prints as one line.
    """
    if not version.startswith(TRIED):
        tried = " and ".join(f"{prefix}x" for prefix in TRIED)
        return (
            f"Note: Snakemake {version} is newer than {tried}, which Seamark was tried with: large studies take more"
            " CPU time, and a wrong target has Snakemake's own message."
        )
    check_groups_once(dag_class)
    check_targets(dag_class, dag, error)
    return None


def lift_default_rate_limit(version: str, scheduler: Any) -> None:
    """Let a run start jobs at any rate, unless the user set a limit. `scheduler` is Snakemake's JobScheduler.

    With a limit, each scheduling round starts a timer that starts another round: every finished job adds one more
    round per second until the run ends, each over all jobs that are ready. After 1,000 trials they fill a core,
    beside what is measured.
    """
    limit = getattr(scheduler, "job_rate_limiter", None) if version.startswith(TRIED) else None
    if limit is not None and (limit.max_jobs, limit.timespan) == DEFAULT_RATE:
        scheduler.job_rate_limiter = None


def check_groups_once(dag_class: Any) -> None:
    """Run the checks of a group once per group instead of once per job. Does nothing the second time.

    Snakemake checks for every job whether its group is ready and depends on itself; each check visits every job of
    the group, and compares sets of all of them. The cost is the cube of a deployment's trials, in every run and dry
    run. `dag_class` is Snakemake's class DAG.
    """
    if getattr(dag_class, "_has_large_groups", False):
        return
    is_ready, update_ready, check_groups = dag_class._ready, dag_class.update_ready, dag_class._check_groups

    def update(self: Any, jobs: Any = None) -> Any:
        self._known_ready = {}  # no job ends during an update
        try:
            return update_ready(self, jobs)
        finally:
            self._known_ready = None

    def ready(self: Any, job: Any) -> bool:
        group, known = self._group.get(job), getattr(self, "_known_ready", None)
        if group is None or known is None:
            return bool(is_ready(self, job))

        def inside(other: Any) -> bool:
            return other is group or (other is not None and bool(other == group))

        if id(group) not in known:
            known[id(group)] = all(
                self._n_until_ready[member]
                == sum(inside(self._group.get(other)) for other in self._dependencies[member])
                for member in group
            )
        return bool(known[id(group)])

    def check(self: Any) -> None:
        groups = self._group
        self._group = {id(group): group for group in groups.values()}
        try:
            check_groups(self)
        finally:
            self._group = groups

    dag_class._ready, dag_class.update_ready, dag_class._check_groups = ready, update, check
    dag_class._has_large_groups = True


def check_targets(dag_class: Any, dag: "Dag", error: type[Exception]) -> None:
    """Check targets before Snakemake does: its own message has a traceback and no nearest name."""
    init = dag_class.init

    async def checked(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            require_targets(dag, self.targetfiles, list(self.rules))
        except UserError as mistake:
            raise error(str(mistake)) from None
        await init(self, *arguments, **options)

    dag_class.init = checked


def require_targets(dag: "Dag", targets: Iterable[str], rules: Collection[Any]) -> None:
    """Raise UserError for a file that no rule makes, or that is of no scenario, deployment or trial. `rules` are
    Snakemake's."""
    for target in targets:
        makers = [rule for rule in rules if rule.is_producer(target)]
        if not makers and not Path(target).exists():
            guess = did_you_mean(target, _known(dag, rules))
            files = ", ".join(dag.targets()[-1:])
            raise UserError(
                f"{target}: no such target.{guess} Targets are files of results, such as {files}, and all."
            )
        for rule in makers:
            wildcards: Any = SimpleNamespace(**rule.get_wildcards(target))
            if hasattr(wildcards, "scenario"):
                dag.study.plan_of(wildcards.scenario)
            if hasattr(wildcards, "deployment"):
                dag.deployment(wildcards)


def _known(dag: "Dag", rules: Iterable[Any]) -> Iterator[str]:
    yield from ("all", *dag.targets())
    for rule in rules:
        for file in rule.products():
            if set(file.get_wildcard_names()) <= {"scenario"}:
                yield str(file.apply_wildcards({"scenario": dag.study.scenario.name}))


def forget_lock(root: Path) -> None:
    """Remove the lock of a Snakemake that no longer runs."""
    shutil.rmtree(root / ".snakemake" / "locks", ignore_errors=True)


def was_interrupted(root: Path) -> bool:
    """Return whether a run was killed while it wrote a file: Snakemake makes that one again, and nothing of what
    waits for it, as its age is not looked at there."""
    return any((root / ".snakemake" / "incomplete").glob("*"))
