"""A scenario as manifests for Tekton: a task run for each deployment, in an order, with the scripts of every other
run."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined

from seamark.dispatch.dispatcher import leaves_this_machine
from seamark.dispatch.job import gpus_per_node
from seamark.dispatch.order import UNROLL, Order, Unit, Wait, order_of
from seamark.errors import Mistake, UserError
from seamark.model.dotted import is_dotted
from seamark.model.plurals import counted
from seamark.model.trial import Deployment
from seamark.planning.plan_order import begun_in, units_of
from seamark.planning.study import Study
from seamark.storage.documents import write_text
from seamark_kubernetes.tekton.deployments import PASSED, combinations
from seamark_kubernetes.tekton.lines import flow, word
from seamark_kubernetes.tekton.matrix import Combination, matrix_lines, params_lines
from seamark_kubernetes.tekton.transform import LARGEST_MATRIX, distinct_names, last_of

TASK = "run-experiment"
NO_LIMIT = 'timeout: "0"'
"""Of a task: Tekton ends one without a limit of its own after an hour, whatever that of its run is."""
LARGEST_OBJECT = 400_000
"""Bytes of a PipelineRun as it is written. A cluster keeps about 1 MiB of an object, and the state of a run repeats
its pipeline."""
QUEUE = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, kw_only=True)
class PipelineTask:
    """A task of a pipeline: one deployment, or a matrix of several. `kind` is the Task of their resources, `after`
    are the tasks for which it waits."""

    name: str
    kind: str
    rows: tuple[Combination, ...]
    deployments: tuple[str, ...]
    after: tuple[str, ...] = ()

    @property
    def fixed(self) -> Combination:
        """The levels that all of its deployments have."""
        first = self.rows[0]
        return {name: level for name, level in first.items() if all(row[name] == level for row in self.rows)}

    @property
    def lines(self) -> list[str]:
        """The task as lines of YAML without indent."""
        fixed = self.fixed
        varied = [{name: level for name, level in row.items() if name not in fixed} for row in self.rows]
        title = ", ".join(f"{name} {level}" for name, level in fixed.items())
        return [
            f"name: {self.name}",
            *([f"displayName: {flow(title)}"] if title else []),
            *([f"runAfter: [{', '.join(self.after)}]"] if self.after else []),
            f"taskRef: {{name: {self.kind}}}",
            "onError: continue",
            NO_LIMIT,
            *params_lines(fixed | {name: f"$(params.{name})" for name in PASSED}),
            *(matrix_lines(varied) if len(varied) > 1 else []),
        ]


@dataclass(frozen=True, kw_only=True)
class Export:
    """What was written: names of files below `folder`, and notes for the user."""

    folder: Path
    files: tuple[str, ...]
    notes: tuple[str, ...]


def export_tekton(study: Study, folder: Path, steps: Collection[str], *, image: str | None = None) -> Export:
    """Write the manifests of a study's scenario to a folder. `steps` are those of a pod in their order, `image` is
    that of every container.

    Raises UserError for a plan that pods cannot run, and for an order that Tekton cannot keep.
    """
    order = order_of(study.site.order)
    _require(study, order)
    units = units_of(study.plan, study.services)
    rows, kinds = combinations(study.plan, study.services), _kinds(study)
    kind_of = {name: kind for kind, alike in kinds.items() for name in alike}
    tasks = pipeline_tasks(order, units, rows, kind_of)
    preset = preset_of(order, product=not any("  include:" in task.lines for task in tasks))
    facts = {
        "scenario": study.scenario.name,
        "scenario_file": str(study.scenario_path),
        "site": study.site_name,
        "levels": list(next(iter(rows.values()))),
        "image": image or f"seamark:{version('seamark')}",
        "folder": study.root.resolve().name,
        "kinds": {kind: _resources(study, alike[0]) for kind, alike in kinds.items()},
        "passed": PASSED,
        "steps": tuple(steps),
        "order": order.text,
        "preset": preset,
    }
    text = _templates(facts)
    runs = list(_runs(study.scenario.name, preset, tasks, order))
    written = {
        "pipeline/roles.yaml": text("roles.yaml.j2"),
        "pipeline/stepactions.yaml": text("stepactions.yaml.j2"),
        "pipeline/experiment-task.yaml": text("experiment-task.yaml.j2"),
        "README.md": text(
            "README.md.j2", parts=[name for name, _ in runs], deployments=counted(len(units), "deployment")
        ),
    }
    written |= {f"pipeline/{name}": run for name, run in runs}
    for old in (folder / "pipeline").glob(f"pipelinerun-{preset}-part-*.yaml"):
        old.unlink()
    for name, content in written.items():
        write_text(folder / name, content)
    return Export(folder=folder, files=tuple(written), notes=tuple(_notes(order, runs, kinds)))


def _require(study: Study, order: Order) -> None:
    """Raise UserError for what pods, or an order of Tekton's, cannot do."""
    site, plan = study.site, study.plan
    path = f"site '{study.site_name}'"
    if leaves_this_machine(site) or site.in_images:
        what = "its servers run in containers of their own" if site.in_images else "it has a batch system"
        text = f"{what}, and a pod has neither. Give --site local, or another site with 'runtime: venv'."
        raise UserError(Mistake(code="conflict", path=path, text=text))
    where = partial(Mistake.at, study.scenario.lines.get("resources.nodes", f"{study.scenario_path}: nodes"))
    if several := max((deployment.nodes for deployment in plan.deployments), default=1) - 1:
        raise UserError(where(f"{several + 1} nodes: a pod is on one node. Write 'nodes: 1'.", "out_of_limits"))
    if not units_of(plan, study.services):
        text = "it has simulations alone, which need no cluster. `bench submit` runs them."
        raise UserError(Mistake(code="invalid", file=str(study.scenario_path), text=text))
    if why := _not_of_tekton(order):
        raise UserError(Mistake(code="conflict", path=f"order '{order.text}'", text=why))


def _not_of_tekton(order: Order, *, inside: bool = False) -> str | None:
    """Return why Tekton cannot keep an order; `inside`: of a group."""
    if is_dotted(order.name):
        return "a function is asked while deployments run, and Tekton knows the order before. Write 'chained: N'."
    if order.name == "window" and inside:
        return "Tekton has no limit of what runs at once in a group. Write 'chained: N' or 'barrier: N' there."
    return None if order.then is None else _not_of_tekton(order.then, inside=True)


def _kinds(study: Study) -> dict[str, list[str]]:
    """Return the ids of deployments by their Task: those of equal resources have one."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for unit in units_of(study.plan, study.services):
        resources = _resources(study, unit.id)
        alike.setdefault(tuple(resources.items()), []).append(unit.id)
    return {f"experiment{f'-{number}' if number > 1 else ''}": ids for number, ids in enumerate(alike.values(), 1)}


def _resources(study: Study, name: str) -> dict[str, object]:
    deployment: Deployment = study.deployment(study.scenario.name, name)
    gpus = gpus_per_node(deployment, study.services[deployment.service]) if deployment.gpus else 0
    return {"cpu": deployment.cpus_per_task, "memory": f"{deployment.mem_gb}G", "gpus": gpus}


def pipeline_tasks(
    order: Order, units: Sequence[Unit], rows: Mapping[str, Combination], kind_of: Mapping[str, str]
) -> list[PipelineTask]:
    """Return the tasks of an order: with a matrix where all that wait for the same may run at once, else one for each
    deployment."""
    steps, innermost = order.arranged(units), order
    waits = [steps.waits(at) if order.name != "window" else Wait() for at in range(len(units))]
    while innermost.then is not None:
        innermost = innermost.then
    together = innermost.name in ("all", "longest_first", UNROLL)
    groups: dict[tuple[object, str], list[int]] = {}
    places = {unit.id: at for at, unit in enumerate(units)}
    for at in map(places.__getitem__, begun_in(order, units)):
        groups.setdefault((waits[at].after if together else at, kind_of[units[at].id]), []).append(at)
    for group in groups.values():
        group.sort(key=lambda at: [_natural(level) for level in rows[units[at].id].values()])
    parts = [
        group[first : first + LARGEST_MATRIX]
        for group in groups.values()
        for first in range(0, len(group), LARGEST_MATRIX)
    ]
    tasks = [
        PipelineTask(
            name="",
            kind=kind_of[units[part[0]].id],
            rows=tuple(rows[units[at].id] for at in part),
            deployments=tuple(units[at].id for at in part),
        )
        for part in parts
    ]
    names = distinct_names(TASK, [task.fixed for task in tasks], ("report",))
    name_of = {at: name for name, part in zip(names, parts, strict=True) for at in part}
    found: dict[str, list[str]] = {}
    ends: dict[tuple[int, ...], list[str]] = {}
    for name, part in zip(names, parts, strict=True):
        after = waits[part[0]].after
        if after not in ends:
            ends[after] = last_of([*dict.fromkeys(name_of[at] for at in after)], found)
        found[name] = ends[after]
    return [replace(task, name=name, after=tuple(found[name])) for task, name in zip(tasks, names, strict=True)]


def _natural(level: str) -> tuple[bool, float, str]:
    """Return what levels are sorted by: numbers first."""
    try:
        return False, float(level), level
    except ValueError:
        return True, 0.0, level


def preset_of(order: Order, *, product: bool = True) -> str:
    """Return the name of the PipelineRun of an order; `product`: no list of combinations is needed."""
    if order.name == UNROLL:
        inner = preset_of(order.then).removeprefix("sequential-") if order.then else "matrix"
        words = [*order.factors, *([] if inner == "matrix" else [inner])]
        words += ["parallel"] if order.groups == "parallel" else []
        return re.sub(r"[^\w.-]", "-", f"sequential-unroll-{'-'.join(words)}")
    forms: Mapping[str, str] = {
        "sequential": "sequential-1",
        "barrier": f"sequential-{order.count}-barrier",
        "chained": f"sequential-{order.count}-sliding",
        "window": f"window-{order.count}",
    }
    return forms.get(order.name, "matrix" if product else "matrix-subset")


def _runs(scenario: str, preset: str, tasks: Sequence[PipelineTask], order: Order) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file with PipelineRuns: one, or as many as the size of an object asks for."""
    file = f"pipelinerun-{preset}"
    [name] = distinct_names(scenario, [{"preset": preset}], ())
    if order.name == "window":
        names = distinct_names(scenario, [task.fixed for task in tasks], (f"{scenario}-report",))
        alone = [_run(run, [task], order, report=False) for run, task in zip(names, tasks, strict=True)]
        yield f"{file}.yaml", "---\n".join(alone)
        yield f"{file}-report.yaml", _run(f"{name}-report"[:63], [], order)
        return
    parts: list[list[PipelineTask]] = [[]]
    size = 0
    for task in tasks:
        own = sum(len(line) + 1 for line in (*_item(task.lines), *_annotated(task)))
        if size + own > LARGEST_OBJECT and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(task)
        size += own
    for number, part in enumerate(parts, 1):
        mark = f"-part-{number}" if len(parts) > 1 else ""
        report = number == len(parts)
        yield f"{file}{mark}.yaml", _run(f"{name[: 63 - len(mark)]}{mark}", part, order, report=report)


def _run(name: str, tasks: Sequence[PipelineTask], order: Order, *, report: bool = True) -> str:
    """Return a PipelineRun as text. What waits for a task that is not in it waits for nothing."""
    here: Collection[str] = {task.name for task in tasks}
    queued = order.name == "window" and tasks
    single = [task for task in tasks if len(task.deployments) == 1]
    given = ["params:", *(f"  - {{name: {name}, value: {flow(value)}}}" for name, value in PASSED.items())]
    run_report = [
        f"name: {'report' if tasks else TASK}",
        "taskRef: {name: report}",
        NO_LIMIT,
    ]
    bodies = [
        replace(task, after=tuple(earlier for earlier in task.after if earlier in here)).lines for task in tasks
    ]
    bodies = bodies or [run_report]
    return _text(
        [
            f"# Made by `bench export tekton`: the order '{order.text}'.",
            "apiVersion: tekton.dev/v1",
            "kind: PipelineRun",
            "metadata:",
            f"  name: {word(name)}",
            *([f"  labels: {{{QUEUE}: seamark}}"] if queued else []),
            "spec:",
            '  timeouts: {pipeline: "0"}',
            "  taskRunTemplate: {serviceAccountName: seamark}",
            *_indented(given, 2),
            *(["  taskRunSpecs:"] if single else []),
            *(line for task in single for line in _annotated(task)),
            "  pipelineSpec:",
            "    params:",
            *(f"      - {{name: {name}, type: string}}" for name in PASSED),
            "    tasks:",
            *(line for body in bodies for line in _item(body)),
            *(["    finally:", *_item(run_report)] if report and tasks else []),
        ]
    )


def _annotated(task: PipelineTask) -> list[str]:
    annotation = f"{{seamark/deployment: {flow(task.deployments[0])}}}"
    return [f"    - pipelineTaskName: {task.name}", f"      metadata: {{annotations: {annotation}}}"]


def _item(lines: Sequence[str]) -> list[str]:
    return [f"      - {lines[0]}", *_indented(lines[1:], 8)]


def _indented(lines: Sequence[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _notes(order: Order, runs: Sequence[tuple[str, str]], kinds: Collection[str]) -> Iterator[str]:
    if order.name == "window":
        yield (
            f"Kueue keeps the limit: a LocalQueue 'seamark' whose ClusterQueue has the nominalQuota {order.count} of"
            " 'pods', or of 'tekton.dev/pipelineruns' with tekton-kueue. Without Kueue all run at once."
        )
        yield "The report is a PipelineRun of its own: create it when the others have ended."
    elif len(runs) > 1:
        parts = counted(len(runs), "part")
        yield f"{parts}, as an object of Kubernetes has a size limit: create each when the one before has ended."
    if len(kinds) > 1:
        yield f"{counted(len(kinds), 'Task')}: a pod has one size, and deployments request different resources."


def _level(name: str) -> str:
    """Return the argument of a step that names a level by its parameter."""
    variable = f"params['{name}']" if "." in name else f"params.{name}"
    return flow(f"--level={name}=$({variable})")


def _templates(facts: Mapping[str, object]) -> Callable[..., str]:
    """Return what renders a template of this package, by its name, with facts and further values."""
    environment = Environment(
        loader=FunctionLoader(
            lambda name: files("seamark_kubernetes.tekton").joinpath(name).read_text(encoding="utf-8")
        ),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["flow"] = flow
    environment.filters["level"] = _level
    return lambda template, **values: environment.get_template(template).render({**facts, **values})
