"""Where figures come from: `origin` is printed and compared for equality. What follows from it is asked here."""

from collections.abc import Iterable
from typing import Literal

Simulated = Literal["simulated"]
Origin = Literal["measured", "simulated"]
MEASURED: Origin = "measured"
SIMULATED: Simulated = "simulated"


class HasOrigin:
    """A service, or a record of what was measured of one. It has the field `origin`."""

    origin = MEASURED

    @property
    def virtual_clock(self) -> bool:
        """Whether its times are those of a virtual clock, which no server, machine or order of trials is in."""
        return self.origin == SIMULATED


def any_virtual(records: Iterable[HasOrigin]) -> bool:
    """Return whether some records are of a virtual clock, so that a table of them says which."""
    return any(record.virtual_clock for record in records)


def origin_of(records: Iterable[HasOrigin]) -> Origin:
    """Return the origin of a figure that is made of several: one simulated part makes it simulated."""
    return SIMULATED if any_virtual(records) else MEASURED
