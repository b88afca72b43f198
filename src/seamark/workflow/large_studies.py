"""Changes to Snakemake 9, in this process, without which studies of thousands of trials take too much CPU time."""

from typing import Any

DEFAULT_RATE = (100, 1)
"""Snakemake's own limit: 100 jobs in one second."""


def lift_default_rate_limit(scheduler: Any) -> None:
    """Let a run start jobs at any rate, unless the user set a limit. `scheduler` is Snakemake's JobScheduler.

    With a limit, each scheduling round starts a timer that starts another round: every finished job adds one more
    round per second until the run ends, each over all jobs that are ready. After 1,000 trials they fill a core,
    beside what is measured.
    """
    limit = scheduler.job_rate_limiter
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
                self._n_until_ready[each] == sum(inside(self._group.get(other)) for other in self._dependencies[each])
                for each in group
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
