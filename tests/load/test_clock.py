"""The offset between two clocks, from questions and answers on a line whose delays are made up."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.load.coordinator.handle import Exchange, Offset, offset_of

DELAYS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=30)


def asked_over(delays: list[tuple[int, int]], offset_ns: int, start_ns: int = 10**12) -> list[Exchange]:
    """Ask a clock that is `offset_ns` ahead of ours, once for each pair of delays there and back."""
    found = []
    for there_ns, back_ns in delays:
        arrived_ns = start_ns + there_ns
        received_ns = arrived_ns + back_ns
        found.append((start_ns, arrived_ns + offset_ns, received_ns))
        start_ns = received_ns + 1000
    return found


@pytest.mark.covers("E-FR25")
@given(delays=DELAYS, offset_ns=st.integers(-(10**15), 10**15))
def test_the_offset_is_wrong_by_no_more_than_it_says(delays: list[tuple[int, int]], offset_ns: int) -> None:
    found = offset_of(asked_over(delays, offset_ns))
    assert abs(found.offset_ns - offset_ns) <= found.error_ns + 1, "but for half a nanosecond of rounding"


def test_a_line_that_is_as_fast_both_ways_gives_the_very_offset() -> None:
    assert offset_of(asked_over([(50_000, 50_000)], -7)) == Offset(offset_ns=-7, error_ns=50_000)


def test_of_many_exchanges_the_quickest_counts() -> None:
    slow = [(random.Random(k).randint(10**6, 10**8), 10**6) for k in range(19)]
    found = offset_of([*asked_over(slow, 5), *asked_over([(1000, 3000)], 5)])
    assert found == Offset(offset_ns=5 - 1000, error_ns=2000)


def test_without_an_exchange_nothing_is_known() -> None:
    with pytest.raises(ValueError):
        offset_of([])
