"""Conditions and objectives: what they may say, what they come to, and that nothing else runs."""

import pytest

from seamark.config.expression import condition, slo_parts

VALUES = {"batch": 4, "rate": 2.5, "model": "small", "exact": True, "limit": None}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("batch == 4", True),
        ("batch < rate", False),
        ("1 < batch <= 4 < 5", True),
        ("1 < batch < 4 < 5", False),
        ("batch + 1 == 5 and batch - 1 == 3 and batch * 2 == 8", True),
        ("batch / 8 == 0.5 and batch // 3 == 1 and batch % 3 == 1", True),
        ("-batch == -4", True),
        ("not exact", False),
        ("exact == true and limit == null", True),
        ("model in ['small', 'large']", True),
        ("model not in ('small', 'large')", False),
        ("model == 'small' or batch / 0 == 1", True),
    ],
)
def test_a_condition_comes_to(text: str, holds: bool) -> None:
    assert condition(text).holds(VALUES) is holds


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "batch.__class__ == 1",
        "[x for x in (1, 2)] == 1",
        "(lambda: 1)() == 1",
        "batch ** batch == 1",
        "batch << 999999 == 1",
        "batch if exact else 1",
        "f'{batch}' == 'x'",
        "batch[0] == 1",
        "{1: 2} == 1",
        "batch is 1",
        "(batch := 3) == 3",
        "batch",
        "1 +",
        "",
        "batch = 1",
        "batch == 1; exact",
        "b'x' == 1",
        "1 == " + "(" * 300 + "1" + ")" * 300,
        "1 == " + "+".join("1" * 400),
    ],
)
def test_a_condition_can_do_nothing_else(text: str) -> None:
    with pytest.raises(ValueError):
        condition(text)


@pytest.mark.parametrize(
    "text", ["batch / 0 == 1", "model < 3", "model * 999999999 == 'x'", "limit + 1 > 0", "3 in batch", "-model == 1"]
)
def test_a_condition_that_cannot_be_worked_out_says_for_which_values(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be worked out for"):
        condition(text).holds(VALUES)


def test_the_names_of_a_condition_are_its_settings() -> None:
    assert condition("batch <= rate and model != 'rate' and exact == true").names == {
        "batch",
        "rate",
        "model",
        "exact",
    }


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("latency_p99_s <= 0.2", ("latency_p99_s", "<=", 0.2)),
        ("  recall_at_10>=.95 ", ("recall_at_10", ">=", 0.95)),
        ("throughput >= 1e4", ("throughput", ">=", 1e4)),
    ],
)
def test_an_objective_has_three_parts(text: str, parts: tuple[str, str, float]) -> None:
    assert slo_parts(text) == parts


@pytest.mark.parametrize("text", ["latency_p99_s", "p99 < 1", "p99 <= fast", "p99 <= 200 ms", "<= 1", "p99 <= nan"])
def test_a_wrong_objective_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        slo_parts(text)
