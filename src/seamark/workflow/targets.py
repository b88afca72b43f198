"""Targets on the command line of Snakemake: a wrong one is a mistake of the user's, not of a rule."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from seamark.errors import UserError, did_you_mean
from seamark.workflow.dag import Dag


def check_targets(dag_class: Any, dag: Dag, error: type[Exception]) -> None:
    """Check targets before Snakemake does, in this process: its own message has a traceback and no nearest name.

    `dag_class` is Snakemake's class DAG, `error` what it prints as one line.
    """
    init = dag_class.init

    async def checked(self: Any, *arguments: Any, **options: Any) -> None:
        try:
            require_targets(dag, self.targetfiles, list(self.rules))
        except UserError as mistake:
            raise error(str(mistake)) from None
        await init(self, *arguments, **options)

    dag_class.init = checked


def require_targets(dag: Dag, targets: Iterable[str], rules: Collection[Any]) -> None:
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


def _known(dag: Dag, rules: Iterable[Any]) -> Iterator[str]:
    yield from ("all", *dag.targets())
    for rule in rules:
        for file in rule.products():
            if set(file.get_wildcard_names()) <= {"scenario"}:
                yield str(file.apply_wildcards({"scenario": dag.study.scenario.name}))
