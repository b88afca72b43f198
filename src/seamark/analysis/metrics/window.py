"""The measured window of a load: everything due after the declared warm-up, whatever its results."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seamark.analysis.metrics.samples import Mask, Samples, Times
from seamark.analysis.metrics.timeline import SECOND_NS
from seamark.model.service import Value

RULE = "all due after the warm-up"
RULE_OF_ITEMS = "all items after the warm-up items"
RULE_OF_ARRIVALS = "from the first arrival to the last end, in virtual time"
RULE_OF_REQUESTS = "from the first request that was due to the last reply"
RULE_OF_PARTIES = "all due while every party was sending, after the warm-ups"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The measured part of a load, [start_ns, end_ns) from the start of load, and the rule that it follows. Replies,
    units and bytes that arrive in it count, or with `own` only those of requests that were due in it: where the load
    ends with its work, no reply after the end makes up for those before the start. `offered_until_ns` is the last
    arrival of a process with a rate where the window goes on until its work is done: what is offered is judged up to
    there."""

    start_ns: int
    end_ns: int
    rule: str = RULE
    own: bool = False
    offered_until_ns: int | None = None

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.start_ns) / SECOND_NS

    def holds(self, times_ns: Times) -> Mask:
        """Return which times lie in it."""
        return (times_ns >= self.start_ns) & (times_ns < self.end_ns)


def window_of_items(samples: Samples, warmup_items: int) -> Window:
    """Return the measured window of a finite load: from the first item after the `warmup_items` that were sent first,
    to the last reply. With no item after them it is empty."""
    sent = [batch.sent[batch.was_sent] for batch in samples.batches()]
    ends = [int(batch.last.max(initial=0)) for batch in samples.batches()]
    sent_ns = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *sent]))
    end_ns = max(ends, default=0)
    start_ns = int(sent_ns[warmup_items]) if warmup_items < sent_ns.size else end_ns
    return Window(start_ns=start_ns, end_ns=end_ns, rule=RULE_OF_ITEMS, own=True)


def window_of_arrivals(
    samples: Samples, *, has_rate: bool = False, rule: str = RULE_OF_ARRIVALS, warmup_items: int = 0
) -> Window:
    """Return the measured window of a load that is its requests: from the first time at which one was due after the
    `warmup_items` that were due first, to the last end. `has_rate`: they arrive at a rate, not at once."""
    batches = [(int(batch.due.min()), int(batch.last.max())) for batch in samples.batches() if batch.due.size]
    start_ns, end_ns = min((due for due, _ in batches), default=0), max((last for _, last in batches), default=0)
    if warmup_items:
        due_ns = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *(batch.due for batch in samples.batches())]))
        start_ns = int(due_ns[warmup_items]) if warmup_items < due_ns.size else end_ns
    latest_ns = max((int(batch.due.max()) for batch in samples.batches() if batch.due.size), default=0)
    until_ns = latest_ns if has_rate and latest_ns > start_ns else None
    return Window(start_ns=start_ns, end_ns=end_ns, rule=rule, own=True, offered_until_ns=until_ns)


def window_of_simulation(
    samples: Samples, settings: Mapping[str, Value], sending_ended_ns: int | None = None
) -> Window:
    """Return the measured window of a simulation: all of it, or of one with a `warmup_s` what was due after that, to
    the end of its `duration_s`, else to the last request; `sending_ended_ns` as in `find_window`."""
    warmup_s, duration_s = settings.get("warmup_s"), settings.get("duration_s")
    if not isinstance(warmup_s, (int, float)):
        rate = settings.get("arrivals_rps") if settings.get("arrivals") == "timestamps" else None
        return window_of_arrivals(samples, has_rate=rate is not None)
    if isinstance(duration_s, (int, float)):
        return find_window(warmup_s=warmup_s, duration_s=duration_s, sending_ended_ns=sending_ended_ns)
    due_ns = max((int(batch.due.max()) for batch in samples.batches() if batch.due.size), default=0)
    return Window(start_ns=round(warmup_s * SECOND_NS), end_ns=due_ns + 1)


def find_window(*, warmup_s: float, duration_s: float, sending_ended_ns: int | None = None) -> Window:
    """Return the measured window of a load that runs for `warmup_s + duration_s`.

    It begins at the end of the warm-up and ends with the load. `sending_ended_ns` is given if the load ran out of
    requests early: the window ends there, because afterwards fewer and fewer requests are in flight.
    """
    start_ns, end_ns = round(warmup_s * SECOND_NS), round((warmup_s + duration_s) * SECOND_NS)
    if sending_ended_ns is not None and start_ns < sending_ended_ns < end_ns:
        end_ns = sending_ended_ns
    return Window(start_ns=start_ns, end_ns=end_ns)
