"""The measured window of a load: everything due after the declared warm-up, whatever its results."""

from dataclasses import dataclass

from seamark.analysis.metrics.timeline import SECOND_NS

RULE = "all due after the warm-up"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The measured part of a load, [start_ns, end_ns) from the start of load, and the rule that it follows."""

    start_ns: int
    end_ns: int
    rule: str = RULE

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.start_ns) / SECOND_NS


def find_window(*, warmup_s: float, duration_s: float, sending_ended_ns: int | None = None) -> Window:
    """Return the measured window of a load that runs for `warmup_s + duration_s`.

    It begins at the end of the warm-up and ends with the load. `sending_ended_ns` is given if the load ran out of
    requests early: the window ends there, because afterwards fewer and fewer requests are in flight.
    """
    start_ns, end_ns = round(warmup_s * SECOND_NS), round((warmup_s + duration_s) * SECOND_NS)
    if sending_ended_ns is not None and start_ns < sending_ended_ns < end_ns:
        end_ns = sending_ended_ns
    return Window(start_ns=start_ns, end_ns=end_ns)
