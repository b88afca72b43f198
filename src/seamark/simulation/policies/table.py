"""The table of all policies: a new policy is a function and a row here."""

from collections.abc import Mapping
from dataclasses import dataclass

from seamark.simulation.engine import Policy
from seamark.simulation.policies.queues import baseline, fifo


@dataclass(frozen=True, kw_only=True)
class PolicyForm:
    """A policy by name. With `instants` it acts once after all events of one time, else after each event."""

    make: Policy
    help: str
    instants: bool = True


POLICIES: Mapping[str, PolicyForm] = {
    "baseline": PolicyForm(make=baseline, help="first in, first out with skipping, event by event", instants=False),
    "fifo": PolicyForm(make=fifo, help="first in, first out without skipping"),
}
