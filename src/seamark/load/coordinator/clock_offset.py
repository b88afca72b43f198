"""How far another machine's monotonic clock is from ours, from questions and answers. Reads no clock itself."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One question: our clock when it was asked and when the answer came, theirs when they answered. In ns."""

    asked_ns: int
    there_ns: int
    answered_ns: int

    @property
    def round_trip_ns(self) -> int:
        return self.answered_ns - self.asked_ns


@dataclass(frozen=True, kw_only=True)
class Offset:
    """Their clock less ours, and by how much that may be wrong: never by more."""

    offset_ns: int
    error_ns: int


def offset_of(exchanges: Sequence[Exchange]) -> Offset:
    """Return what the exchange of the shortest round trip says (RFC 5905): they answered somewhere between question
    and answer, so the middle is wrong by half of the round trip at most. ValueError without an exchange."""
    best = min(exchanges, key=lambda each: each.round_trip_ns)
    middle_ns = (best.asked_ns + best.answered_ns) // 2
    return Offset(offset_ns=best.there_ns - middle_ns, error_ns=-(-best.round_trip_ns // 2))
