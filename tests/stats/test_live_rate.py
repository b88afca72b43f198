"""A rate that is shown while counts still grow, from writers that write in steps."""

import pytest

from seamark.stats.live_rate import LiveRate


def shown(counts, until_s: float = 20.0, every_s: float = 0.1) -> list[tuple[float, float | None]]:
    """Look at `counts(at_s)` ten times a second."""
    rate = LiveRate()
    looks = [round(place * every_s, 6) for place in range(int(until_s / every_s) + 1)]
    return [(at_s, rate.update(at_s, counts(at_s))) for at_s in looks]


@pytest.mark.parametrize("every_s", [1.0, 1.37, 2.0])
def test_a_writer_that_writes_less_often_than_is_looked_has_its_true_rate(every_s):
    rates = [rate for at_s, rate in shown(lambda at_s: {"a": int(at_s / every_s) * int(800 * every_s)}) if at_s > 5]
    assert None not in rates
    assert min(rates) > 800 * 0.9
    assert max(rates) < 800 * 1.1


def test_writers_out_of_step_with_each_other_add_up():
    def counts(at_s):
        return {str(k): 100 * max(0, int(at_s - k / 5)) for k in range(5)}

    rates = [rate for at_s, rate in shown(counts) if at_s > 5]
    assert min(rates) > 450
    assert max(rates) < 550


def test_the_first_step_is_no_rate_since_its_beginning_is_not_known():
    rates = shown(lambda at_s: {"a": 500 * int(at_s - 3) if at_s >= 4 else 0}, until_s=4.9)
    assert {rate for _, rate in rates} == {None}


def test_a_rate_falls_to_nothing_when_nothing_comes_any_more():
    rates = dict(shown(lambda at_s: {"a": 100 * int(min(at_s, 10))}, until_s=60))
    assert rates[9.0] == pytest.approx(100, rel=0.05)
    assert rates[14.0] < 60
    assert rates[60.0] < 10


def test_a_writer_of_one_reply_in_five_seconds_has_a_rate_of_a_fifth():
    rates = [rate for at_s, rate in shown(lambda at_s: {"a": int(at_s / 5)}, until_s=40) if at_s > 12]
    assert min(rates) > 0.15
    assert max(rates) == pytest.approx(0.2)
