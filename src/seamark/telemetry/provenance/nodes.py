"""All nodes of the current allocation, each described by itself."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from seamark.dispatch.identity import allocated_nodes, node
from seamark.model.results.trial_meta import NodeRecord, NodeReport
from seamark.storage.codec import parse
from seamark.telemetry.provenance.machine import described

WAIT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Reports by node name; `reason` says why other nodes are missing."""

    seen: Mapping[str, NodeReport] = field(default_factory=dict)
    reason: str | None = None

    @property
    def here(self) -> NodeReport:
        """The report of the node of this process."""
        return self.seen[node()]


def survey(paths: Mapping[str, Path] | None = None, *, whole: bool = False) -> Nodes:
    """Return the facts of every node of the allocation, by one job step over all of them; outside of one, of this
    node.

    `whole` includes constant facts. Never raises: a node that cannot be reached is missing.
    """
    paths = paths or {}
    here = described(paths, whole=whole)
    count = allocated_nodes()
    if count == 1:
        return Nodes(seen={here.node: here})
    answers, reason = _ask(count, paths, whole)
    missing = count - len({here.node, *answers})
    if missing > 0 and reason is None:
        reason = f"{missing} of {count} nodes did not answer"
    return Nodes(seen={here.node: here, **answers}, reason=reason)


def _ask(count: int, paths: Mapping[str, Path], whole: bool) -> tuple[dict[str, NodeReport], str | None]:
    from seamark.dispatch.dispatcher import dispatcher_here  # a single node, and each one's own process, need none

    dispatcher, package = dispatcher_here(), str(Path(__file__).parents[3])
    command = [sys.executable, "-m", "seamark.telemetry.provenance.node", "--folded"]
    command += [*([] if whole else ["--moment"]), *(f"{role}={path.absolute()}" for role, path in paths.items())]
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    step = dispatcher.step(command, tasks=count, count=count)
    if shutil.which(step[0]) is None:
        return {}, f"there is no {step[0]} on PATH"
    try:
        result = subprocess.run(
            step,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=WAIT_S,
            check=False,
            env={**dispatcher.step_environment(), "PYTHONPATH": path},
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        return {}, f"{step[0]}: {cause}"
    answers = _answers(result.stdout)
    failed = result.returncode != 0
    return answers, f"{step[0]}: {(result.stderr.strip().splitlines() or ['failed'])[-1]}" if failed else None


def _answers(output: str) -> dict[str, NodeReport]:
    """Return each node's report by name, joined from the lines of each task, which begin with its number."""
    parts: dict[str, str] = {}
    for line in output.splitlines():
        task, colon, piece = line.partition(": ")
        if colon and task.strip().isdigit():
            parts[task] = parts.get(task, "") + piece
    reports = []
    for text in parts.values():
        with suppress(ValueError):
            reports.append(parse(text, NodeReport))
    return {report.node: report for report in reports}


def after(before: Nodes, now: Nodes) -> dict[str, NodeRecord]:
    """Return each node with its machine and its states before and after; `now` was surveyed with `whole`."""
    return {
        name: NodeRecord(
            machine=now.seen[name].machine if name in now.seen else None,
            before=before.seen[name].moment if name in before.seen else None,
            after=now.seen[name].moment if name in now.seen else None,
        )
        for name in dict.fromkeys((*now.seen, *before.seen))
    }
