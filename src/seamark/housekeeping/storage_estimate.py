"""Storage estimate: disk space that a run's results will take, and space left on disk and quota."""

import os
import re
import shlex
import subprocess
from os.path import expandvars

from seamark.errors import SiteError
from seamark.model.load_profile import LoadProfile
from seamark.model.results.load_record import SamplesRecord
from seamark.model.trial import Trial
from seamark.patterns.table import pattern_of
from seamark.planning.plan_time import load_of
from seamark.planning.study import Study
from seamark.storage.documents import read
from seamark.storage.paths import ScenarioFolder, TrialFolder
from seamark.trials.progress import progress_of

LEAST_ROW_BYTES, MOST_ROW_BYTES = 4, 32
"""Measured size of a request in samples.parquet: equal times compress well, different ones do not."""
LEAST_RPS, MOST_RPS = 0.1, 20_000.0
"""Fewest replies/s of one closed-loop user, and most of all users together."""
SWING = 0.2
"""Deviation of an open loop's arrivals from those its pattern expects, as a ratio."""
CHUNK_BYTES = 6
"""Size of one chunk of a streamed reply in chunks.parquet."""
TELEMETRY_BYTES = 6_000
"""Size of one reading of all monitors, as CSV of the deployment, CSV and Parquet of the trial."""
TRIAL_BYTES = 100_000
"""Size of a trial's other files and of its share of the report."""
ANSWER_S = 30.0
MISSING = ("planned", "running", "other")
"""States of trials that a run measures; those of another server only with --measure-anew."""
QUOTA_ROW = re.compile(r"(?:^|\s)/\S*\s+(\d+)\*?\s+(\d+)\s+(\d+)")
"""`lfs quota` and `quota`: a file system, then kB in use, soft limit, hard limit; 0 is no limit."""


def estimate(study: Study) -> tuple[int, int]:
    """Return the bytes that the missing trials of a run will write, at least and at most.

    A trial of a treatment with a measured repetition is expected to write as much as that one.
    """
    folder = study.folder(study.scenario.name)
    states = progress_of(study).states
    missing = [trial for trial, state in zip(study.plan.trials, states, strict=True) if state.state in MISSING]
    known = {trial.treatment: size for trial in study.plan.trials if (size := _written(folder, trial))}
    counted: dict[str, tuple[float, float]] = {}
    least = most = 0
    for trial in missing:
        length_s = load_of(trial, study.services.get(trial.service)).most  # a finite load ends long before its limit
        fixed = TRIAL_BYTES + int(length_s / study.site.telemetry_interval_s * TELEMETRY_BYTES)
        if trial.treatment in known:
            least, most = least + known[trial.treatment], most + known[trial.treatment] + fixed
        else:
            for party in trial.measured:
                if party.treatment not in counted:
                    counted[party.treatment] = rows(party)
                fewest, greatest = counted[party.treatment]
                least += int(fewest * LEAST_ROW_BYTES)
                chunks = float(party.settings.get("gen_tokens") or 0) if party.settings.get("stream") else 0.0
                most += int(greatest * (MOST_ROW_BYTES + chunks * CHUNK_BYTES))
            most += fixed
    return least, most


def rows(trial: Trial) -> tuple[float, float]:
    """Return the fewest and the most requests that a trial may send; 0 for a finite load that was not measured."""
    load = trial.load
    if load.finite:  # only the driver knows how many items there are
        return 0.0, 0.0
    most = MOST_RPS * (trial.search.budget_s if trial.search else trial.load.length_s)
    least = load.concurrency * LEAST_RPS * load.length_s if load.closed and not trial.search else 0.0
    if not load.closed and not trial.search and (arrivals := _arrivals(load)) is not None:
        least, most = arrivals * (1 - SWING), arrivals * (1 + SWING) * load.turns  # a failed session has fewer turns
    limit = load.requests or most
    return 0.0 if load.stop_when_saturated else min(least, limit), min(most, limit)


def _arrivals(load: LoadProfile) -> float | None:
    """Return about how many arrivals the pattern of an open loop has; None where they cannot be known."""
    try:
        pattern = pattern_of(load)
        return pattern.count(load.length_s) if pattern else None
    except (OSError, ValueError):
        return None


def rooms(study: Study) -> tuple[dict[str, int], list[str]]:
    """Return the free bytes for the results by file system or quota, and notes on a quota that could not be read."""
    place = next(path for path in (study.results.absolute(), *study.results.absolute().parents) if path.exists())
    disk = os.statvfs(place)
    spaces = {f"the file system of {study.results}": disk.f_bavail * disk.f_frsize}
    if study.site.quota_command is None:
        return spaces, []
    try:
        said = subprocess.run(
            shlex.split(expandvars(study.site.quota_command)),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=ANSWER_S,
        )
        free = quota_left(said.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as cause:
        return spaces, [f"the site's quota_command printed no quota ({cause}): the quota is not known."]
    return spaces if free is None else {**spaces, "your quota": free}, []


def quota_left(text: str) -> int | None:
    """Return the bytes that a quota has left, None for one without limit.

    `text` is a number of bytes, or the table of `lfs quota` or `quota`. ValueError when it is neither.
    """
    words = text.split()
    if len(words) == 1 and words[0].isdigit():
        return int(words[0])
    row = QUOTA_ROW.search(" ".join(words))
    if row is None:
        raise ValueError(f"neither a number of bytes nor a table of `lfs quota`: '{' '.join(words)[:80]}'")
    used, soft, hard = (int(number) * 1024 for number in row.groups())
    limit = hard or soft
    return max(0, limit - used) if limit else None


def require_room(study: Study) -> list[str]:
    """Raise SiteError if the lower estimate exceeds the free space; return notes if the upper one does."""
    least, most = estimate(study)
    spaces, notes = rooms(study)
    remedy = "Free some (`bench prune` shows what can go), or measure fewer or shorter trials."
    for room, free in spaces.items():
        left = f"{room} has {shown_bytes(free)} left. {remedy}"
        if least > free:
            raise SiteError(f"{study.scenario_path}: its results need {shown_bytes(least)} or more, but {left}")
        if most > free:
            notes.append(f"the results may take up to {shown_bytes(most)}; {left}")
    return notes


def shown_bytes(count: float) -> str:
    """Return a number of bytes with a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _written(folder: ScenarioFolder, trial: Trial) -> int | None:
    files = folder.trial(trial.id)
    try:
        return read(files.record, SamplesRecord).samples_bytes + _size(files)
    except (OSError, ValueError):
        return None


def _size(files: TrialFolder) -> int:
    besides = (files.chunks, files.replies, files.events, files.answers, files.executions)
    return sum(path.stat().st_size for path in besides if path.exists())
