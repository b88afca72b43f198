"""The search's steps alone, against servers that are a rule: which levels it tries, what it finds, when it ends."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from seamark.model.results.load_record import SearchOutcome
from seamark.model.results.search_record import Probe
from seamark.model.scenario import Search
from seamark.trials.search.steps import (
    HALVINGS,
    LOOK_ERROR,
    MOST_LOOKS,
    TIMES,
    LevelVerdict,
    Verdict,
    levels_of,
    next_step,
    spent,
)

RATES = Search(setting="rate_rps", from_level=10, to_level=2000)
USERS = Search(setting="concurrency", from_level=1, to_level=64, within=0.1)


def searched(
    search: Search, server: Callable[[Probe], Verdict], most: int = 200
) -> tuple[SearchOutcome, list[LevelVerdict]]:
    """Return what a search finds on a server, and its probes."""
    answers: list[LevelVerdict] = []
    while isinstance(step := next_step(search, answers), Probe):
        assert len(answers) < most
        answers.append(LevelVerdict(probe=step, verdict=server(step)))
    return step, answers


def bears(capacity: float) -> Callable[[Probe], Verdict]:
    return lambda probe: "pass" if probe.level <= capacity else "fail"


def tried(answers: list[LevelVerdict]) -> list[float]:
    return [answer.probe.level for answer in answers]


def test_levels_lie_within_the_asked_ratio_of_each_other_and_hold_both_ends():
    levels = levels_of(RATES)
    assert {10, 2000} <= set(levels)
    assert all(low < high <= low * 1.051 for low, high in pairwise(levels))
    assert levels[0] == pytest.approx(10 / 2**HALVINGS, rel=0.06)
    assert all(level == float(f"{level:.4g}") for level in levels)


def test_levels_of_users_are_whole_and_none_comes_twice():
    levels = levels_of(USERS)
    assert levels[0] == 1
    assert levels[-1] == 64
    assert all(isinstance(level, int) for level in levels)
    assert list(levels) == sorted(set(levels))


@pytest.mark.parametrize("capacity", [10, 11.3, 37, 120, 999, 1999])
def test_the_largest_level_that_passes_is_found_within_the_asked_ratio(capacity):
    found, answers = searched(RATES, bears(capacity))
    assert found.outcome == "converged"
    assert found.confirmed
    assert found.found <= capacity < found.bracket[1]
    assert found.bracket[1] / found.found <= 1.051
    assert len(answers) <= 16


def test_it_doubles_until_a_level_fails_and_halves_the_rest():
    _, answers = searched(RATES, bears(100))
    levels = tried(answers)
    assert levels[:5] == pytest.approx([10, 20, 40, 80, 160], rel=0.25)
    assert all(80 <= level <= 200 for level in levels[4:])
    assert len(levels) == len({(a.probe.level, a.probe.look) for a in answers})


def test_what_is_found_is_measured_again_with_another_seed_as_often_as_asked():
    for confirm in (0, 1, 3):
        found, answers = searched(replace(RATES, confirm=confirm), bears(100))
        looks = [a.probe.look for a in answers if a.probe.level == found.found]
        assert looks == list(range(1, confirm + 2))
        assert found.confirmed == (confirm > 0)


def unsure(capacity: float, near: float, decides_at: int = 99) -> Callable[[Probe], Verdict]:
    """A server of which levels within a factor of `near` of its capacity are not decided before a look."""

    def server(probe: Probe) -> Verdict:
        passes = probe.level <= capacity
        if max(probe.level / capacity, capacity / probe.level) <= near and probe.look < decides_at:
            return "likely_pass" if passes else "likely_fail"
        return "pass" if passes else "fail"

    return server


def test_levels_at_the_limit_are_measured_on_and_longer_until_they_are_decided():
    found, answers = searched(RATES, unsure(100, 1.2, decides_at=4))
    assert (found.outcome, found.confirmed) == ("converged", True)
    assert found.bracket[0] == found.found <= 100 < found.bracket[1] <= found.found * 1.051
    for edge in found.bracket:
        assert [a.probe.times for a in answers if a.probe.level == edge] == list(TIMES[:4])


def test_levels_that_cannot_be_decided_lie_inside_the_bracket_and_levels_further_out_are_decided():
    found, answers = searched(RATES, unsure(100, 1.04))
    low, high = found.bracket
    assert found.outcome == "undecided"
    assert not found.confirmed
    assert low < found.found <= 100 < high
    assert 1.04 < 100 / low < 1.16
    assert 1.04 < high / 100 < 1.16
    looks = [sum(a.probe.level == level for a in answers) for level in levels_of(RATES)]
    assert max(looks) == MOST_LOOKS
    assert found.confidence == pytest.approx(1 - LOOK_ERROR * len(answers))


def test_a_level_that_is_likely_to_pass_and_then_fails_is_left_for_one_below():
    top, _ = searched(RATES, bears(100))

    def lucky(probe: Probe) -> Verdict:
        if probe.level == top.found:
            return "likely_pass" if probe.look == 1 else "fail"
        return bears(100)(probe)

    found, _ = searched(RATES, lucky)
    levels = levels_of(RATES)
    assert found.found == levels[levels.index(top.found) - 1]
    assert found.confirmed
    assert found.bracket == (found.found, top.found)


def test_a_server_that_bears_all_is_said_to_and_one_that_bears_nothing():
    found, _ = searched(RATES, bears(1e9))
    assert (found.outcome, found.found, found.confirmed, found.bracket) == ("all_pass", 2000, True, (2000, None))
    found, answers = searched(RATES, bears(0))
    assert (found.outcome, found.found, found.bracket[0]) == ("none_pass", None, None)
    assert len(answers) <= HALVINGS + 2
    found, answers = searched(USERS, bears(0))
    assert (found.outcome, tried(answers)) == ("none_pass", [1])


def test_below_its_beginning_it_finds_a_level_as_well():
    found, _ = searched(RATES, bears(3.3))
    assert found.outcome == "converged"
    assert found.found <= 3.3 <= found.bracket[1] <= found.found * 1.051


def test_users_are_found_exactly():
    for capacity in (1, 2, 3, 7, 20, 63):
        found, _ = searched(replace(USERS, within=0.01), bears(capacity))
        assert found.found == capacity


def test_a_probe_that_says_nothing_is_measured_again_and_counts_for_neither_side():
    seen: set[float] = set()

    def shaky(probe: Probe) -> Verdict:
        if probe.level in seen:
            return bears(100)(probe)
        seen.add(probe.level)
        return "void"

    found, answers = searched(RATES, shaky)
    assert found.found == searched(RATES, bears(100))[0].found
    assert found.outcome == "converged"
    assert all(a.probe.attempt == 2 for a in answers if a.verdict != "void" and a.probe.look == 1)


def test_a_level_that_no_probe_can_judge_is_not_gone_beyond_and_that_is_said():
    found, answers = searched(RATES, lambda probe: "pass" if probe.level <= 300 else "void")
    assert found.outcome == "not_judged"
    assert 280 < found.found <= 300
    assert found.bracket == (found.found, None), "no level was decided to fail"
    assert max(answer.probe.attempt for answer in answers) == 2
    found, answers = searched(RATES, lambda probe: "void")
    assert (found.outcome, found.found, len(answers)) == ("not_judged", None, 2)


def test_a_second_look_that_cannot_be_judged_leaves_the_level_unconfirmed():
    found, _ = searched(RATES, lambda probe: "void" if probe.look > 1 else bears(100)(probe))
    assert found.outcome == "converged"
    assert found.found <= 100
    assert not found.confirmed


def test_when_time_is_up_the_largest_level_that_passed_is_found_with_its_bracket():
    _, answers = searched(RATES, bears(100))
    for count in range(len(answers) + 1):
        found = spent(RATES, answers[:count])
        passed = [a.probe.level for a in answers[:count] if a.verdict == "pass"]
        failed = [a.probe.level for a in answers[:count] if a.verdict == "fail"]
        assert found.outcome == ("budget_spent" if count < len(answers) else "converged")
        assert found.bracket == (max(passed, default=None), min(failed, default=None))
        assert found.found == found.bracket[0]


def test_the_same_answers_give_the_same_steps():
    _, answers = searched(RATES, bears(123))
    assert [next_step(RATES, answers[:k]) for k in range(len(answers))] == [a.probe for a in answers]
