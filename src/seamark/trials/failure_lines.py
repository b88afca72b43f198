"""What failed in a run as few lines: one for each deployment and cause, with the end of its log."""

from pathlib import Path

from seamark.model.plurals import counted
from seamark.model.results.load_record import LoadRecord
from seamark.storage.documents import read_or_none
from seamark.storage.paths import ScenarioFolder
from seamark.trials.progress import Progress, State
from seamark.trials.repeated_failures import NOT_TRIED

SERVER_CATEGORIES = ("server_died", "server_never_healthy", "setup_failed", "port_taken")
LONGEST_LINE = 200
MOST = 20
BY_HAND, SERVER_SAYS = ". One request by hand: ", ". The server says "
"""Before the server's own words, which may differ between trials that failed alike."""


def failure_lines(progress: Progress, folder: ScenarioFolder, root: Path) -> list[str]:
    """Return a line for each deployment and cause of failed trials, and one for all trials that were not tried after
    failures alike. Paths are relative to the study's folder `root` where they are in it."""
    groups: dict[tuple[str | None, str | None, str | None], list[State]] = {}
    for state in progress.failed:
        deployment = None if state.category == NOT_TRIED else state.deployment
        cause = (state.reason or "").partition(BY_HAND)[0].partition(SERVER_SAYS)[0]
        groups.setdefault((deployment, state.category, cause), []).append(state)
    lines = [_line(states, folder, root) for states in groups.values()]
    more = len(lines) - MOST
    return [*lines[:MOST], f"and {counted(more, 'line')} more in the report"] if more > 0 else lines


def _line(states: list[State], folder: ScenarioFolder, root: Path) -> str:
    first = states[0]
    deployments = len({state.deployment for state in states})
    of = f" of {counted(deployments, 'deployment')}" if deployments > 1 else ""
    number = counted(len(states), "trial")
    if first.category == NOT_TRIED:
        return f"{number}{of} not tried: {first.reason}"
    who = first.trial if len(states) == 1 else f"{first.deployment} ({number})"
    return f"{who}: {first.category}: {first.reason}{_end_of_log(first, folder, root)}"


def _end_of_log(state: State, folder: ScenarioFolder, root: Path) -> str:
    """Return the last line that a failed trial's server or load wrote, and the file that has the others."""
    load = read_or_none(folder.trial(state.trial).load, LoadRecord)
    last = next((line.strip() for line in reversed(load.log_tail if load else ()) if line.strip()), None)
    if last is None:
        return ""
    deployment = folder.deployment(state.deployment)
    file = deployment.server_log if state.category in SERVER_CATEGORIES else folder.trial(state.trial).log
    if not file.exists():
        file = folder.root / "logs" / "load" / f"{state.trial}.log"
    shown = last if len(last) <= LONGEST_LINE else f"{last[:LONGEST_LINE]}..."
    where = f" of {file.relative_to(root) if file.is_relative_to(root) else file}" if file.exists() else ""
    return f" Last line{where}: {shown}"
