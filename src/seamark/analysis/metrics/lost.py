"""Requests lost with a worker that died: of the whole schedule, and of the measured window."""

import numpy as np

from seamark.analysis.metrics.window import Window
from seamark.analysis.metrics.window_counts import WindowCounts
from seamark.model.digest import seed_for
from seamark.model.results.load_record import LoadRecord
from seamark.model.trial import Trial
from seamark.patterns.table import pattern_of, schedule


def lost_of(load: LoadRecord, counted: WindowCounts) -> int:
    """Return the scheduled requests without a sample, after a worker died."""
    died = not all(worker.ok for worker in load.workers)
    return max(0, (load.scheduled or 0) - counted.rows) if died else 0


def lost_in_window(trial: Trial, counted: WindowCounts, lost: int) -> int:
    """Return how many of the `lost` requests were due in the window.

    The schedule follows from the trial's seed, so what was due in the window is known. Where it does not (later
    turns of a session, the probe that a search found, a trace or pattern that is gone), the lost requests lie in the
    window as the recorded ones do.
    """
    if not lost:
        return 0
    due = _due_inside(trial, counted.window)
    if due is None:
        return round(lost * counted.due / counted.rows) if counted.rows else lost
    return min(lost, max(0, due - counted.due))


def _due_inside(trial: Trial, window: Window) -> int | None:
    """Return the requests of the whole schedule that were due in the window; None if replies, the seed of a search's
    probe or a missing file decide."""
    profile = trial.load
    if profile.turns > 1 or trial.search is not None:
        return None
    try:
        pattern = pattern_of(profile)
        if pattern is None:
            return None
        seed = seed_for(trial.seed, "arrivals")
        blocks = schedule(pattern, seed=seed, until_s=profile.length_s, requests=profile.requests)
        return sum(int(np.diff(np.searchsorted(at_ns, [window.start_ns, window.end_ns]))[0]) for at_ns in blocks)
    except (OSError, ValueError):
        return None
