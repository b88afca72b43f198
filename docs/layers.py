"""The packages in src, their rooms and floors, and the imports between them, read from source. Imports none of it."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Room:
    """A folder directly in a package, or a module such as `errors`. It imports only from rooms on lower floors."""

    floor: int
    what: str


ROOMS: Mapping[str, Room] = {
    "errors": Room(floor=0, what="errors printed without a traceback, and the nearest guess"),
    "stats": Room(floor=0, what="quantiles, histogram, steady state, rank tests; independent of benchmarks"),
    "model": Room(floor=1, what="frozen nouns: scenario, load profile, service, site, plan, trial, sample, results"),
    "patterns": Room(floor=2, what="load patterns: the times at which requests are due, computed or from a trace"),
    "storage": Room(floor=2, what="every path of a study, and files written atomically"),
    "datasets": Room(floor=3, what="data sets: read, checked, kept once in the form that drivers read"),
    "analysis": Room(floor=3, what="from samples and telemetry to metrics, verdicts and the summary of a scenario"),
    "dispatch": Room(
        floor=3, what="allocation of machines to jobs: local or Slurm; identity of node and job, fencing"
    ),
    "platform": Room(floor=3, what="processes, ports, sockets, timers, TLS, pinning, fork server"),
    "config": Room(floor=4, what="YAML decoded into the nouns, with every mistake at once; JSON Schemas"),
    "load": Room(floor=4, what="load generation: engine, workers, coordinator; owns the only request clock"),
    "testservers": Room(floor=4, what="test servers: null server and reference server"),
    "drivers": Room(floor=5, what="the protocol of each service: requests encoded, replies decoded"),
    "planning": Room(floor=5, what="from a scenario and a site to deployments and trials; names, hashes, seeds"),
    "report": Room(floor=5, what="tables, figures and pages"),
    "telemetry": Room(floor=5, what="samplers of host, processes, GPU, energy and service; provenance of a node"),
    "history": Room(floor=6, what="runs of a scenario side by side, their index, series, change points and gates"),
    "services": Room(floor=6, what="a server's life: supervisor, runtimes, images, persistent servers"),
    "trials": Room(floor=7, what="a deployment served, a trial measured; search, quick load, calibration, self-test"),
    "housekeeping": Room(floor=8, what="retention, imported results, logs, progress, disk space, doctor"),
    "workflow": Room(floor=8, what="the DAG for Snakemake, its rules' functions, derivation, exported Slurm scripts"),
    "cli": Room(floor=9, what="the command bench, a thin module a verb"),
}
"""Floors of the core's rooms; a new room is a row here. Nothing but errors.py lies loose in the package."""

ROOMS_OF_PLUGINS: Mapping[str, Mapping[str, Room]] = {
    "seamark_simulate": {
        "plugin": Room(floor=0, what="what simulation adds to `bench`"),
        "model": Room(floor=0, what="fitted models, capacity plans, formulas of queues"),
        "simulation": Room(
            floor=1,
            what="workflows on GPUs, stations, LLM replicas on a virtual clock; bounds, checker, GPU memory",
        ),
        "fit": Room(floor=2, what="models of servers fitted to measured trials: parameters, contradictions, score"),
        "config": Room(floor=2, what="systems, machines, workloads and fits read from files"),
        "report": Room(floor=2, what="schedules, policies, predictions and capacity plans on pages and as text"),
        "planning": Room(floor=3, what="GPU memory of a plan's servers"),
        "trials": Room(floor=4, what="drivers of simulated services; simulation, fit and capacity as verbs run them"),
        "cli": Room(floor=5, what="the verbs of simulation"),
    },
    "seamark_pipelines": {
        "plugin": Room(floor=0, what="what pipelines add to `bench`"),
        "model": Room(floor=0, what="a pipeline as frozen nouns, and a query as stages see it"),
        "flow": Room(floor=1, what="stages at work: queues, threads, schedulers; names of the original benchmark"),
        "config": Room(floor=2, what="pipeline files read; a pipeline as a workload of a scenario"),
        "stages": Room(floor=2, what="families of stages"),
        "drivers": Room(floor=3, what="a query as a request"),
        "cli": Room(floor=4, what="the verbs of pipelines"),
    },
    "seamark_kubernetes": {
        "plugin": Room(floor=0, what="what Kubernetes adds to `bench`"),
        "tekton": Room(floor=0, what="Tekton pipelines as text: tasks in an order, and a scenario as manifests"),
        "llmd": Room(floor=0, what="experiments of llm-d-benchmark as scenarios, trials as its reports"),
        "pod": Room(floor=1, what="steps of a pod that measures a deployment, and the sidecar that serves it"),
        "cli": Room(floor=2, what="the verbs of Kubernetes"),
    },
    "seamark_evaluate": {
        "attention": Room(floor=0, what="methods of attention, and a language model whose answers are known"),
        "tasks": Room(floor=1, what="benchmarks, questions and scorers of language models"),
        "config": Room(floor=2, what="benchmarks, methods and tasks read from YAML"),
        "drivers": Room(floor=2, what="questions sent to a server of language models, and their scores"),
        "server": Room(floor=2, what="server of a language model with methods of attention"),
        "planning": Room(floor=3, what="items of a trial: their number, published figures and answer key"),
        "evaluation": Room(floor=4, what="matrices of models, attention and benchmarks from Python; result trees"),
        "cli": Room(floor=5, what="bench export evaluation"),
        "plugin": Room(floor=0, what="what evaluations add to `bench`"),
    },
}
"""Floors of the rooms of each plugin. A plugin imports from the core and itself, the core imports from no plugin."""

Arrows = dict[str, dict[str, str]]
"""Room -> room that it imports -> one place where it does, as `src/seamark/planning/plan.py:6`."""


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """Return line and full name of every import in a file, also those inside functions and for types only.

    `from a import b` gives both `a` and `a.b`, as b may be a module.
    """
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            module = ("." * node.level) + (node.module or "")
            yield node.lineno, module
            for name in node.names:
                yield node.lineno, f"{module}.{name.name}"


def sources(package: Path) -> Iterator[tuple[str, Path]]:
    """Yield room and path of every Python file of the package; `shipped` has copies of other files."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts[0] != "shipped" and parts != ("__init__",):
            yield parts[0], path


def rooms_in(package: Path) -> set[str]:
    """Return the rooms that exist in the package."""
    return {room for room, _ in sources(package)}


def arrows(package: Path) -> Arrows:
    """Return which room imports which, with a place for each arrow."""
    there = rooms_in(package)
    found: Arrows = {room: {} for room in sorted(there)}
    for room, path in sources(package):
        for line, name in imports(path):
            words = name.split(".")
            if words[0] == package.name and len(words) > 1 and words[1] in there and words[1] != room:
                found[room].setdefault(words[1], f"{path.relative_to(package.parents[1]).as_posix()}:{line}")
    return found


def breaches(found: Arrows, rooms: Mapping[str, Room] = ROOMS) -> list[str]:
    """Return a line for each rule that the arrows break, with the remedy."""
    lines = [
        f"the room '{room}' has no floor. Add it to ROOMS in docs/layers.py: one above the highest that it imports."
        for room in found
        if room not in rooms
    ]
    for room, targets in found.items():
        lines += [
            f"{place}: '{room}' (floor {rooms[room].floor}) imports '{target}' (floor {rooms[target].floor})."
            " Imports go to lower floors: move the shared part to a lower room, or pass it in as an argument."
            for target, place in targets.items()
            if room in rooms and target in rooms and rooms[target].floor >= rooms[room].floor
        ]
    return lines


def circles(package: Path) -> list[str]:
    """Return each group of files that import each other in a circle, as one line."""
    names = {path: _module(path, package) for _, path in sources(package)}
    files = {name: path for path, name in names.items()}
    found: Arrows = {
        name: {
            target: f"{path.relative_to(package.parents[1]).as_posix()}:{line}"
            for line, target in imports(path)
            if target in files and target != name and not files[target].name.startswith("__init__")
        }
        for path, name in names.items()
    }
    circle = circle_in(found)
    return [", ".join(f"{a} -> {b} ({found[a][b]})" for a, b in pairwise(circle))] if circle else []


def _module(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circle_in(found: Arrows) -> list[str]:
    """Return the nodes of one circle, the first repeated at the end, or nothing."""
    done: set[str] = set()

    def visit(room: str, path: list[str]) -> list[str]:
        if room in path:
            return [*path[path.index(room) :], room]
        if room in done:
            return []
        for target in found.get(room, {}):
            if circle := visit(target, [*path, room]):
                return circle
        done.add(room)
        return []

    return next((circle for room in found if (circle := visit(room, []))), [])


def direct(found: Arrows) -> dict[str, list[str]]:
    """Return the arrows without those that a longer way implies, so that a picture of them can be read."""
    below = {room: _reached(room, found) for room in found}
    return {
        room: [t for t in targets if not any(t in below[other] for other in targets if other != t)]
        for room, targets in found.items()
    }


def _reached(room: str, found: Arrows) -> set[str]:
    reached: set[str] = set()
    ahead = list(found[room])
    while ahead:
        if (target := ahead.pop()) not in reached:
            reached.add(target)
            ahead += found[target]
    return reached


def strangers(package: Path) -> list[str]:
    """Return a line for each import of a package in src that is neither the core nor this one."""
    others = {each.name for each in package.parent.glob("seamark*/")} - {package.name, "seamark"}
    return [
        f"{path.relative_to(package.parents[1]).as_posix()}:{line}: imports '{name}' of a plugin."
        " Ask `Plugin`, or move what both need into the core."
        for _, path in sources(package)
        for line, name in imports(path)
        if name.split(".")[0] in others
    ]


def drawn(found: Arrows, rooms: Mapping[str, Room] = ROOMS) -> str:
    """Return the rooms as Markdown: a line for each with its floor; the core has a picture of the direct arrows."""
    lines = []
    if rooms is ROOMS:
        pointed = {room: sorted(targets) for room, targets in direct(found).items() if targets}
        lines += ["```mermaid", "flowchart TD"]
        lines += [f"  {room} --> {' & '.join(targets)}" for room, targets in pointed.items()]
        lines += ["```", ""]
    for room in sorted(found, key=lambda room: (-rooms[room].floor, list(rooms).index(room))):
        lines.append(f"- {rooms[room].floor} `{room}`: {rooms[room].what}")
    return "\n".join(lines)
