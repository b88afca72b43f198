"""Where services that are under load together run: each policy by what its name promises, and wrong answers."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from seamark.dispatch.placement import (
    PLACEMENTS,
    PartyMachine,
    Place,
    PlacedParty,
    pinned,
    placement_of,
    places,
    priority,
    shared,
    split,
    threads_and_cores,
)
from seamark.errors import SiteError, UserError


def machine(cores: int, gpus: tuple[int, ...] = ()) -> PartyMachine:
    """Return a machine whose CPUs begin at 4: a position is no number."""
    return PartyMachine(cores=tuple(range(4, 4 + cores)), gpus=gpus)


def parties(text: str) -> list[PlacedParty]:
    """Return a party for each letter, the capital ones in the client."""
    return [PlacedParty(name=letter.lower(), in_client=letter.isupper()) for letter in text]


def test_shared_leaves_every_party_on_all_cores() -> None:
    assert places(shared, parties("abC"), machine(1)) == {name: Place() for name in "abc"}


def test_priority_makes_all_but_the_first_party_give_way() -> None:
    made = places(priority, parties("abC"), machine(1))
    assert [place.niceness for place in made.values()] == [0, 10, 10]
    assert {replace(place, niceness=0) for place in made.values()} == {Place()}


@pytest.mark.parametrize(
    ("text", "cores", "expected"),
    [
        ("ab", 4, [((4, 5), (4, 5)), ((6, 7), (6, 7))]),
        ("abc", 3, [((4,), (4,)), ((5,), (5,)), ((6,), (6,))]),
        ("abc", 5, [((4, 5), (4, 5)), ((6, 7), (6, 7)), ((8,), (8,))]),
        ("Ab", 3, [((), (4, 5)), ((6,), (6,))]),
    ],
)
def test_split_gives_each_party_a_part_that_its_server_and_load_share(
    text: str, cores: int, expected: list[Any]
) -> None:
    made = places(split, parties(text), machine(cores)).values()
    assert [(place.server_cores, place.load_cores) for place in made] == expected
    assert [place.threads for place in made] == [len(place.load_cores) for place in made]


@pytest.mark.parametrize(
    ("text", "cores", "expected", "threads"),
    [
        ("ab", 4, [((4,), (5,)), ((6,), (7,))], [1, 1]),
        ("a", 5, [((4, 5, 6), (7, 8))], [3]),
        ("ab", 6, [((4, 5), (6,)), ((7, 8), (9,))], [2, 2]),
        ("Ab", 5, [((), (4, 5, 6)), ((7,), (8,))], [3, 1]),
        ("Ab", 3, [((), (4,)), ((5,), (6,))], [1, 1]),
        ("ABcD", 6, [((), (4, 5)), ((), (6,)), ((7,), (8,)), ((), (9,))], [2, 1, 1, 1]),
    ],
)
def test_pinned_also_keeps_a_server_and_its_load_apart(
    text: str, cores: int, expected: list[Any], threads: list[int]
) -> None:
    made = places(pinned, parties(text), machine(cores)).values()
    assert [(place.server_cores, place.load_cores) for place in made] == expected
    assert [place.threads for place in made] == threads


@pytest.mark.parametrize(
    ("policy", "text", "cores"),
    [
        (policy, text, cores)
        for policy, text, cores in product((split, pinned), ("a", "abc", "aBc", "AB"), (6, 7, 16))
    ],
)
def test_every_core_is_used_by_one_party_and_parts_differ_by_one_at_most(
    policy: Callable[..., Any], text: str, cores: int
) -> None:
    made = places(policy, parties(text), machine(cores)).values()
    parts = [set(place.server_cores) | set(place.load_cores) for place in made]
    assert sorted(core for part in parts for core in part) == list(machine(cores).cores)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(place.load_cores for place in made)
    if policy is pinned:
        assert not any(set(place.server_cores) & set(place.load_cores) for place in made)


@pytest.mark.parametrize("name", PLACEMENTS)
def test_gpus_are_dealt_out_in_order_as_many_as_each_party_requests(name: str) -> None:
    asked = [replace(party, gpus=gpus) for party, gpus in zip(parties("abc"), (1, 0, 2), strict=True)]
    made = places(placement_of(name), asked, machine(6, gpus=(7, 3, 5, 1)))
    assert [place.gpus for place in made.values()] == [(7,), (), (3, 5)]


@pytest.mark.parametrize("name", PLACEMENTS)
def test_gpus_in_common_are_the_first_ones_for_each_party(name: str) -> None:
    asked = [replace(party, gpus=gpus) for party, gpus in zip(parties("abc"), (1, 0, 2), strict=True)]
    here = replace(machine(6, gpus=(7, 3)), gpus_in_common=True)
    assert [place.gpus for place in places(placement_of(name), asked, here).values()] == [(7,), (), (7, 3)]
    with pytest.raises(SiteError):
        places(placement_of(name), asked, replace(here, gpus=(7,)))


@pytest.mark.parametrize("name", PLACEMENTS)
def test_too_few_gpus_are_refused_with_what_each_party_requests(name: str) -> None:
    asked = [replace(party, gpus=2) for party in parties("ab")]
    text = f"placement {name} needs 4 GPUs (a 2, b 2); this machine has 3. Request fewer"
    with pytest.raises(SiteError, match=re.escape(text)):
        places(placement_of(name), asked, machine(6, gpus=(0, 1, 2)))


@pytest.mark.parametrize(
    ("name", "text", "cores", "says"),
    [
        ("split", "abc", 2, "split needs at least 3 cores for 3 parties; this machine has 2. Use shared or priority"),
        ("split", "a", 0, "split needs at least 1 core for 1 party; this machine has 0."),
        ("pinned", "aB", 2, "pinned needs at least 3 cores for 2 parties (two for each with a server); this machine"),
        ("pinned", "ab", 2, "this machine has 2. Use split, shared or priority"),
        ("pinned", "ab", 1, "this machine has 1. Use shared or priority"),
    ],
)
def test_too_few_cores_are_refused_with_how_many_are_needed(name: str, text: str, cores: int, says: str) -> None:
    with pytest.raises(SiteError, match=re.escape(says)):
        places(placement_of(name), parties(text), machine(cores))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a policy with this expression for its answer, and return its dotted path."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(answer: str) -> str:
        text = "from seamark.dispatch.placement import Place\n\n\ndef policy(parties, machine):\n    return " + answer
        (tmp_path / "placed_by_me.py").write_text(f"{text}\n", encoding="utf-8")
        monkeypatch.delitem(sys.modules, "placed_by_me", raising=False)
        return "placed_by_me:policy"

    return write


def test_a_policy_of_the_users_own_is_found_by_its_dotted_path(own: Callable[[str], str]) -> None:
    path = own("{p.name: Place(load_cores=machine.cores[:1], threads=3, niceness=19) for p in reversed(parties)}")
    made = places(placement_of(path), parties("ab"), machine(2))
    assert list(made) == ["a", "b"], "in the order of the parties"
    assert set(made.values()) == {Place(load_cores=(4,), threads=3, niceness=19)}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("None", "it returned None. Return a mapping with a Place for each party"),
        ("[Place()]", "it returned a value of type list."),
        ("{'a': Place()}", "party 'b' has no place. Return one for each of a, b."),
        ("{'a': Place(), 'b': None}", "the place of 'b' is None. Return a seamark.dispatch.placement.Place."),
        ("{'a': Place(), 'b': {}}", "the place of 'b' is a value of type dict."),
        ("{'a': Place(), 'b': Place(), 'bb': Place()}", "'bb' is no party. Parties: a, b. Did you mean 'b'?"),
        (
            "{'a': Place(), 'b': Place(server_cores=(5, 9, 8))}",
            "server_cores: there is no core 9, 8 on this machine.",
        ),
        (
            "{'a': Place(), 'b': Place(load_cores=(0,))}",
            "load_cores: there is no core 0 on this machine. Allowed: 4, 5",
        ),
        ("{'a': Place(), 'b': Place(load_cores=(4, 4))}", "load_cores is (4, 4): a core is named twice."),
        ("{'a': Place(), 'b': Place(load_cores=[4])}", "load_cores is [4]. Give a tuple of whole numbers"),
        ("{'a': Place(), 'b': Place(load_cores=(True,))}", "load_cores is (True,). Give a tuple of whole numbers"),
        ("{'a': Place(), 'b': Place(gpus=(2,))}", "gpus: there is no GPU 2 on this machine. Allowed: 0, 1."),
        ("{'a': Place(), 'b': Place(gpus=(1,))}", "gpus has 1 GPU, and the party requests 0. Give as many."),
        ("{'a': Place(), 'b': Place(gpus=None)}", "gpus is None. Give a tuple of whole numbers"),
        ("{'a': Place(), 'b': Place(niceness=20)}", "niceness is 20. Allowed: 0 to 19."),
        ("{'a': Place(), 'b': Place(niceness=-1)}", "niceness is -1. Allowed: 0 to 19."),
        ("{'a': Place(), 'b': Place(niceness=None)}", "niceness is None. Allowed: 0 to 19."),
        ("{'a': Place(), 'b': Place(threads=0)}", "threads is 0. Allowed: a whole number from 1 on, or None"),
        ("{'a': Place(), 'b': Place(threads='2')}", "threads is '2'. Allowed: a whole number from 1 on, or None"),
        ("1 / 0", "failed: ZeroDivisionError: division by zero. It is called with the parties and the machine"),
    ],
)
def test_a_wrong_answer_of_a_users_own_policy_is_refused(own: Callable[[str], str], answer: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)) as refused:
        places(placement_of(own(answer)), parties("ab"), machine(4, gpus=(0, 1)))
    assert str(refused.value).startswith("placement placed_by_me:policy")


def test_every_mistake_in_an_answer_is_named_at_once(own: Callable[[str], str]) -> None:
    path = own("{'a': Place(niceness=99, threads=0), 'c': Place()}")
    with pytest.raises(UserError) as refused:
        places(placement_of(path), parties("ab"), machine(4))
    assert len(refused.value.lines) == 4


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "spilt",
            "'spilt' is no placement. Allowed: shared, split, pinned, priority, or module:function. Did you mean",
        ),
        ("no_such_module:policy", "there is no module 'no_such_module'"),
        ("seamark.dispatch.placement:spilt", "Did you mean 'split'?"),
        ("seamark.dispatch.placement:Place", "'Place' in 'seamark.dispatch.placement' is no function"),
    ],
)
def test_a_name_that_is_no_policy_is_refused_with_those_that_are(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        placement_of(name)


def test_an_answer_may_be_any_mapping() -> None:
    class Everything(Mapping[str, Place]):
        def __getitem__(self, name: str) -> Place:
            return {"a": Place()}[name]

        def __iter__(self) -> Any:
            return iter(("a",))

        def __len__(self) -> int:
            return 1

    assert places(lambda parties, machine: Everything(), parties("a"), machine(1)) == {"a": Place()}


ONE, TWO, ALL = (4,), (5,), ()


@pytest.mark.covers("A1")
@pytest.mark.parametrize(
    ("made", "pair"),
    [
        ([Place(load_cores=ONE), Place(load_cores=TWO)], (2, 2)),
        ([Place(threads=1), Place(threads=1)], (2, 2)),
        ([Place(threads=2), Place(threads=2)], (4, 2)),
        ([Place(load_cores=ONE, threads=2), Place(load_cores=TWO, threads=1)], (2, 1)),
        ([Place(load_cores=ONE, threads=1), Place(load_cores=ONE, threads=1)], (2, 1)),
        ([Place(threads=2)], (2, 2)),
        ([Place(), Place()], None),
        ([Place(load_cores=ONE), Place(load_cores=ONE)], None),
        ([Place(threads=1), Place()], None),
    ],
)
def test_threads_are_counted_where_a_placement_divides_the_machine(
    made: list[Place], pair: tuple[int, int] | None
) -> None:
    under = parties("AB"[: len(made)])
    found = dict(zip("ab", made, strict=False))
    assert threads_and_cores(under, found, machine(2)) == pair


@pytest.mark.parametrize("policy", [split, pinned])
def test_no_policy_of_seamark_that_divides_the_machine_gives_more_threads_than_cores(policy: Any) -> None:
    for under, here in product(map(parties, ("ab", "Ab", "AbC")), map(machine, range(6, 10))):
        pair = threads_and_cores(under, places(policy, under, here), here)
        assert pair is not None
        assert pair[0] <= pair[1]
        assert threads_and_cores(under, places(shared, under, here), here) is None


def test_a_server_without_cores_of_its_own_may_use_those_of_the_other_party() -> None:
    found = {"a": Place(load_cores=ONE), "b": Place(load_cores=TWO)}
    assert threads_and_cores(parties("ab"), found, machine(2)) is None
