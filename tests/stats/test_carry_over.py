"""Carry-over: orders balanced for predecessors, a planted effect, and the rate of false ones."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.load.workers.segments import read_samples
from seamark.planning.identity import block_order
from seamark.stats.carry_over import predecessor_effects, williams, williams_rows

GOLDEN = Path(__file__).parents[1] / "analysis" / "golden" / "results" / "golden"
approx = pytest.approx


def study(rng, treatments, blocks, noise, carried=(), restarted=False, orders=None):
    """Return logs, blocks, treatments and predecessors of a study: effects of treatments and blocks, `noise` of a
    trial, and `carried` from each predecessor. `restarted`: nothing ran before the first of a block."""
    rows = []
    before = -1
    for block in range(blocks):
        of_block = rng.normal(0, 0.1)
        before = -1 if restarted else before
        order = (
            orders[block] if orders else block_order(map(str, range(treatments)), 7, "S", block + 1, balanced=True)
        )
        for treatment in map(int, order):
            from_before = carried[before] if carried and before >= 0 else 0
            rows.append((of_block + 0.2 * treatment + noise() + from_before, block, treatment, before))
            before = treatment
    logs, *places = map(np.array, zip(*rows, strict=True))
    return logs, *places


@given(count=st.integers(1, 40))
def test_rows_of_a_williams_design_have_each_treatment_once_and_each_ordered_pair_of_neighbours_equally_often(count):
    rows = [williams(count, row) for row in range(williams_rows(count))]
    assert all(sorted(row) == list(range(count)) for row in rows)
    pairs = Counter(pair for row in rows for pair in pairwise(row))
    assert len(pairs) == count * (count - 1)
    assert set(pairs.values()) <= {1 if count % 2 == 0 else 2}


@given(count=st.integers(2, 9), seed=st.integers(0, 99), cycles=st.integers(1, 2))
def test_blocks_of_a_cycle_are_balanced_whatever_the_seed(count, seed, cycles):
    names = [f"treatment{number}" for number in range(count)]
    blocks = range(1, cycles * williams_rows(count) + 1)
    orders = [block_order(names, seed, "S", block, balanced=True) for block in blocks]
    pairs = Counter(pair for order in orders for pair in pairwise(order))
    assert len(pairs) == count * (count - 1)
    assert len(set(pairs.values())) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_planted_carry_over_is_found_with_its_size_and_no_other(restarted):
    rng = np.random.default_rng(5)
    planted = (0.0, 0.0, 0.2, 0.0)
    found = predecessor_effects(*study(rng, 4, 12, lambda: rng.normal(0, 0.02), planted, restarted))
    assert len(found) == 6
    for pair in found:
        truth = planted[pair.new] - planted[pair.base]
        assert pair.effect.low <= truth <= pair.effect.high
        assert (pair.p_adjusted <= 0.05) == (truth != 0) == (not pair.effect.low <= 0 <= pair.effect.high)


def test_an_effect_is_not_made_smaller_by_the_effects_of_treatments_and_blocks():
    rng = np.random.default_rng(5)
    exact = predecessor_effects(*study(rng, 3, 6, lambda: 0.0, (0.1, 0.0, 0.3), restarted=True))
    assert {(pair.base, pair.new): round(pair.effect.estimate, 9) for pair in exact} == {
        (0, 1): -0.1,
        (0, 2): 0.2,
        (1, 2): 0.3,
    }


def test_predecessors_that_the_order_does_not_tell_apart_have_no_effect():
    rng = np.random.default_rng(5)
    same = [(0, 1, 2)] * 8
    assert predecessor_effects(*study(rng, 3, 8, lambda: rng.normal(0, 0.02), restarted=True, orders=same)) == []
    assert predecessor_effects(*study(rng, 2, 8, lambda: rng.normal(0, 0.02), restarted=True)) == []


def test_several_families_share_alpha():
    rng = np.random.default_rng(5)
    values = study(rng, 3, 6, lambda: rng.normal(0, 0.02), (0.0, 0.1, 0.0))
    alone, shared = (predecessor_effects(*values, families=families)[0] for families in (1, 4))
    assert shared.p == approx(alone.p, rel=0.5)
    assert shared.p_adjusted == approx(4 * 3 * shared.p)
    assert shared.effect.confidence > alone.effect.confidence


@pytest.mark.sweep
@pytest.mark.parametrize(("treatments", "blocks", "restarted"), [(3, 6, False), (4, 8, True), (6, 12, False)])
def test_studies_drawn_from_recorded_trials_without_carry_over_have_one_at_the_nominal_rate(
    treatments, blocks, restarted
):
    """A trial is the median of 20 consecutive response times of a recorded trial."""
    path = next(GOLDEN.glob("known-md1*/samples.parquet"))
    columns = [(batch["sent_ns"].to_numpy(), batch["last_ns"].to_numpy()) for batch in read_samples(path)]
    sent, last = (np.concatenate(part) for part in zip(*columns, strict=True))
    recorded = np.log(np.maximum(last - sent, 1)[last > sent])
    rng = np.random.default_rng(1)

    def noise():
        first = rng.integers(0, len(recorded) - 20)
        return float(np.median(recorded[first : first + 20]))

    found = sum(
        any(
            pair.p_adjusted <= 0.05
            for pair in predecessor_effects(*study(rng, treatments, blocks, noise, (), restarted))
        )
        for _ in range(200)
    )
    assert found <= 18, "of 200 at 5 % more than 18 have a probability of 1 %"
