"""The table of all policies: a new policy is a function and a row here."""

from collections.abc import Mapping
from dataclasses import dataclass

from seamark_simulate.simulation.engine import Policy
from seamark_simulate.simulation.policies import affinity, backfill, planned, queues


@dataclass(frozen=True, kw_only=True)
class PolicyForm:
    """A policy by name. With `instants` it acts once after all events of one time, else after each event."""

    make: Policy
    help: str
    instants: bool = True


POLICIES: Mapping[str, PolicyForm] = {
    "baseline": PolicyForm(
        make=queues.baseline, help="first in, first out with skipping, event by event", instants=False
    ),
    "fifo": PolicyForm(make=queues.fifo, help="first in, first out without skipping"),
    "easy": PolicyForm(make=backfill.easy, help="EASY backfill: one reservation"),
    "conservative": PolicyForm(make=backfill.conservative, help="conservative backfill: a reservation for each node"),
    "shortest-first": PolicyForm(make=queues.shortest_first, help="shortest estimated time first"),
    "longest-first": PolicyForm(make=queues.longest_first, help="longest estimated time first"),
    "static-list": PolicyForm(make=queues.static_list, help="list scheduling in the order of requests and nodes"),
    "batch-by-model": PolicyForm(make=affinity.batch_by_model, help="nodes of a loaded model first"),
    "greedy": PolicyForm(make=affinity.greedy, help="lowest score of waiting, switches and balance first"),
    "static-placement": PolicyForm(make=affinity.static_placement, help="fixed GPUs for each model"),
    "heft": PolicyForm(make=planned.heft, help="planned at arrival: longest path first, earliest end"),
    "cpop": PolicyForm(make=planned.cpop, help="planned at arrival: critical path of a request on one GPU"),
    "least-slack": PolicyForm(make=queues.least_slack, help="least slack to the deadline first"),
    "priority": PolicyForm(make=queues.priority, help="highest priority first, with ageing"),
}
