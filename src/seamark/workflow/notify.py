"""Notifications of a run: a command of the user's own, at the first failed trial and at the end of a run."""

import os
import subprocess
from pathlib import Path

from seamark.model.plurals import counted
from seamark.model.scenario import Notify, NotifyEvent
from seamark.trials.progress import Progress

LIMIT_S = 30.0
"""Time for a command: a run does not wait longer for one."""
LONGEST_WHY = 300


def notify(wanted: Notify | None, event: NotifyEvent, now: Progress, log: Path) -> str | None:
    """Run the command of a scenario for an event that it asks for; return why it failed, None if it did not.

    The command has the sentence on the run in its standard input, and `SEAMARK_SCENARIO`, `SEAMARK_EVENT`,
    `SEAMARK_FAILED` (number of failed trials) and `SEAMARK_LOG` in its environment. It has LIMIT_S, and its failure
    changes nothing of the run.
    """
    if wanted is None or event not in wanted.events:
        return None
    facts = {"SCENARIO": now.scenario, "EVENT": event, "FAILED": str(len(now.failed)), "LOG": str(log)}
    try:
        done = subprocess.run(
            wanted.command,
            input=text_of(event, now) + "\n",
            env={**os.environ, **{f"SEAMARK_{name}": value for name, value in facts.items()}},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"notify: {wanted.command[0]} had not ended after {LIMIT_S:g} s."
    except OSError as error:
        return f"notify: {wanted.command[0]}: {error.strerror}."
    if done.returncode == 0:
        return None
    last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1][:LONGEST_WHY]
    return f"notify: {wanted.command[0]} ended with exit code {done.returncode}: {last}"


def text_of(event: NotifyEvent, now: Progress) -> str:
    """Return the sentence on a run: what is measured, what failed, and the first failure's reason."""
    counts = f"{now.count('ok')} of {counted(len(now.states), 'trial')} measured, {len(now.failed)} failed"
    begin = "has ended" if event == "end" else "goes on after a failure"
    first = next(iter(now.failed), None)
    why = f" First failure: {first.trial}: {first.category}: {first.reason}" if first else ""
    return f"{now.scenario} {begin}: {counts}.{why}"
