"""What a deployment and its loads ask a batch system for: time, GPUs of a node. Pure; no batch system is called."""

import math
from collections.abc import Iterable

from seamark.model.trial import Deployment, Trial

SERVE_MIN = 10
WARMUP_MIN = 2
TEARDOWN_MIN = 2
SPARE = 1.2
"""Of the time of a load, for what a request or two too many may take."""


def load_min(trial: Trial) -> int:
    """Return the minutes that the load of a trial may take, or its search with all of its probes."""
    seconds = sum(float(trial.settings[name] or 0) for name in ("warmup_s", "duration_s", "timeout_s"))
    seconds += trial.search.budget_s if trial.search else 0.0
    return math.ceil(seconds * SPARE / 60 + 1)


def deployment_min(trials: Iterable[Trial]) -> int:
    """Return the minutes of a deployment's whole life: the sum of its phases, one load after another."""
    return SERVE_MIN + WARMUP_MIN + sum(map(load_min, trials)) + TEARDOWN_MIN


def gpus_per_node(deployment: Deployment) -> int:
    """Return the GPUs to ask of each node, so that all nodes together have those of the deployment."""
    return -(-deployment.gpus // deployment.nodes)
