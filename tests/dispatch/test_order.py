"""Which unit begins next: every order against what its name promises, under random durations."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamark.dispatch.order import Order, Unit, order_of, unknown_factors
from seamark.errors import UserError

OWN = """\
def last_first(units):
    return next((unit for unit in reversed(units) if unit.state == "waiting"), None)

def nothing(units):
    return None

def other(units):
    return "x"

def broken(units):
    return 1 / 0
"""
FOREVER = 10**6


def matrix() -> list[Unit]:
    """36 units of three factors, each with an estimate of its own."""
    levels = product(("a", "b", "c", "d"), (1, 2, 3), (10, 20, 30))
    return [
        Unit(
            id=f"{model}-{size}-{length}",
            estimated_s=(at * 7) % 36 + 1.0,
            levels={"model": model, "size": size, "length": length},
        )
        for at, (model, size, length) in enumerate(levels)
    ]


@dataclass(frozen=True, kw_only=True)
class Ran:
    unit: Unit
    began_s: float
    ended_s: float


def run(written: object, units: Sequence[Unit], lanes: int, length_s: Mapping[str, float] | None = None) -> list[Ran]:
    """Run units as lanes do: the list is read again, and the order asked, each time that a lane is free. Units whose
    lengths are not given take their estimates."""
    order, states, now_s = order_of(written), {unit.id: unit for unit in units}, 0.0
    running: list[tuple[float, str]] = []
    ran = []
    while True:
        while len(running) < lanes and (chosen := order.next_of(list(states.values()))) is not None:
            assert states[chosen.id].state == "waiting"
            states[chosen.id] = replace(chosen, state="running")
            ends_s = now_s + (length_s or {}).get(chosen.id, chosen.estimated_s)
            heapq.heappush(running, (ends_s, chosen.id))
            ran.append(Ran(unit=chosen, began_s=now_s, ended_s=ends_s))
        if not running:
            assert all(unit.state == "done" for unit in states.values())
            return ran
        now_s, ended = heapq.heappop(running)
        states[ended] = replace(states[ended], state="done")


def most_at_once(ran: Sequence[Ran]) -> int:
    return max(sum(other.began_s <= one.began_s < other.ended_s for other in ran) for one in ran)


def groups_of(ran: Sequence[Ran], *names: str) -> list[list[Ran]]:
    groups: dict[tuple[object, ...], list[Ran]] = {}
    for one in ran:
        groups.setdefault(tuple(one.unit.levels[name] for name in names), []).append(one)
    return list(groups.values())


def in_sequence(groups: Sequence[Sequence[Ran]]) -> bool:
    """Whether a group begins only when all of the one before has ended."""
    return all(
        max(one.ended_s for one in before) <= min(one.began_s for one in after) for before, after in pairwise(groups)
    )


def names(ran: Sequence[Ran]) -> list[str]:
    return [one.unit.id for one in ran]


LENGTHS = st.lists(st.floats(0.1, 100.0, allow_nan=False), min_size=36, max_size=36)


def lengths(drawn: Sequence[float]) -> dict[str, float]:
    return {unit.id: seconds for unit, seconds in zip(matrix(), drawn, strict=True)}


def test_all_begins_units_in_the_order_of_the_plan_on_every_free_lane() -> None:
    units = matrix()
    ran = run("all", units, 4)
    assert names(ran) == [unit.id for unit in units]
    assert most_at_once(ran) == 4
    assert most_at_once(run("all", units, FOREVER)) == 36


def test_longest_first_begins_by_estimate_and_equal_ones_in_order() -> None:
    units = [*matrix(), Unit(id="last", estimated_s=36.0)]
    assert names(run("longest_first", units, 4)) == [
        unit.id for unit in sorted(units, key=lambda unit: -unit.estimated_s)
    ]


@pytest.mark.covers("D2", "D5")
@settings(max_examples=20, deadline=None)
@given(LENGTHS)
def test_sequential_runs_one_unit_at_a_time(drawn: list[float]) -> None:
    ran = run("sequential", matrix(), FOREVER, lengths(drawn))
    assert most_at_once(ran) == 1
    assert names(ran) == [unit.id for unit in matrix()]


@pytest.mark.covers("D5", "D6")
@pytest.mark.parametrize(("count", "batches", "last"), [(3, 12, 3), (5, 8, 1), (1, 36, 1), (50, 1, 36)])
@settings(max_examples=20, deadline=None)
@given(drawn=LENGTHS)
def test_a_barrier_begins_a_batch_when_the_one_before_has_ended_whole(
    count: int, batches: int, last: int, drawn: list[float]
) -> None:
    ran = run({"barrier": count}, matrix(), FOREVER, lengths(drawn))
    assert names(ran) == [unit.id for unit in matrix()]
    whole = [ran[at : at + count] for at in range(0, 36, count)]
    assert (len(whole), len(whole[-1])) == (batches, last)
    assert in_sequence(whole)
    assert all(len({one.began_s for one in batch}) == 1 for batch in whole), "a batch begins together"


@pytest.mark.covers("D5", "D6")
@settings(max_examples=20, deadline=None)
@given(LENGTHS)
def test_a_window_never_runs_more_and_never_less_while_work_waits(drawn: list[float]) -> None:
    ran = run({"window": 3}, matrix(), FOREVER, lengths(drawn))
    assert names(ran) == [unit.id for unit in matrix()]
    ends = sorted(one.ended_s for one in ran)
    assert [one.began_s for one in ran] == [0.0] * 3 + ends[:33], "each begins as soon as any has ended"


@pytest.mark.covers("D5", "D6")
@settings(max_examples=20, deadline=None)
@given(LENGTHS)
def test_chained_begins_a_unit_at_the_end_of_the_one_n_before(drawn: list[float]) -> None:
    ran = {one.unit.id: one for one in run({"chained": 3}, matrix(), FOREVER, lengths(drawn))}
    units = [ran[unit.id] for unit in matrix()]
    assert [one.began_s for one in units[:3]] == [0.0] * 3
    assert [one.began_s for one in units[3:]] == [one.ended_s for one in units[:-3]]


@pytest.mark.covers("D5", "D6")
@pytest.mark.parametrize(
    ("factors", "groups", "members"),
    [(["model"], 4, 9), (["model", "size"], 12, 3), (["length"], 3, 12)],
)
@settings(max_examples=10, deadline=None)
@given(drawn=LENGTHS)
def test_unroll_runs_one_group_of_levels_after_another(
    factors: list[str], groups: int, members: int, drawn: list[float]
) -> None:
    ran = run({"unroll": factors}, matrix(), FOREVER, lengths(drawn))
    found = groups_of(ran, *factors)
    assert [len(group) for group in found] == [members] * groups
    assert in_sequence(found)
    assert most_at_once(ran) == members
    assert most_at_once(run({"unroll": factors}, matrix(), 2, lengths(drawn))) == 2, "lanes bound a group"


@pytest.mark.covers("D2", "D6")
@pytest.mark.parametrize("then", [{"window": 2}, {"barrier": 2}, {"chained": 2}, "sequential"])
@settings(max_examples=10, deadline=None)
@given(drawn=LENGTHS)
def test_unroll_and_n_together_give_groups_in_sequence_with_n_inside(then: object, drawn: list[float]) -> None:
    ran = run({"unroll": ["model"], "then": then}, matrix(), FOREVER, lengths(drawn))
    found = groups_of(ran, "model")
    assert [len(group) for group in found] == [9] * 4
    assert in_sequence(found)
    most = 1 if then == "sequential" else 2
    assert [most_at_once(group) for group in found] == [most] * 4


@pytest.mark.covers("D6")
@settings(max_examples=10, deadline=None)
@given(LENGTHS)
def test_groups_in_parallel_keep_their_order_inside(drawn: list[float]) -> None:
    order = {"unroll": ["model"], "then": "sequential", "groups": "parallel"}
    ran = run(order, matrix(), FOREVER, lengths(drawn))
    for group in groups_of(ran, "model"):
        assert [one.began_s for one in group] == [0.0, *(one.ended_s for one in group[:-1])]
    assert most_at_once(run(order, matrix(), 3, lengths(drawn))) == 3
    nested = {"unroll": ["model"], "then": {"unroll": ["size"], "then": {"window": 2}}, "groups": "parallel"}
    for group in groups_of(run(nested, matrix(), FOREVER, lengths(drawn)), "model"):
        inside = groups_of(group, "size")
        assert in_sequence(inside)
        assert [most_at_once(part) for part in inside] == [2] * 3


@settings(max_examples=30, deadline=None)
@given(LENGTHS, st.sampled_from([{"window": 3}, {"chained": 2}, {"barrier": 4}, {"unroll": ["size"], "then": "all"}]))
def test_what_a_unit_waits_for_has_ended_before_it_begins(drawn: list[float], written: object) -> None:
    units = matrix()
    steps = order_of(written).arranged(units)
    ran = {one.unit.id: one for one in run(written, units, 5, lengths(drawn))}
    waited = 0
    for at, unit in enumerate(units):
        wait = steps.waits(at)
        waited += len(wait.after)
        assert all(ran[units[index].id].ended_s <= ran[unit.id].began_s for index in wait.after)
        assert wait.limit == (3 if written == {"window": 3} else None)
    assert (waited > 0) == (written != {"window": 3})


def test_a_unit_that_returns_to_the_list_keeps_its_batch_open() -> None:
    units = [Unit(id=name, state=state) for name, state in (("a", "done"), ("b", "waiting"), ("c", "waiting"))]
    chosen = order_of("barrier: 2").next_of(units)
    assert chosen is not None
    assert chosen.id == "b"
    assert order_of("barrier: 2").next_of([units[0], replace(units[1], state="running"), units[2]]) is None


@pytest.mark.parametrize(
    ("written", "order"),
    [
        ("in_order", Order(name="all")),
        ("sliding(3)", Order(name="window", count=3)),
        ("barrier(4)", Order(name="barrier", count=4)),
        ("window: 4", Order(name="window", count=4)),
        ("{chained: 2}", Order(name="chained", count=2)),
        ("unroll(model, size)", Order(name="unroll", factors=("model", "size"))),
        ("unroll: model", Order(name="unroll", factors=("model",))),
        (
            "unroll: [model], then: {barrier: 2}, groups: parallel",
            Order(name="unroll", factors=("model",), then=Order(name="barrier", count=2), groups="parallel"),
        ),
    ],
)
def test_every_way_to_write_an_order_is_read_and_its_text_gives_the_same(written: str, order: Order) -> None:
    assert order_of(written) == order
    assert order_of(order.text) == order


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("longest", "'longest' is no order."),
        ("slidng(2)", "Did you mean 'sliding'?"),
        ("in_order(2)", "all takes no value."),
        ("barrier", "barrier takes one whole number from 1 on"),
        ("barrier(0)", "barrier takes one whole number from 1 on"),
        ("window: -1", "window takes one whole number from 1 on"),
        ("window: 1.5", "window takes one whole number from 1 on"),
        ("window: true", "window takes one whole number from 1 on"),
        ("sliding(2, 3)", "window takes one whole number from 1 on"),
        ("unroll()", "unroll takes names of factors"),
        ("unroll: 3", "unroll takes names of factors"),
        ("unroll: [model], than: all", "'than' does not belong to unroll."),
        ("window: 2, then: all", "'then' does not belong to window."),
        ("unroll: [model], groups: paralel", "Did you mean 'parallel'?"),
        ("unroll: [model], then: {windw: 2}", "Did you mean 'window'?"),
        ("", "'' is no order."),
        ("barrier(4", "'barrier(4' is no order."),
        ([], "'[]' is no order."),
        ({3: 4}, "'3' is no order."),
    ],
)
def test_a_wrong_order_says_what_is_allowed(written: object, says: str) -> None:
    with pytest.raises(ValueError, match=r"order|takes|belong|groups") as caught:
        order_of(written)
    assert says in str(caught.value)


def test_factors_that_no_deployment_has_are_named_at_every_level() -> None:
    order = order_of("unroll: [model], then: {unroll: [lenght]}")
    said = unknown_factors(order, ["model", "length"])
    assert said is not None
    assert "'lenght'" in said
    assert "Did you mean 'length'?" in said
    assert unknown_factors(order_of("unroll: [model]"), ["model"]) is None


@pytest.mark.covers("B17")
def test_a_function_of_the_users_chooses_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_order.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert names(run("my_order:last_first", matrix(), 1)) == [unit.id for unit in reversed(matrix())]
    inside = groups_of(run("unroll: [model], then: 'my_order:last_first'", matrix(), 1), "model")
    assert [names(group) for group in inside] == [
        [unit.id for unit in reversed(matrix()) if unit.levels["model"] == model] for model in "abcd"
    ]
    for name, said in {
        "nothing": "36 units would wait forever",
        "other": "it returned 'x'. Return one of the units that wait",
        "broken": "ZeroDivisionError",
    }.items():
        with pytest.raises(UserError, match=said):
            order_of(f"my_order:{name}").next_of(matrix())
    with pytest.raises(ValueError, match=r"'my_order' has no 'last_frist'.*last_first"):
        order_of("my_order:last_frist")
