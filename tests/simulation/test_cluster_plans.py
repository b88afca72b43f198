"""Plans of HEFT and CPOP on a cluster: what they keep, and how they follow what the GPUs do."""

import pytest
from small_clusters import machine, ran, times_of, work_of

from seamark_simulate.simulation.machine import Change, Machine

PLANNED = pytest.mark.parametrize("policy", ["heft", "cpop"])


def one(at_s, time_s, estimate_s=None):
    """Return a request of one node, which takes another time than estimated."""
    settings = {} if estimate_s is None else {"node_estimates_s": {"n": estimate_s}}
    return at_s, {"n": ("a", time_s)}, settings


@pytest.mark.covers("C14")
@PLANNED
@pytest.mark.parametrize("cluster", [Machine(gpus=2), machine(2, several_models=True)])
def test_a_request_goes_to_the_gpu_whose_node_ended_before_its_time(policy, cluster):
    work = work_of(one(0.0, 1, 100), one(0.0, 50), one(10.0, 10))
    assert times_of(ran(work, cluster, policy))[2] == (10, 20)


@PLANNED
def test_a_request_goes_to_the_gpu_that_is_free_where_another_node_takes_longer_than_estimated(policy):
    work = work_of(one(0.0, 100, 1), one(0.0, 7, 5), one(10.0, 10))
    assert times_of(ran(work, Machine(gpus=2), policy))[2] == (10, 20)


@PLANNED
def test_nodes_that_wait_on_a_gpu_count_with_what_runs_there(policy):
    # the second node waits behind the first, planned to end at 2 and ended at 30; the third is planned at 3
    work = work_of(one(0.0, 30, 2), one(1.0, 50, 50), one(3.0, 20, 20), one(4.0, 5, 5))
    found = times_of(ran(work, Machine(gpus=1), policy))
    assert [found[node] for node in range(4)] == [(0, 30), (30, 80), (80, 100), (100, 105)]
    # on two GPUs the fourth is planned by the first one's expected end, 2, and the second one's, 51
    found = times_of(ran(work, Machine(gpus=2), policy))
    assert found[1] == (1, 51)
    assert found[2] == (30, 50)
    assert found[3] == (50, 55)


@pytest.mark.covers("C14")
@PLANNED
@pytest.mark.parametrize("changes", [(), (Change(at_s=1.0, remove=(2,)),)])
def test_a_plan_that_is_made_anew_keeps_what_runs_before_its_nodes(policy, changes):
    chain = 0.0, {"first": ("a", 100), "then": ("a", 1)}, {}
    work = work_of(chain, one(0.0, 10), one(20.0, 10), edges=[("first", "then")])
    found = times_of(ran(work, machine(3, changes=changes, several_models=True), policy))
    assert found == {0: (0, 100), 1: (100, 101), 2: (0, 10), 3: (20, 30)}
