"""Which unit begins next: every policy against the order that its name promises."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from seamark.dispatch.claim_policies import FORMS, ClaimPolicy, Unit, claim_policy
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


def steps(policy: ClaimPolicy, units: Sequence[Unit], lanes: int) -> list[list[str]]:
    """Return the units that run at each step, where at each step the one that began first ends."""
    states = {unit.id: unit for unit in units}
    running: list[str] = []
    seen: list[list[str]] = []
    while True:
        while len(running) < lanes and (chosen := policy(list(states.values()))) is not None:
            assert states[chosen.id].state == "waiting"
            states[chosen.id] = replace(chosen, state="running")
            running.append(chosen.id)
        if not running:
            return seen
        seen.append(list(running))
        ended = running.pop(0)
        states[ended] = replace(states[ended], state="done")


def begun(seen: list[list[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in seen for name in names))


def test_in_order_begins_units_in_the_order_of_the_plan() -> None:
    units = matrix()
    assert begun(steps(claim_policy("in_order"), units, 4)) == [unit.id for unit in units]


def test_longest_first_begins_by_estimate_and_equal_ones_in_order() -> None:
    units = [*matrix(), Unit(id="last", estimated_s=36.0)]
    made = begun(steps(claim_policy("longest_first"), units, 4))
    assert made == [unit.id for unit in sorted(units, key=lambda unit: -unit.estimated_s)]


@pytest.mark.covers("D5", "D6")
@pytest.mark.parametrize(("count", "batches", "last"), [(3, 12, 3), (5, 8, 1), (1, 36, 1), (50, 1, 36)])
def test_a_barrier_begins_a_batch_when_the_one_before_has_ended_whole(count: int, batches: int, last: int) -> None:
    units = matrix()
    whole = _maximal(steps(claim_policy(f"barrier({count})"), units, 99))
    assert len(whole) == batches
    assert len(whole[-1]) == last
    assert [name for names in whole for name in names] == [unit.id for unit in units]


def _maximal(seen: list[list[str]]) -> list[list[str]]:
    """Return the steps in which something began."""
    before: set[str] = set()
    batches = []
    for names in seen:
        if fresh := [name for name in names if name not in before]:
            batches.append(fresh)
        before |= set(names)
    return batches


@pytest.mark.covers("D5", "D6")
def test_a_sliding_window_never_runs_more_and_never_less_while_work_waits() -> None:
    units = matrix()
    seen = steps(claim_policy("sliding(3)"), units, 99)
    assert begun(seen) == [unit.id for unit in units]
    assert [len(names) for names in seen] == [3] * 34 + [2, 1]


@pytest.mark.covers("D5", "D6")
@pytest.mark.parametrize(
    ("text", "groups", "members"),
    [("unroll(model)", 4, 9), ("unroll(model, size)", 12, 3), ("unroll(length)", 3, 12)],
)
def test_unroll_runs_one_group_of_levels_after_another(text: str, groups: int, members: int) -> None:
    names = text.removeprefix("unroll(").removesuffix(")").split(", ")
    levels = {unit.id: tuple(unit.levels[name] for name in names) for unit in matrix()}
    seen = steps(claim_policy(text), matrix(), 99)
    for together in seen:
        assert len({levels[name] for name in together}) == 1, "two groups at a time"
    assert [len(batch) for batch in _maximal(seen)] == [members] * groups
    limited = steps(claim_policy(text), matrix(), 2)
    assert max(map(len, limited)) == 2, "lanes bound what runs inside of a group"


def test_a_unit_that_returns_to_the_list_keeps_its_batch_open() -> None:
    units = [Unit(id=name, state=state) for name, state in (("a", "done"), ("b", "waiting"), ("c", "waiting"))]
    chosen = claim_policy("barrier(2)")(units)
    assert chosen is not None
    assert chosen.id == "b"
    assert claim_policy("barrier(2)")([units[0], replace(units[1], state="running"), units[2]]) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("longest", "'longest' is no claim policy. Allowed: " + ", ".join(FORMS)),
        ("slidng(2)", "Did you mean 'sliding'?"),
        ("in_order(2)", "in_order takes nothing in parentheses. Write 'in_order'."),
        ("barrier", "barrier takes one whole number from 1 on. Write 'barrier(4)'."),
        ("barrier(0)", "barrier takes one whole number from 1 on."),
        ("sliding(-1)", "sliding takes one whole number from 1 on."),
        ("sliding(2, 3)", "sliding takes one whole number from 1 on."),
        ("unroll()", "unroll takes deployment factors. Write 'unroll(FACTOR)'."),
        ("unroll(modle)", "'modle' is no deployment factor of the plan. Factors: model, size. Did you mean 'model'?"),
        ("", "'' is no claim policy."),
        ("barrier(4", "'barrier(4' is no claim policy."),
    ],
)
def test_a_wrong_policy_says_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"claim policy|takes|factor") as caught:
        claim_policy(text, ["model", "size"])
    assert says in str(caught.value)


@pytest.mark.covers("B17")
def test_a_function_of_the_users_chooses_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_order.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    order = [running[-1] for running in steps(claim_policy("my_order:last_first"), matrix(), 1)]
    assert order == [unit.id for unit in reversed(matrix())]
    for name, said in {
        "nothing": "36 units would wait forever",
        "other": "it returned 'x'. Return one of the units that wait",
        "broken": "ZeroDivisionError",
    }.items():
        with pytest.raises(UserError, match=said):
            claim_policy(f"my_order:{name}")(matrix())
    with pytest.raises(ValueError, match=r"'my_order' has no 'last_frist'.*last_first"):
        claim_policy("my_order:last_frist")
