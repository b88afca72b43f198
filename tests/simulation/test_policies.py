"""Every policy makes valid schedules that no bound and no optimum contradicts; published figures are met."""

import re
from pathlib import Path

import pytest
from exhaustive_schedule import shortest_makespan_s
from optimum import optimum
from random_workflows import documents, nouns

from seamark.storage.codec import encode
from seamark_simulate.simulation.bounds import lower_bounds
from seamark_simulate.simulation.checker import check_log, check_rules
from seamark_simulate.simulation.engine import simulate
from seamark_simulate.simulation.execution_log import execution_log
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule_metrics import schedule_metrics
from seamark_simulate.simulation.system import Edge, Model, Request, System, Workflow, WorkflowNode
from seamark_simulate.simulation.workload import workload_of

CASES = 500
QUICK = 40


def scheduled(work, machine, name):
    return simulate(work, machine, POLICIES[name].make, instants=POLICIES[name].instants)


def graph(times_s, edges=(), need=None):
    """Return the work of one request: nodes of one free model, with these times and edges."""
    need = need or [1] * len(times_s)
    models = {
        f"m{count}": Model(id=f"m{count}", memory_gb=0.0, gpus_required=count, load_time_s=0.0) for count in set(need)
    }
    nodes = tuple(WorkflowNode(id=f"T{i}", model=f"m{count}") for i, count in enumerate(need, 1))
    workflow = Workflow(id="w", nodes=nodes, edges=tuple(Edge(source=f"T{a}", target=f"T{b}") for a, b in edges))
    times = {f"T{i}": float(time_s) for i, time_s in enumerate(times_s, 1)}
    request = Request(id="r", workflow="w", node_execution_times_s=times)
    return workload_of(System(models=models, workflows={"w": workflow}), [request], "all-at-zero")


def separate(times_s, need=None, **settings):
    """Return the work of requests of one node each, with these times; models cost nothing to fetch."""
    need = need or [1] * len(times_s)
    models = {
        f"m{count}": Model(id=f"m{count}", memory_gb=0.0, gpus_required=count, load_time_s=0.0) for count in set(need)
    }
    workflows = {
        f"w{count}": Workflow(id=f"w{count}", nodes=(WorkflowNode(id="n", model=f"m{count}"),)) for count in set(need)
    }
    requests = [
        Request(
            id=f"r{i}",
            workflow=f"w{count}",
            node_execution_times_s={"n": time_s},
            at_s=0.0,
            **{key: values[i] for key, values in settings.items()},
        )
        for i, (time_s, count) in enumerate(zip(times_s, need, strict=True))
    ]
    return workload_of(System(models=models, workflows=workflows), requests, "timestamps")


def taken(schedule):
    """Return when each node took its GPUs, in the order of nodes."""
    return [at_s for _, at_s in sorted(zip(schedule.node.tolist(), schedule.taken_s.tolist(), strict=True))]


FREE = Machine(gpus=3, cold_load="free", switch_overhead_s=0.0)


@pytest.mark.slow
@pytest.mark.covers("C14")
@pytest.mark.parametrize("name", POLICIES)
def test_every_schedule_of_a_policy_passes_the_checker_and_no_bound_is_beaten(name):
    for seed in range(60):
        config, asked, gpus = documents(seed, most_requests=8)
        system, requests = nouns(config, asked)
        for arrivals in ("all-at-zero", "timestamps"):
            work, machine = workload_of(system, requests, arrivals), Machine(gpus=gpus)
            schedule = scheduled(work, machine, name)
            assert schedule.ran.makespan_s >= lower_bounds(work, machine).best_s - 1e-9, seed
            mode = "offline" if arrivals == "all-at-zero" else "online"
            document = encode(execution_log(schedule, schedule_metrics(schedule), mode=mode, policy=name))
            result = check_log(document)
            check_rules(result, document, system, requests)
            assert result.passed, (seed, result.problems, result.conflicts)


@pytest.mark.covers("C6", "C7")
def test_the_baseline_that_the_loop_has_written_out_is_that_of_its_policy():
    def called(view):
        dispatch = POLICIES["baseline"].make(view)
        return lambda: dispatch()

    written_out = 0
    for seed in range(QUICK):
        config, asked, gpus = documents(seed, most_requests=20, windows=False)
        system, requests = nouns(config, asked)
        work = workload_of(system, requests, "timestamps")
        one, other = (simulate(work, Machine(gpus=gpus), policy) for policy in (POLICIES["baseline"].make, called))
        for column in ("node", "gpu", "held", "step", "ready_s", "taken_s", "end_s"):
            assert getattr(one, column).tolist() == getattr(other, column).tolist(), (seed, column)
        written_out += len(one.node) > 1
    assert written_out > QUICK / 2


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_knows_requests_before_they_arrive(name):
    compared = 0
    for seed in range(60):
        config, asked, gpus = documents(seed, most_requests=8)
        system, requests = nouns(config, asked)
        times_s = sorted({request.at_s for request in requests})
        if len(times_s) < 2:
            continue
        next_s = times_s[len(times_s) // 2]
        known = [request for request in requests if request.at_s < next_s]
        before = []
        for chosen in (requests, known):
            work = workload_of(system, chosen, "timestamps")
            schedule = scheduled(work, Machine(gpus=gpus), name)
            rows = zip(schedule.node.tolist(), schedule.gpu.tolist(), schedule.taken_s.tolist(), strict=True)
            before.append([(work.name_of(node)[0].id, work.name_of(node)[1], gpu, at_s) for node, gpu, at_s in rows])
        early = [[row for row in rows if row[-1] < next_s] for rows in before]
        assert early[0] == early[1], seed
        compared += len(early[0])
    assert compared > 50


def test_the_policy_of_the_page_on_extending_works():
    page = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```python\n# policies/last_in.py\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(text, names)
    work = separate([1.0, 2, 3])
    machine = Machine(gpus=1, cold_load="free", switch_overhead_s=0.0)
    assert taken(simulate(work, machine, names["last_in"], instants=True)) == [5, 3, 0]


def tiny(seed):
    """Return the work and machine of a random case of four nodes at most, or None for a larger one."""
    config, asked, gpus = documents(seed, most_requests=3, most_nodes=3, most_gpus=3)
    system, requests = nouns(config, asked)
    work = workload_of(system, requests, "timestamps")
    return (work, Machine(gpus=gpus)) if work.nodes <= 4 else None


def compare_with_optimum(count):
    cases = (case for case in map(tiny, range(100_000)) if case is not None)
    for number, (work, machine) in zip(range(count), cases, strict=False):
        least_s = shortest_makespan_s(work, machine)
        solved = optimum(work, machine)
        assert solved.is_proven, solved.message
        assert solved.makespan_s == pytest.approx(least_s, abs=1e-5), number
        assert lower_bounds(work, machine).best_s <= least_s + 1e-9
        for name in POLICIES:
            assert scheduled(work, machine, name).ran.makespan_s >= least_s - 1e-9, (number, name)


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_the_integer_program_finds_what_exhaustive_search_finds_and_no_policy_is_better():
    compare_with_optimum(QUICK)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.covers("C14")
def test_the_integer_program_finds_what_exhaustive_search_finds_in_hundreds_of_cases():
    compare_with_optimum(CASES)


GRAHAM = (3, 2, 2, 2, 4, 4, 4, 4, 9)
GRAHAM_EDGES = ((1, 9), (4, 5), (4, 6), (4, 7), (4, 8))


@pytest.mark.parametrize(
    ("times_s", "edges", "gpus", "makespan_s"),
    [
        (GRAHAM, GRAHAM_EDGES, 3, 12),
        (GRAHAM, GRAHAM_EDGES, 4, 15),
        ([time - 1 for time in GRAHAM], GRAHAM_EDGES, 3, 13),
        (GRAHAM, [edge for edge in GRAHAM_EDGES if edge not in ((4, 5), (4, 6))], 3, 16),
    ],
    ids=["as it is", "a fourth machine", "shorter tasks", "fewer edges"],
)
def test_a_static_list_shows_the_anomalies_of_graham(times_s, edges, gpus, makespan_s):
    """Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17 (1969)."""
    machine = Machine(gpus=gpus, cold_load="free", switch_overhead_s=0.0)
    assert scheduled(graph(times_s, edges), machine, "static-list").ran.makespan_s == makespan_s


@pytest.mark.slow
def test_longest_first_takes_11_where_9_is_possible():
    work = separate([5.0, 5, 4, 4, 3, 3, 3])
    assert scheduled(work, FREE, "longest-first").ran.makespan_s == 11
    solved = optimum(work, FREE)
    assert (solved.is_proven, solved.makespan_s) == (True, pytest.approx(9))


def test_fifo_holds_back_what_backfill_starts():
    # two GPUs of three are busy until 10: the second node needs three, the third would end before 10
    work = separate([10.0, 5, 4, 20], need=[2, 3, 1, 1])
    waits = {name: taken(scheduled(work, FREE, name)) for name in ("fifo", "easy", "conservative", "baseline")}
    assert waits["fifo"] == [0, 10, 15, 15]
    assert waits["easy"] == waits["conservative"] == [0, 10, 0, 15]
    assert waits["baseline"] == [0, 24, 0, 4], "the large node starves behind the long one"


def test_conservative_backfill_protects_the_second_in_the_queue_too():
    # GPUs 0 and 1 are busy until 10, GPU 2 until 4. The third node waits for 10, the fourth could have GPUs 2 and 3
    # at 4. The fifth would end on GPU 3 before the third begins, but delays the fourth: EASY does not protect that.
    machine = Machine(gpus=4, cold_load="free", switch_overhead_s=0.0)
    work = separate([10.0, 4, 1, 6, 9], need=[2, 1, 3, 2, 1])
    assert taken(scheduled(work, machine, "easy")) == [0, 0, 10, 11, 0]
    assert taken(scheduled(work, machine, "conservative")) == [0, 0, 10, 4, 10]


def test_queues_are_ordered_by_time_priority_or_slack():
    machine = Machine(gpus=1, cold_load="free", switch_overhead_s=0.0)
    work = separate([3.0, 1, 2], priority=[0, 0, 5], deadline_s=[10.0, 30, 4])
    starts = {name: taken(scheduled(work, machine, name)) for name in POLICIES}
    assert starts["fifo"] == [0, 3, 4]
    assert starts["shortest-first"] == [3, 0, 1]
    assert starts["longest-first"] == [0, 5, 3]
    assert starts["priority"] == [2, 5, 0]
    assert starts["least-slack"] == [2, 5, 0]


def two_models(gpus, models="abababab", **settings):
    """Return the work of requests of one second to models that cost 3 s to switch, and a machine."""
    known = {name: Model(id=name, memory_gb=8.0, gpus_required=1, load_time_s=1.0) for name in "ab"}
    workflows = {name: Workflow(id=name, nodes=(WorkflowNode(id="n", model=name),)) for name in "ab"}
    requests = [
        Request(id=f"r{i}", workflow=name, node_execution_times_s={"n": 1.0}) for i, name in enumerate(models)
    ]
    system = System(models=known, workflows=workflows)
    return workload_of(system, requests, "all-at-zero"), Machine(gpus=gpus)


@pytest.mark.covers("C7", "C14")
def test_policies_that_weigh_models_switch_less_than_first_in_first_out():
    work, machine = two_models(1)
    switches = {name: int(scheduled(work, machine, name).ran.is_switch.sum()) for name in POLICIES}
    assert switches["baseline"] == switches["fifo"] == 7
    assert switches["batch-by-model"] == switches["greedy"] == 1
    work, machine = two_models(2)
    assert int(scheduled(work, machine, "static-placement").ran.is_switch.sum()) == 0


def test_plans_that_know_all_requests_keep_each_model_on_its_gpu():
    work, machine = two_models(2)
    schedule = scheduled(work, machine, "heft")
    assert int(schedule.ran.is_switch.sum()) == 0
    assert schedule.ran.makespan_s == 5.0
