"""The rooms of src/seamark, their ranks, and the arrows between them as the code has them. Imports none of it."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Room:
    """A module or package directly in src/seamark. It may import a room of lower rank, or one of its own rank
    as long as no circle comes of it. `alone` rooms import nothing of ours and are imported by none."""

    rank: int
    what: str
    alone: bool = False


ROOMS: Mapping[str, Room] = {
    "errors": Room(rank=0, what="mistakes that are printed without a traceback, and 'did you mean'"),
    "redaction": Room(rank=0, what="secrets out of what is written and printed"),
    "plurals": Room(rank=0, what="the plural of a noun, and a count with its noun"),
    "sockets": Room(rank=0, what="what the kernel has counted of TCP connections, by port"),
    "forkserver": Room(rank=0, what="a process that has imported already and forks for each job"),
    "model": Room(rank=1, what="frozen nouns, and YAML read into them with every mistake at once"),
    "shapes": Room(rank=0, what="whether a JSON document has the shape that its reader expects"),
    "documents": Room(rank=0, what="what the JSON documents of the results hold, and what makes each again"),
    "store": Room(rank=1, what="every path of a study, and files written whole or not at all"),
    "slurm": Room(rank=2, what="what we ask of Slurm, what Snakemake is told of its jobs, and why some were lost"),
    "infront": Room(rank=2, what="commands of a study's own that stand before the machine's in the PATH of its run"),
    "turn": Room(rank=2, what="whose turn it is in a study: its latest run's"),
    "deaths": Room(rank=2, what="whether loads or servers of a service end in the same way again and again"),
    "stats": Room(rank=2, what="quantiles, histogram, steady state; no word of benchmarks"),
    "load": Room(rank=2, what="arrivals, event loop, workers, raw samples; owns the only request clock"),
    "identity": Room(rank=3, what="names, hashes and seeds of deployments, workloads and trials"),
    "treatments": Room(rank=3, what="the combinations of levels of one workload"),
    "plan": Room(rank=3, what="from a scenario and a site to deployments and trials"),
    "allocation": Room(rank=3, what="what a deployment asks a batch system for"),
    "driver_check": Room(rank=3, what="whether a plan's drivers can be loaded and find their settings"),
    "plan_document": Room(rank=3, what="a plan as plan.json, and read back"),
    "plan_time": Room(rank=3, what="how long a plan will take, at the least and at the most"),
    "plan_text": Room(rank=3, what="a plan as text, with time and what its statistics can tell"),
    "metrics": Room(rank=3, what="from samples and telemetry to figures"),
    "checks": Room(rank=3, what="from figures to a verdict with reasons and remedies"),
    "drivers": Room(rank=4, what="how to speak to each service"),
    "servers": Room(rank=4, what="how a server lives and dies: keeper, runtimes, health, environments"),
    "monitors": Room(rank=4, what="telemetry of host, processes, GPU and service"),
    "study": Room(rank=4, what="a working folder: its scenarios, recipes, site and results"),
    "study_paths": Room(rank=5, what="which paths of a study the tools of a run would misread"),
    "address": Room(rank=4, what="what is at an address: whether it can be loaded, and what it answers"),
    "provenance": Room(rank=4, what="where and with what a number was measured"),
    "sites": Room(rank=5, what="what a machine says of itself, written as a site"),
    "images": Room(rank=5, what="which images a study needs, from where, by what digest"),
    "prepare": Room(rank=5, what="what must be there before a scenario runs: images and environments"),
    "contained": Room(
        rank=5, what="loads inside a container of Snakemake's: its image, its command, what runs in it"
    ),
    "study_servers": Room(rank=5, what="the server identities of a study's deployments"),
    "conflicts": Room(rank=5, what="trials that are there from another server or configuration than is asked for"),
    "bench": Room(rank=5, what="one deployment as its phases see it"),
    "record": Room(rank=5, what="what one trial leaves"),
    "trial": Room(rank=5, what="where rooms meet: serve, warm up, measure"),
    "search": Room(rank=5, what="the largest load that meets an objective: levels, probes, verdicts"),
    "pending": Room(rank=5, what="what of a deployment is not measured yet"),
    "derive": Room(rank=5, what="what is derived from the trials that are there, without Snakemake"),
    "export": Room(rank=5, what="a scenario, or what it measured, in the form of another tool"),
    "gather": Room(rank=5, what="trials of another folder or machine, brought among ours"),
    "analysis": Room(rank=5, what="the summary of a scenario"),
    "report": Room(rank=5, what="tables, figures and pages"),
    "progress": Room(rank=5, what="how far a scenario is, from its files"),
    "calibration": Room(rank=5, what="what the load generator itself can do on this machine"),
    "selftest": Room(rank=5, what="the load generator against a server whose answers are known"),
    "oneoff": Room(rank=5, what="a load on one address, without a scenario"),
    "space": Room(rank=5, what="what results will take, and what disk and quota have left"),
    "retention": Room(rank=5, what="what of the results is old enough to be removed"),
    "logs": Room(rank=5, what="every log of a scenario as JSON lines, in one archive"),
    "leftovers": Room(rank=5, what="jobs and servers that a killed run left in Slurm"),
    "standing": Room(rank=5, what="servers that stand by themselves: asked for, started, listed, ended"),
    "doctor": Room(rank=5, what="whether this machine can measure"),
    "components": Room(rank=6, what="what of a study runs now: run, jobs, servers, monitors, logs"),
    "sweep": Room(rank=6, what="what earlier runs left, put away before a run begins"),
    "dag": Room(rank=6, what="what Snakemake asks of a study"),
    "ownership": Room(rank=5, what="whose files a run would write, and what to do where they are another's"),
    "jobs": Room(rank=6, what="one function a rule"),
    "preloaded": Room(rank=6, what="what the jobs of a trial import, once for a run"),
    "run_end": Room(rank=6, what="the end of a run before its time, and what is left of it"),
    "snake": Room(rank=6, what="how Snakemake is called, and who else calls it"),
    "cli": Room(rank=7, what="the command bench, a thin module a verb"),
    "outside": Room(rank=0, what="runs a module of ours in a service's environment", alone=True),
}
"""The one place where a new room gets its rank."""

Arrows = dict[str, dict[str, str]]
"""Room -> room that it imports -> one place where it does, as `src/seamark/plan.py:6`."""


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
    """Give room and path of every Python file of the package; `shipped` holds copies, not code of ours."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts[0] != "shipped" and parts != ("__init__",):
            yield parts[0], path


def rooms_in(package: Path) -> set[str]:
    """Return the rooms that the package really has."""
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
        f"the room '{room}' has no rank. Add it to ROOMS in docs/layers.py: the lowest rank above all it imports."
        for room in found
        if room not in rooms
    ]
    for room, targets in found.items():
        for target, place in targets.items():
            if room in rooms and target in rooms:
                lines += _breach(room, target, place, rooms)
    circle = circle_in(found)
    if circle:
        steps = ", ".join(f"{a} -> {b} ({found[a][b]})" for a, b in pairwise(circle))
        lines.append(f"rooms import each other in a circle: {steps}. Move what both need to a lower room.")
    return lines


def _breach(room: str, target: str, place: str, rooms: Mapping[str, Room]) -> list[str]:
    if rooms[room].alone or rooms[target].alone:
        return [f"{place}: '{room}' imports '{target}', but one of them stands alone and takes no part in imports."]
    if rooms[target].rank > rooms[room].rank:
        return [
            f"{place}: '{room}' (rank {rooms[room].rank}) imports '{target}' (rank {rooms[target].rank})."
            " Imports go down: move the shared part to a lower room, or hand it in as an argument."
        ]
    return []


def circle_in(found: Arrows) -> list[str]:
    """Return the rooms of one circle, first one repeated at the end, or nothing."""
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


def drawn(found: Arrows, rooms: Mapping[str, Room] = ROOMS) -> str:
    """Return the rooms and arrows as Markdown: a picture with the direct arrows, a table with all of them."""
    ranks = sorted({rooms[room].rank for room in found if not rooms[room].alone}, reverse=True)
    lines = ["```mermaid", "flowchart TD"]
    for rank in ranks:
        inside = [room for room in rooms if room in found and rooms[room].rank == rank and not rooms[room].alone]
        lines += [f"  subgraph rank{rank}[rank {rank}]", *(f"    {room}" for room in inside), "  end"]
    for room, targets in direct(found).items():
        lines += [f"  {room} --> {target}" for target in sorted(targets)]
    lines += ["```", "", "| rank | room | what lives there | imports |", "| --- | --- | --- | --- |"]
    for room in sorted(found, key=lambda room: (rooms[room].alone, -rooms[room].rank, list(rooms).index(room))):
        place = "alone" if rooms[room].alone else str(rooms[room].rank)
        below = ", ".join(f"`{target}`" for target in sorted(found[room])) or "nothing of ours"
        lines.append(f"| {place} | `{room}` | {rooms[room].what} | {below} |")
    return "\n".join(lines)
