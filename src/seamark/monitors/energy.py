"""What can be known of energy while a load runs, and why the rest cannot: the entry `energy` of load.json."""

import os
from pathlib import Path
from typing import Any

from seamark.monitors.rapl import ROOT, domains, why_unreadable
from seamark.monitors.slurm_energy import Consumed, consumed, spent


def before_load() -> Consumed:
    """Look at what has to be asked for before a load and after it."""
    return consumed(os.environ)


def after_load(before: Consumed, root: Path = ROOT) -> dict[str, Any]:
    """Return which counters telemetry has for this node's packages, and what Slurm says the node used.

    Each scope has a `reason` where there is nothing to be known.
    """
    reason = why_unreadable(root)
    counters = [] if reason else [domain.name for domain in domains(root)]
    return {"package": {"counters": counters, "reason": reason}, "node": spent(before, consumed(os.environ))}
