"""Reader of WfCommons instances (WfFormat 1.5 and 1.6): one workflow of tasks with the times that they took.

Format: https://github.com/wfcommons/WfFormat. A task becomes a node on as many GPUs as it had cores (`coreCount`,
else 1), with its `runtimeInSeconds`. Tasks are no models: nothing is loaded or switched before them.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from seamark.config.decode import WRONG, decode, is_mapping
from seamark.config.json_source import load_document
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark_simulate.config.workflow_files import check_id
from seamark_simulate.config.workloads.samples import task_model, task_models
from seamark_simulate.simulation.system import Edge, Request, System, Workflow, WorkflowNode, cycle_of
from seamark_simulate.simulation.workload import Requests

VERSIONS = ("1.5", "1.6")
MOST_CORES = 100_000


def is_wfcommons(head: bytes) -> bool:
    """Return whether the beginning of a file is that of a JSON object with a schema version and a workflow."""
    return head.lstrip()[:1] == b"{" and b'"schemaVersion"' in head


def read_wfcommons(path: Path, _: System | None, mistakes: Mistakes) -> Requests | None:
    """Return an instance as a system of one workflow and one request to it, None after noting mistakes."""
    before = mistakes.count
    tree = load_document(path, mistakes)
    if tree is None or mistakes.count > before:
        return None
    version = tree.value.get("schemaVersion")
    if version is None or str(version.value) not in VERSIONS:
        at = tree if version is None else version
        mistakes.add(at, f"WfFormat {', '.join(VERSIONS)} can be read. Convert the file with WfCommons' tool.")
        return None
    name = str(tree.value["name"].value) if "name" in tree.value else path.stem
    if "name" in tree.value:
        check_id(name, tree.value["name"], mistakes)
    workflow = _part(tree, "workflow", mistakes)
    tasks = _tasks(workflow, "specification", mistakes)
    ran = {_text(run, "id", mistakes): run for run in _tasks(workflow, "execution", mistakes)}
    if mistakes.count > before:
        return None
    places: dict[str, Item] = {}
    for task in tasks:
        key = _text(task, "id", mistakes)
        check_id(key, task.value["id"], mistakes)
        if key in places:
            mistakes.add(task.value["id"], f"the task '{key}' is there already. Give each task an id of its own.")
        places[key] = task
    edges = _edges(places, mistakes)
    times_s, cores = _executions(places, ran, mistakes)
    if mistakes.count > before:
        return None
    nodes = tuple(WorkflowNode(id=key, model=task_model(cores[key]).id) for key in places)
    whole = Workflow(id=name, name=name, nodes=nodes, edges=edges)
    return Requests(
        system=System(models=task_models(cores.values()), workflows={name: whole}),
        requests=(Request(id=name, workflow=name, at_s=0.0, node_execution_times_s=times_s),),
    )


def _part(tree: Item | None, key: str, mistakes: Mistakes) -> Item | None:
    """Return a mapping below a mapping, None after noting a mistake."""
    if tree is None:
        return None
    part: Item | None = tree.value.get(key)
    if part is None:
        mistakes.add(tree, f"the key '{key}' is missing: this is no whole WfCommons instance.")
        return None
    return part if is_mapping(part, mistakes) else None


def _tasks(workflow: Item | None, key: str, mistakes: Mistakes) -> list[Item]:
    part = _part(workflow, key, mistakes)
    if part is None:
        return []
    tasks = part.value.get("tasks")
    if tasks is None or not isinstance(tasks.value, list) or not tasks.value:
        mistakes.add(part if tasks is None else tasks, "'tasks' must be a list of one task or more.")
        return []
    return [task for task in tasks.value if is_mapping(task, mistakes)]


def _text(task: Item, key: str, mistakes: Mistakes) -> str:
    if key not in task.value:
        mistakes.add(task, f"the key '{key}' is missing.")
        return ""
    return str(task.value[key].value)


def _edges(places: Mapping[str, Item], mistakes: Mistakes) -> tuple[Edge, ...]:
    """Return an edge for each parent and child that tasks name, in the order of tasks."""
    edges: dict[tuple[str, str], Item] = {}
    for key, task in places.items():
        for role in ("parents", "children"):
            others = task.value.get(role)
            for other in others.value if others is not None and isinstance(others.value, list) else ():
                name = str(other.value)
                if name not in places:
                    mistakes.add(other, f"no task has the id '{name}'.{did_you_mean(name, places)}")
                    continue
                edges.setdefault((name, key) if role == "parents" else (key, name), other)
    circle = cycle_of(list(edges))
    if circle:
        text = f"a cycle: {' -> '.join(circle)}. Its tasks wait for each other; remove an edge."
        mistakes.add(edges[circle[0], circle[1]], text)
    return tuple(Edge(source=source, target=target) for source, target in edges)


def _executions(
    places: Mapping[str, Item], ran: Mapping[str, Item], mistakes: Mistakes
) -> tuple[dict[str, float], dict[str, int]]:
    """Return by task the time that it took in seconds, and the number of its cores."""
    times_s, cores = {}, {}
    for key, task in places.items():
        if key not in ran:
            mistakes.add(task, f"the execution has no task '{key}', so its time is not known.")
            continue
        times_s[key] = _number(ran[key], "runtimeInSeconds", None, mistakes)
        cores[key] = max(1, math.ceil(_number(ran[key], "coreCount", 1.0, mistakes)))
    return times_s, cores


def _number(task: Item, key: str, default: float | None, mistakes: Mistakes) -> float:
    item = task.value.get(key)
    if item is None or item.value is None:
        if default is None:
            mistakes.add(task, f"the key '{key}' is missing: the time of the task is not known.")
        return default or 0.0
    value = decode(item, float, mistakes)
    if value is WRONG:
        return 0.0
    if not 0 <= value < MOST_CORES * 1e6:
        mistakes.add(item, f"{item.shown} is no plausible '{key}'. Give 0 or more.")
        return 0.0
    return float(value)
