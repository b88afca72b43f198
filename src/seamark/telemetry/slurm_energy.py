"""Energy of this node as Slurm counts it for the step that we are in: ConsumedEnergyRaw, in joules."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from seamark.dispatch.identity import job_step
from seamark.dispatch.slurm.commands import query
from seamark.model.results.load_record import NodeEnergy

WAIT_S = 10.0
LEAST_LOOKS = 4
FIELDS = "ConsumedEnergyRaw"


@dataclass(frozen=True, kw_only=True)
class Consumed:
    """What a step had used at a time of the monotonic clock; `reason` says why it is not known.

    `every_s` is how often the node's meter is read.
    """

    at_s: float
    joules: float | None = None
    step: str | None = None
    every_s: float = 0.0
    reason: str | None = None


def consumed(environment: Mapping[str, str]) -> Consumed:
    """Return what our step has used so far, by sstat, else by sacct. Asks for nothing outside of a job."""
    at_s = time.monotonic()
    step = job_step(environment)
    if step is None:
        return Consumed(at_s=at_s, reason="not in a Slurm job")
    config = query("scontrol", "show", "config", within_s=WAIT_S)
    if config is None:
        return Consumed(at_s=at_s, reason="scontrol does not answer")
    kind = _setting(config, "AcctGatherEnergyType")
    if kind is None or kind.rpartition("/")[2] in ("none", "(null)"):
        return Consumed(at_s=at_s, reason="Slurm gathers no energy here (AcctGatherEnergyType is none)")
    every_s = float((_setting(config, "AcctGatherNodeFreq") or "0").split()[0])
    job = step.partition(".")[0]
    for ask in (
        ("sstat", "--allsteps", f"--jobs={job}", f"--format=JobID,{FIELDS}"),
        ("sacct", f"--jobs={job}", f"--format=JobIDRaw,{FIELDS}"),
    ):
        joules = _of_step(query(*ask, "--noheader", "--parsable2", within_s=WAIT_S) or "", step)
        if joules is not None:
            return Consumed(at_s=time.monotonic(), joules=joules, step=step, every_s=every_s)
    return Consumed(at_s=at_s, reason=f"neither sstat nor sacct has {FIELDS} of step {step}")


def spent(before: Consumed, after: Consumed) -> NodeEnergy:
    """Return the energy used between two readings of the meter, or the reason why it is not known."""
    step = after.step
    if before.joules is None or after.joules is None:
        return NodeEnergy(step=step, reason=before.reason or after.reason)
    window_s, value_j = after.at_s - before.at_s, after.joules - before.joules
    if value_j <= 0:
        return NodeEnergy(step=step, reason=f"{FIELDS} of step {step} did not grow while the load ran")
    if window_s < LEAST_LOOKS * after.every_s:
        reason = f"Slurm reads the meter every {after.every_s:g} s, and the load took {window_s:.3g} s only"
        return NodeEnergy(step=step, reason=reason)
    return NodeEnergy(value_j=value_j, window_s=round(window_s, 3), step=step)


def _setting(config: str, name: str) -> str | None:
    found = re.search(rf"^{name}\s*=\s*(\S.*?)\s*$", config, re.MULTILINE)
    return found.group(1) if found else None


def _of_step(said: str, step: str) -> float | None:
    """Return the figure of a step; None where there is none, or the 0 of a meter that was never read."""
    for line in said.splitlines():
        name, _, value = line.partition("|")
        if name == step and value.strip().isdigit() and int(value) > 0:
            return float(value)
    return None
