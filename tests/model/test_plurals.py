"""A count with its noun."""

import pytest

from seamark.model.plurals import counted, plural


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "trial", "0 trials"),
        (1, "trial", "1 trial"),
        (2304, "trial", "2,304 trials"),
        (2, "query", "2 queries"),
        (3, "process", "3 processes"),
        (2, "more node", "2 more nodes"),
        (4, "day", "4 days"),
    ],
)
def test_a_count_stands_with_its_noun_in_singular_or_plural(number, noun, text):
    assert counted(number, noun) == text


def test_units_have_the_plural_that_metrics_are_named_after():
    assert [plural(unit) for unit in ("reply", "query", "token", "item")] == ["replies", "queries", "tokens", "items"]
