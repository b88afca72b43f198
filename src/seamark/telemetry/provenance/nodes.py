"""All nodes of the allocation that this process is in, each as it describes itself."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seamark.dispatch.dispatcher import dispatcher_here
from seamark.dispatch.identity import allocated_nodes, node
from seamark.telemetry.provenance.machine import described

Facts = dict[str, Any]
WAIT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """What the nodes said, by their names; `reason` says why there is nothing of the others."""

    seen: Mapping[str, Facts] = field(default_factory=dict)
    reason: str | None = None

    @property
    def here(self) -> Facts:
        """What the node of this process said."""
        return self.seen[node()]


def look(paths: Mapping[str, Path] | None = None, *, whole: bool = False) -> Nodes:
    """Ask every node of the allocation, by one step of Slurm over all of them; outside of one, this node alone.

    `whole` asks for what does not change, too. It never fails: a node that cannot be asked is one that is not known.
    """
    paths = paths or {}
    here = described(paths, whole=whole)
    count = allocated_nodes()
    if count == 1:
        return Nodes(seen={here["node"]: here})
    answers, reason = _ask(count, paths, whole)
    missing = count - len({here["node"], *answers})
    if missing > 0 and reason is None:
        reason = f"{missing} of {count} nodes did not answer"
    return Nodes(seen={here["node"]: here, **answers}, reason=reason)


def _ask(count: int, paths: Mapping[str, Path], whole: bool) -> tuple[dict[str, Facts], str | None]:
    if shutil.which("srun") is None:
        return {}, "there is no srun on PATH"
    try:
        done = subprocess.run(
            _command(count, paths, whole),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=WAIT_S,
            check=False,
            env=_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        return {}, f"srun: {cause}"
    found = _answers(done.stdout)
    failed = done.returncode != 0
    return found, f"srun: {(done.stderr.strip().splitlines() or ['failed'])[-1]}" if failed else None


def _answers(said: str) -> dict[str, Facts]:
    """Return each node's document by its name, put together from the lines that srun labelled with its task."""
    parts: dict[str, str] = {}
    for line in said.splitlines():
        task, colon, piece = line.partition(": ")
        if colon and task.strip().isdigit():
            parts[task] = parts.get(task, "") + piece
    found = {}
    for whole in parts.values():
        try:
            answer = json.loads(whole)
            found[str(answer["node"])] = answer
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _command(count: int, paths: Mapping[str, Path], whole: bool) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "seamark.telemetry.provenance.node",
        "--folded",
        *(() if whole else ("--moment",)),
    ]
    command += [f"{role}={path.absolute()}" for role, path in paths.items()]
    return dispatcher_here().step(command, tasks=count, count=count)


def _environment() -> dict[str, str]:
    """Return the environment of the step, with this package on the path of its Python."""
    package = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {**dispatcher_here().step_environment(), "PYTHONPATH": path}


def after(before: Nodes, now: Nodes) -> dict[str, Facts]:
    """Return each node with its machine and its moments before and after, as meta.json has them; `now` was asked for
    the whole."""
    return {
        name: {
            "machine": now.seen.get(name, {}).get("machine"),
            "before": before.seen.get(name, {}).get("moment"),
            "after": now.seen.get(name, {}).get("moment"),
        }
        for name in dict.fromkeys((*now.seen, *before.seen))
    }
