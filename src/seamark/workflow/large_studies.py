"""Large groups in Snakemake: its checks of a group run once per group instead of once per job.

Snakemake 9 checks for every job whether its group is ready and depends on itself; each check visits every job of the
group, and compares sets of all of them. The cost is the cube of a deployment's trials, in every run and dry run.
"""

from typing import Any


def check_groups_once(dag_class: Any) -> None:
    """Change Snakemake's class DAG, for this process. Does nothing the second time."""
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
