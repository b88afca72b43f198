"""HEFT and CPOP on the published example, and what every plan has to keep."""

import random
from itertools import pairwise

import pytest

from seamark.simulation.policies.list_planning import TaskGraph, cpop, downward_ranks, heft, upward_ranks

TOPCUOGLU = TaskGraph(
    cost_s=[
        [14, 16, 9],
        [13, 19, 18],
        [11, 13, 19],
        [13, 8, 17],
        [12, 13, 10],
        [13, 16, 9],
        [7, 15, 11],
        [5, 11, 14],
        [18, 12, 20],
        [21, 7, 16],
    ],
    transfer_s={
        (source - 1, target - 1): length
        for source, target, length in [
            *((1, 2, 18), (1, 3, 12), (1, 4, 9), (1, 5, 11), (1, 6, 14), (2, 8, 19), (2, 9, 16), (3, 7, 23)),
            *((4, 8, 27), (4, 9, 23), (5, 9, 13), (6, 8, 15), (7, 10, 17), (8, 10, 11), (9, 10, 13)),
        ]
    },
)
"""The ten tasks on three processors of Topcuoglu, Hariri and Wu (2002), fig. 2."""


def test_ranks_are_those_of_the_published_table():
    up = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]
    down = [0.000, 31.000, 25.000, 22.000, 24.000, 27.000, 62.333, 66.667, 63.667, 93.333]
    assert upward_ranks(TOPCUOGLU) == pytest.approx(up, abs=5e-4)
    assert downward_ranks(TOPCUOGLU) == pytest.approx(down, abs=5e-4)


def test_heft_plans_the_published_example_in_80_and_cpop_in_86():
    places = [(slot.processor + 1, slot.start_s, slot.end_s) for slot in heft(TOPCUOGLU)]
    assert places == [
        (3, 0, 9),
        (1, 27, 40),
        (3, 9, 28),
        (2, 18, 26),
        (3, 28, 38),
        (2, 26, 42),
        (3, 38, 49),
        (1, 57, 62),
        (2, 56, 68),
        (2, 73, 80),
    ]
    assert max(slot.end_s for slot in cpop(TOPCUOGLU)) == 86


@pytest.mark.parametrize("planner", [heft, cpop])
def test_a_plan_respects_edges_transfers_and_processors(planner):
    for seed in range(200):
        rng = random.Random(seed)
        count, processors = rng.randint(1, 12), rng.randint(1, 4)
        graph = TaskGraph(
            cost_s=[[rng.choice((0.0, 1.0, 5 * rng.random())) for _ in range(processors)] for _ in range(count)],
            transfer_s={
                (i, j): 3 * rng.random() for i in range(count) for j in range(i + 1, count) if rng.random() < 0.3
            },
        )
        plan = planner(graph)
        for task, slot in enumerate(plan):
            assert slot.end_s - slot.start_s == pytest.approx(graph.cost_s[task][slot.processor], abs=1e-9)
        for (source, target), length_s in graph.transfer_s.items():
            away_s = length_s if plan[source].processor != plan[target].processor else 0.0
            assert plan[target].start_s >= plan[source].end_s + away_s - 1e-9
        for processor in range(processors):
            held = sorted((slot.start_s, slot.end_s) for slot in plan if slot.processor == processor)
            assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(held)), seed


def test_a_cycle_is_no_task_graph():
    with pytest.raises(ValueError, match="cycle"):
        heft(TaskGraph(cost_s=[[1.0], [1.0]], transfer_s={(0, 1): 0.0, (1, 0): 0.0}))
