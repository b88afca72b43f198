"""The general event loop: the fast loop's schedules in a virtual world, and failures that a world reports."""

from operator import attrgetter

import pytest
from random_workflows import documents, nouns

from seamark_simulate.simulation.engine import simulate
from seamark_simulate.simulation.general_loop import run_in
from seamark_simulate.simulation.log_text import event_lines
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.system import Edge, Model, Request, System, Workflow, WorkflowNode
from seamark_simulate.simulation.virtual_world import VirtualWorld
from seamark_simulate.simulation.workload import workload_of
from seamark_simulate.simulation.world import End

COLUMNS = ("node", "gpu", "held", "step", "ready_s", "taken_s", "ran.start_s", "end_s", "ran.fetch_s", "duration_s")


@pytest.mark.slow
@pytest.mark.covers("C5", "C14")
@pytest.mark.parametrize("name", POLICIES)
def test_in_a_virtual_world_the_schedule_is_that_of_the_fast_loop_to_the_last_digit(name):
    form = POLICIES[name]
    for seed in range(60):
        config, asked, gpus = documents(seed, most_requests=8)
        system, requests = nouns(config, asked)
        for arrivals in ("all-at-zero", "timestamps"):
            work, machine = workload_of(system, requests, arrivals), Machine(gpus=gpus)
            fast = simulate(work, machine, form.make, instants=form.instants)
            world = VirtualWorld(work)
            general = run_in(world, work, machine, form.make, instants=form.instants)
            for column in COLUMNS:
                assert attrgetter(column)(fast).tolist() == attrgetter(column)(general).tolist(), (seed, column)
            assert general.ran.is_completed.all()
            assert list(event_lines(general)) == list(event_lines(fast)), seed


class Failing:
    """A virtual world in which the executions of some nodes fail at their end."""

    def __init__(self, work, failing, gpus="kept"):
        self._world, self._failing, self._gpus = VirtualWorld(work), failing, gpus
        self._node = {}

    def start(self, start):
        self._node[start.execution] = start.node
        return self._world.start(start)

    def next_end(self, until_s):
        end = self._world.next_end(until_s)
        if end is None or self._node[end.execution] not in self._failing:
            return end
        return End(
            execution=end.execution,
            at_s=end.at_s,
            fetch_s=end.fetch_s,
            duration_s=end.duration_s,
            failure="server_died",
            gpus=self._gpus,
        )


def diamonds(count):
    """Return the work of requests to a -> b, a -> c, b and c -> d; each node takes 1 s, models cost nothing."""
    nodes = tuple(WorkflowNode(id=name, model="m") for name in "abcd")
    edges = tuple(Edge(source=a, target=b) for a, b in ("ab", "ac", "bd", "cd"))
    system = System(
        models={"m": Model(id="m", memory_gb=1.0, gpus_required=1, load_time_s=0.0, inference_time_mean_s=1.0)},
        workflows={"w": Workflow(id="w", nodes=nodes, edges=edges)},
    )
    return workload_of(system, [Request(id=f"r{i}", workflow="w") for i in range(count)], "all-at-zero")


@pytest.mark.parametrize("name", POLICIES)
def test_successors_of_a_failed_execution_are_counted_and_not_run_and_all_else_is_done(name):
    work, machine, form = diamonds(3), Machine(gpus=2), POLICIES[name]
    schedule = run_in(Failing(work, {5}), work, machine, form.make, instants=form.instants)
    ran = sorted(schedule.node.tolist())
    assert ran == [node for node in range(12) if node != 7], "b of r1 failed: c is done, d never runs"
    assert schedule.ran.not_run == 1
    outcome = dict(zip(schedule.node.tolist(), schedule.outcome, strict=True))
    assert [node for node, each in outcome.items() if each != "completed"] == [5]
    assert outcome[5] == "server_died"
    assert schedule.ran.is_complete.tolist() == [True, False, True]


def test_gpus_that_are_emptied_load_anew_and_those_that_are_lost_are_used_no_more():
    work, machine, form = diamonds(2), Machine(gpus=1), POLICIES["baseline"]
    emptied = run_in(Failing(work, {0}, "emptied"), work, machine, form.make)
    assert emptied.ran.is_cold.tolist() == [True, True, False, False, False]
    assert emptied.ran.not_run == 3
    lost = run_in(Failing(work, {0}, "lost"), work, machine, form.make)
    assert (lost.node.tolist(), lost.ran.not_run) == ([0], 7)


def test_a_policy_that_leaves_a_node_is_an_error():
    work = diamonds(1)
    machine = Machine(gpus=1)
    with pytest.raises(RuntimeError, match="left 4 of 4 nodes"):
        run_in(VirtualWorld(work), work, machine, lambda view: lambda: None)
