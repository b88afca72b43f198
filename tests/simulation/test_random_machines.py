"""Random machines with every feature: schedules of all policies pass the checker, and no bound is beaten."""

import random
from dataclasses import replace
from operator import attrgetter

import pytest
from random_machines import machine
from random_workflows import documents, nouns

from seamark.storage.codec import encode
from seamark_simulate.simulation.bounds import lower_bounds
from seamark_simulate.simulation.checker import check_log, check_rules
from seamark_simulate.simulation.engine import simulate
from seamark_simulate.simulation.execution_log import execution_log, facts_of
from seamark_simulate.simulation.general_loop import run_in
from seamark_simulate.simulation.log_text import event_lines
from seamark_simulate.simulation.machine import GpuKind, Host, Layout, Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule_metrics import schedule_metrics
from seamark_simulate.simulation.virtual_world import VirtualWorld, run_policy
from seamark_simulate.simulation.workload import workload_of
from seamark_simulate.trials.execution_file import log_of_file, write_executions

CASES = 40
MORE = 1_000


def with_data_and_priorities(seed):
    """Return a random system with data on some edges, requests with priorities, and a number of GPUs."""
    config, asked, gpus = documents(seed, most_requests=8)
    system, requests = nouns(config, asked)
    rng = random.Random(seed)
    workflows = {
        name: replace(
            each, edges=tuple(replace(edge, data_bytes=rng.choice((0, 0, 4_000_000_000))) for edge in each.edges)
        )
        for name, each in system.workflows.items()
    }
    asked = tuple(replace(request, priority=rng.choice((0, 0, 1, 5))) for request in requests)
    return replace(system, workflows=workflows), asked, gpus


def may_lose_nodes(layout):
    """Return whether nodes may never run: attempts may run out, or GPUs leave for good."""
    left = sum(len(change.remove) - len(change.add) for change in layout.changes)
    return layout.failures is not None or left > 0


def check_cases(name, seeds):
    form, outcomes = POLICIES[name], set()
    for seed in seeds:
        system, requests, gpus = with_data_and_priorities(seed)
        there = machine(seed, system, gpus)
        there = replace(there, layout=replace(there.layout, transfers="overlap" if seed % 4 == 0 else "occupy"))
        for arrivals, mode in (("all-at-zero", "offline"), ("timestamps", "online")):
            work = workload_of(system, requests, arrivals)
            schedule = run_policy(work, there, form.make, instants=form.instants, seed=seed)
            figures = schedule_metrics(schedule)
            document = encode(execution_log(schedule, figures, mode=mode, policy=name))
            result = check_log(document)
            check_rules(result, document, system, requests)
            assert result.passed, (seed, arrivals, result.problems, result.conflicts)
            assert sum("Scheduled node" in line for line in event_lines(schedule)) == len(schedule.node)
            if schedule.ran.is_complete.all():
                assert schedule.ran.makespan_s >= lower_bounds(work, there).best_s - 1e-9, seed
            assert schedule.ran.not_run == 0 or may_lose_nodes(there.layout), seed
            outcomes |= set(schedule.outcome)
    return outcomes


@pytest.mark.slow
@pytest.mark.covers("C13", "C14")
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_makes_valid_schedules_on_machines_with_every_feature(name):
    # in 409 a sum of times is rounded to after an end; in 553 a GPU is taken between two changes of one instant
    outcomes = check_cases(name, [*range(CASES), 409, 537, 553])
    assert {"completed", "gpu_failed", "gpu_removed"} <= outcomes
    assert ("preempted" in outcomes) == (name == "priority")


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.covers("C13", "C14")
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_makes_valid_schedules_on_a_thousand_machines(name):
    check_cases(name, range(CASES, MORE))


def one_host(gpus):
    return Layout(hosts=(Host(name="h", kind=GpuKind(name="k", memory_gb=100.0), gpus=gpus),))


@pytest.mark.covers("C5", "C14")
@pytest.mark.parametrize("name", POLICIES)
def test_a_machine_file_of_equal_gpus_gives_the_schedule_of_that_many_gpus_in_either_loop(name):
    form, columns = POLICIES[name], ("node", "gpu", "held", "step", "ready_s", "taken_s", "ran.start_s", "end_s")
    for seed in range(30):
        config, asked, gpus = documents(seed, most_requests=8)
        system, requests = nouns(config, asked)
        work = workload_of(system, requests, "timestamps")
        plain = simulate(work, Machine(gpus=gpus), form.make, instants=form.instants)
        there = Machine(gpus=gpus, layout=one_host(gpus))
        fast = run_policy(work, there, form.make, instants=form.instants)
        general = run_in(VirtualWorld(work), work, there, form.make, instants=form.instants)
        for column in columns:
            values = [attrgetter(column)(each).tolist() for each in (plain, fast, general)]
            assert values[0] == values[1] == values[2], (seed, column)
        assert fast.measured is None


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_knows_when_gpus_will_leave_or_fail(name):
    form, compared = POLICIES[name], 0
    for seed in range(60):
        system, requests, gpus = with_data_and_priorities(seed)
        there = machine(seed, system, gpus)
        work = workload_of(system, requests, "timestamps")
        first = run_policy(work, there, form.make, instants=form.instants, seed=seed)
        if first.measured is None or not first.measured.changes:
            continue
        until_s = first.measured.changes[0][1].at_s
        quiet = replace(there, layout=replace(there.layout, failures=None, changes=()))
        other = run_policy(work, quiet, form.make, instants=form.instants)
        early = [
            [
                (int(node), schedule.ran.gpus_of(i), float(at_s))
                for i, (node, at_s) in enumerate(zip(schedule.node, schedule.taken_s, strict=True))
                if at_s < until_s
            ]
            for schedule in (first, other)
        ]
        assert early[0] == early[1], seed
        compared += len(early[0])
    assert compared > 50


@pytest.mark.covers("C12")
def test_executions_parquet_keeps_outcomes_data_and_gpus_that_are_not_consecutive(tmp_path):
    seen = set()
    for seed in range(25):
        system, requests, gpus = with_data_and_priorities(seed)
        there = machine(seed, system, gpus)
        work = workload_of(system, requests, "timestamps")
        schedule = run_policy(work, there, POLICIES["priority"].make, instants=True, seed=seed)
        facts = facts_of(schedule, policy="priority", mode="online")
        write_executions(tmp_path / "executions.parquet", schedule, facts)
        log = log_of_file(tmp_path / "executions.parquet")
        right = execution_log(schedule, schedule_metrics(schedule), mode="online", policy="priority")
        assert (log.summary, [*log.executions]) == (right.summary, [*right.executions]), seed
        seen |= {*schedule.outcome, there.layout.windows, schedule.ran.not_run > 0}
    assert seen >= {"completed", "preempted", "gpu_failed", "gpu_removed", "any", True}
