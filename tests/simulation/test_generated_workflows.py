"""Workflows and requests drawn by a seed."""

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest

from seamark_simulate.config.workflow_files import cycle_of
from seamark_simulate.simulation.generated_requests import (
    MOST_PASSES,
    GeneratedLoad,
    Shape,
    generated_requests,
    generated_workflow,
)
from seamark_simulate.simulation.system import Model, System

MODELS = ("a", "b", "c")
SYSTEM = System(
    models={name: Model(id=name, memory_gb=1.0, gpus_required=1, load_time_s=1.0) for name in MODELS}, workflows={}
)


def edges_of(shape: Shape, nodes: int, seed: int = 1) -> list[tuple[int, int]]:
    """Return the edges as pairs of numbers of nodes, from 1."""
    made = generated_workflow("w", shape, nodes, MODELS, [seed])
    numbers = {node.id: place for place, node in enumerate(made.nodes, 1)}
    return [(numbers[edge.source], numbers[edge.target]) for edge in made.edges]


@pytest.mark.covers("C14")
def test_chain_fan_and_fork_join_have_the_edges_of_their_names() -> None:
    assert edges_of("chain", 4) == [(1, 2), (2, 3), (3, 4)]
    assert edges_of("fan", 4) == [(1, 2), (1, 3), (1, 4)]
    assert edges_of("fork-join", 4) == [(1, 2), (1, 3), (2, 4), (3, 4)]
    assert edges_of("fork-join", 2) == [(1, 2)]
    assert [edges_of(shape, 1) for shape in ("chain", "fan", "fork-join", "layered")] == [[]] * 4


@pytest.mark.covers("C14")
@pytest.mark.parametrize("seed", range(20))
def test_every_node_of_layers_but_those_of_the_first_waits_for_one_of_the_layer_before(seed: int) -> None:
    edges = edges_of("layered", 30, seed)
    assert cycle_of([(str(one), str(other)) for one, other in edges]) == []
    depth = dict.fromkeys(range(1, 31), 0)
    for source, target in sorted(edges):
        depth[target] = max(depth[target], depth[source] + 1)
    assert all(depth[target] == depth[source] + 1 for source, target in edges)
    waiting = {target for _, target in edges}
    assert {node for node, level in depth.items() if level} == waiting
    levels = [depth[node] for node in range(1, 31)]
    assert all(later - earlier in (0, 1) for earlier, later in pairwise(levels))
    assert len(set(levels)) > 2


@pytest.mark.covers("C14")
def test_a_loop_is_passed_a_bounded_number_of_times_with_the_same_models() -> None:
    passes = set()
    for seed in range(40):
        made = generated_workflow("w", "loop", 5, MODELS, [seed])
        count, left = divmod(len(made.nodes), 5)
        assert left == 0
        passes.add(count)
        models = [node.model for node in made.nodes]
        assert models == models[:5] * count
        assert len(made.edges) == len(made.nodes) - 1
    assert passes == set(range(1, MOST_PASSES + 1))


@pytest.mark.parametrize("shape", get_args(Shape))
def test_the_same_seed_gives_the_same_requests_and_more_of_them_change_none(shape: Shape) -> None:
    load = GeneratedLoad(count=50, rate_rps=2.0, shape=shape, nodes=12)
    many = generated_requests(SYSTEM, load, 3)
    assert many == generated_requests(SYSTEM, load, 3)
    fewer = generated_requests(SYSTEM, GeneratedLoad(count=20, rate_rps=2.0, shape=shape, nodes=12), 3)
    assert fewer.requests == many.requests[:20]
    assert list(fewer.system.workflows.values()) == list(many.system.workflows.values())[:20]
    assert generated_requests(SYSTEM, load, 4).system != many.system


@pytest.mark.slow
def test_burstiness_is_that_of_gaps() -> None:
    for burstiness in (0.25, 1.0, 16.0):
        load = GeneratedLoad(count=20_000, rate_rps=5.0, burstiness=burstiness, shape="chain", nodes=1)
        gaps = np.diff([each.at_s or 0.0 for each in generated_requests(SYSTEM, load, 1).requests])
        assert gaps.mean() == pytest.approx(0.2, rel=0.05)
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)
