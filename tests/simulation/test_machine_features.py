"""Each feature of a machine file in a small case whose times follow by hand from the rules of the page."""

from dataclasses import replace

import pytest

from seamark_simulate.simulation.bounds import lower_bounds
from seamark_simulate.simulation.log_text import event_lines
from seamark_simulate.simulation.machine import Change, Failures, GpuKind, Host, Layout, Machine, gpu_changes
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule_metrics import schedule_metrics
from seamark_simulate.simulation.system import Edge, Model, Request, System, Workflow, WorkflowNode
from seamark_simulate.simulation.virtual_world import run_policy
from seamark_simulate.simulation.workload import workload_of

KIND = GpuKind(name="k", memory_gb=40.0)


def machine(*hosts, **settings):
    """Return a machine of hosts, each (kind, GPUs) or a whole Host."""
    made = tuple(
        each if isinstance(each, Host) else Host(name=f"h{i}", kind=each[0], gpus=each[1], network_gb_per_s=1.0)
        for i, each in enumerate(hosts)
    )
    layout = Layout(hosts=made, **settings)
    return Machine(gpus=layout.gpus, layout=layout)


def model(name, memory_gb=8.0, gpus=1, load_s=0.0):
    return Model(id=name, memory_gb=memory_gb, gpus_required=gpus, load_time_s=load_s)


def requests_of(*parts, models):
    """Return the work of requests of one node each: (model, time, settings of the request)."""
    workflows = {each.id: Workflow(id=each.id, nodes=(WorkflowNode(id="n", model=each.id),)) for each in models}
    requests = [
        Request(id=f"r{i}", workflow=name, node_execution_times_s={"n": time_s}, **{"at_s": 0.0, **settings})
        for i, (name, time_s, settings) in enumerate(parts)
    ]
    return workload_of(System(models={each.id: each for each in models}, workflows=workflows), requests, "timestamps")


def chain(*times_s, data_bytes=0, models=None):
    """Return the work of one request to a chain of nodes with data on its edges."""
    models = models or [model("a")] * len(times_s)
    nodes = tuple(WorkflowNode(id=f"n{i}", model=each.id) for i, each in enumerate(models))
    edges = tuple(Edge(source=f"n{i}", target=f"n{i + 1}", data_bytes=data_bytes) for i in range(len(nodes) - 1))
    request = Request(
        id="r", workflow="w", node_execution_times_s={f"n{i}": time_s for i, time_s in enumerate(times_s)}
    )
    workflows = {"w": Workflow(id="w", nodes=nodes, edges=edges)}
    return workload_of(
        System(models={each.id: each for each in models}, workflows=workflows), [request], "all-at-zero"
    )


def ran(work, machine, policy="baseline", seed=0):
    form = POLICIES[policy]
    return run_policy(work, machine, form.make, instants=form.instants, seed=seed)


def rows(schedule):
    """Return (node, GPUs, taken, end, outcome) in the order of starts."""
    count = range(len(schedule.node))
    return [
        (
            int(schedule.node[i]),
            schedule.ran.gpus_of(i),
            float(schedule.taken_s[i]),
            float(schedule.end_s[i]),
            schedule.outcome[i],
        )
        for i in count
    ]


@pytest.mark.covers("C6", "C14")
def test_nodes_take_their_time_divided_by_the_speed_of_the_gpu_or_of_their_model_on_it():
    fast = GpuKind(name="fast", speed=2.0, speeds={"b": 4.0})
    work = requests_of(("a", 8.0, {}), ("a", 8.0, {}), ("b", 8.0, {}), models=[model("a"), model("b")])
    schedule = ran(work, machine((KIND, 1), (fast, 2)))
    assert [row[3] for row in rows(schedule)] == [8.0, 4.0, 2.0]
    # the bound has the fastest GPU for each: path 4, work (4 + 4 + 2) / 3
    assert lower_bounds(work, schedule.machine).best_s == 4.0


@pytest.mark.covers("C7")
def test_switches_and_first_loads_take_the_bandwidths_of_kind_and_host():
    kind = GpuKind(name="k", pcie_gb_per_s=4.0)
    host = Host(name="h", kind=kind, gpus=1, disk_gb_per_s=2.0)
    work = requests_of(("a", 1.0, {}), ("b", 1.0, {}), models=[model("a", 8.0, load_s=30.0), model("b", 4.0)])
    schedule = ran(work, machine(host, switch_overhead_s=0.5))
    # load 8 GB / 2 GB/s; switch (8 + 4) GB / 4 GB/s + 0.5 s
    assert schedule.ran.fetch_s.tolist() == [4.0, 3.5]
    assert (schedule.ran.is_cold.tolist(), schedule.ran.is_switch.tolist()) == ([True, False], [False, True])
    slow = ran(work, machine(replace(host, disk_gb_per_s=100.0), switch_overhead_s=0.5))
    assert slow.ran.fetch_s[0] == 2.0, "a disk faster than PCIe loads at the speed of PCIe"


def test_windows_are_consecutive_or_any_and_on_one_host_or_several():
    models = [model("one"), model("three", gpus=3)]
    ones = [("one", 9.0, {}), ("one", 2.0, {}), ("one", 9.0, {}), ("one", 2.0, {})]
    work = requests_of(*ones, ("three", 1.0, {"at_s": 0.0}), models=models)
    plain, split = (KIND, 5), ((KIND, 2), (KIND, 3))

    def last(*hosts, **settings):
        return rows(ran(work, machine(*hosts, **settings)))[-1][1:3]

    # GPU 4 is free at 0, 1 and 3 at 2, 0 and 2 at 9
    assert last(plain) == ((0, 1, 2), 9.0)
    assert last(plain, windows="any") == ((1, 3, 4), 2.0)
    assert last(*split, windows="any") == ((2, 3, 4), 9.0), "on the second host"
    assert last(*split, windows="any", span_hosts=True) == ((1, 3, 4), 2.0)


def test_a_node_goes_only_where_its_model_fits():
    small = GpuKind(name="small", memory_gb=10.0)
    work = requests_of(("big", 5.0, {}), ("big", 5.0, {}), ("a", 1.0, {}), models=[model("big", 20.0), model("a")])
    for name in POLICIES:
        schedule = ran(work, machine((small, 2), (KIND, 1)), name)
        gpus = {row[0]: row[1] for row in rows(schedule)}
        assert gpus[0] == gpus[1] == (2,), name
        assert schedule.ran.not_run == 0


@pytest.mark.covers("C7")
def test_a_gpu_holds_several_models_and_the_least_recently_used_goes_first():
    models = [model("a", 16.0, load_s=1.0), model("b", 16.0, load_s=1.0), model("c", 20.0, load_s=1.0)]
    order = "abacba"
    work = requests_of(*((name, 1.0, {}) for name in order), models=models)
    schedule = ran(work, machine((KIND, 1), several_models=True))
    # loads of a and b; a is there; c (36 + ...) needs the place of b, so (16 + 20) / 16 + 2; b needs that of a, as
    # c was used later: (16 + 16) / 16 + 2; then a that of c: 16 + 16 + 20 > 40
    assert schedule.ran.fetch_s.tolist() == [1.0, 1.0, 0.0, 4.25, 4.0, 4.25]
    alone = ran(work, machine((KIND, 1)))
    assert alone.ran.fetch_s.tolist() == [1.0, 4.0, 4.0, 4.25, 4.25, 4.0]


@pytest.mark.covers("C14")
def test_the_log_of_a_switch_names_the_models_that_went():
    models = [model("a", 16.0), model("b", 16.0), model("c", 20.0), model("d", 40.0)]
    work = requests_of(*((each.id, 1.0, {}) for each in models), models=models)
    lines = list(event_lines(ran(work, machine((KIND, 1), several_models=True))))
    assert [line.partition("from ")[2].split(" (")[0] for line in lines if "switch" in line] == [
        "a to c",
        "b, c to d",
    ]
    lines = list(event_lines(ran(work, machine((KIND, 1)))))
    assert [line.partition("from ")[2].split(" (")[0] for line in lines if "switch" in line] == [
        "a to b",
        "b to c",
        "c to d",
    ]


@pytest.mark.parametrize(
    ("hosts", "transfer_s"),
    [
        ([Host(name="h", kind=GpuKind(name="k"), gpus=2, nvlink_gb_per_s=100.0)], 0.04),
        ([Host(name="h", kind=GpuKind(name="k"), gpus=2)], 0.25),
        ([(KIND, 1), (KIND, 1)], 4.0),
    ],
    ids=["NVLink", "PCIe", "network"],
)
def test_data_go_from_gpu_to_gpu_over_nvlink_pcie_or_network(hosts, transfer_s):
    # 4 GB; the second node goes to the empty GPU, since a switch costs more than a first load
    work = chain(1.0, 1.0, data_bytes=4_000_000_000, models=[model("a"), model("b")])
    schedule = ran(work, machine(*hosts))
    assert rows(schedule)[1][1] == (1,)
    assert schedule.measured.transfer_s.tolist() == [0.0, transfer_s]
    assert schedule.end_s[1] == pytest.approx(1.0 + transfer_s + 1.0)
    same = ran(chain(1.0, 1.0, data_bytes=4_000_000_000), machine(*hosts))
    assert rows(same)[1][1:4] == ((0,), 1.0, 2.0), "on one GPU data stay where they are"


def test_data_that_overlap_leave_with_the_end_of_their_source_and_occupy_no_gpu():
    # a node of 1 s ends at 1 s and sends 4 GB to the other host; its successor takes the empty GPU there at 5 s
    work = chain(1.0, 1.0, data_bytes=4_000_000_000, models=[model("a"), model("b", load_s=0.5)])
    two = ((KIND, 1), (KIND, 1))
    schedule = ran(work, machine(*two, transfers="overlap"))
    assert rows(schedule)[1] == (1, (1,), 5.0, 6.5, "completed")
    assert schedule.measured.transfer_s.tolist() == [0.0, 0.0]
    assert rows(ran(work, machine(*two)))[1] == (1, (1,), 1.0, 6.5, "completed")
    # GPU 1 leaves while the data are on their way: nothing was taken, and the other one switches in 3 s
    leaves = machine(*two, transfers="overlap", changes=(Change(at_s=3.0, remove=(1,)),))
    assert rows(ran(work, leaves))[1:] == [(1, (1,), 3.0, 3.0, "gpu_removed"), (1, (0,), 3.0, 7.0, "completed")]


def test_heft_weighs_speeds_and_data_where_the_baseline_does_not():
    fast = GpuKind(name="fast", speed=3.0)
    hosts = ((KIND, 1), (fast, 1))
    heavy = chain(3.0, 3.0, data_bytes=4_000_000_000)
    assert [row[1] for row in rows(ran(heavy, machine(*hosts), "heft"))] == [(1,), (1,)]
    assert [row[1] for row in rows(ran(heavy, machine(*hosts)))] == [(0,), (0,)]


def test_a_gpu_that_leaves_interrupts_its_node_which_runs_again_from_its_begin():
    work = requests_of(("a", 10.0, {}), ("a", 10.0, {}), models=[model("a")])
    changes = (Change(at_s=4.0, remove=(1,)), Change(at_s=30.0, add=(1,)))
    schedule = ran(work, machine((KIND, 2), changes=changes))
    assert rows(schedule) == [
        (0, (0,), 0.0, 10.0, "completed"),
        (1, (1,), 0.0, 4.0, "gpu_removed"),
        (1, (0,), 10.0, 20.0, "completed"),
    ]
    figures = schedule_metrics(schedule)
    assert (dict(figures.outcomes.executions), figures.outcomes.held_s) == ({"gpu_removed": 1}, 4.0)
    assert (figures.outcomes.not_run, figures.outcomes.incomplete_requests) == (0, 0)


@pytest.mark.parametrize("name", POLICIES)
def test_nodes_wait_for_gpus_that_come_later_and_no_longer_than_that(name):
    work = requests_of(("two", 3.0, {}), models=[model("two", gpus=2)])
    changes = (Change(at_s=0.0, remove=(1,)), Change(at_s=7.0, add=(1,)))
    assert rows(ran(work, machine((KIND, 2), changes=changes), name)) == [(0, (0, 1), 7.0, 10.0, "completed")]
    never = ran(work, machine((KIND, 2), changes=changes[:1]), name)
    assert (len(never.node), never.ran.not_run, never.ran.is_complete.tolist()) == (0, 1, [False])
    figures = schedule_metrics(never)
    assert (figures.completion, figures.outcomes.incomplete_requests) == (None, 1)


def test_an_end_at_the_time_of_a_removal_is_an_end():
    work = requests_of(("a", 4.0, {}), models=[model("a")])
    schedule = ran(work, machine((KIND, 2), changes=(Change(at_s=4.0, remove=(0,)),)))
    assert rows(schedule) == [(0, (0,), 0.0, 4.0, "completed")]


def test_a_gpu_that_comes_back_is_empty():
    work = requests_of(("a", 1.0, {}), ("a", 1.0, {"at_s": 9.0}), models=[model("a", load_s=2.0)])
    changes = (Change(at_s=5.0, remove=(0,)), Change(at_s=6.0, add=(0,)))
    assert ran(work, machine((KIND, 1), changes=changes)).ran.fetch_s.tolist() == [2.0, 2.0]
    assert ran(work, machine((KIND, 1))).ran.fetch_s.tolist() == [2.0, 0.0]


def test_a_node_that_fails_with_its_gpu_is_tried_again_up_to_its_attempts():
    failures = Failures(mtbf_s=10.0, repair_s=5.0, attempts=2)
    layout = machine((KIND, 1), failures=failures)
    first, repaired, second, *_ = [
        change.at_s for change, _ in zip(gpu_changes(layout.layout, 3), range(4), strict=False)
    ]
    work = chain(1e6, 1.0)
    schedule = ran(work, layout, seed=3)
    assert rows(schedule) == [
        (0, (0,), 0.0, first, "gpu_failed"),
        (0, (0,), repaired, second, "gpu_failed"),
    ]
    assert (schedule.ran.not_run, schedule.ran.is_complete.tolist()) == (1, [False])


def test_failures_have_the_mean_times_of_the_file_and_follow_the_seed_alone():
    layout = machine((KIND, 1), failures=Failures(mtbf_s=50.0, repair_s=5.0)).layout
    times = [change.at_s for change, _ in zip(gpu_changes(layout, 1), range(40_000), strict=False)]
    up_s = [fail - back for back, fail in zip([0.0, *times[1::2]], times[::2], strict=False)]
    down_s = [back - fail for fail, back in zip(times[::2], times[1::2], strict=True)]
    assert sum(up_s) / len(up_s) == pytest.approx(50.0, rel=0.03)
    assert sum(down_s) / len(down_s) == pytest.approx(5.0, rel=0.03)
    again = [change.at_s for change, _ in zip(gpu_changes(layout, 1), range(9), strict=False)]
    other = [change.at_s for change, _ in zip(gpu_changes(layout, 2), range(9), strict=False)]
    assert times[:9] == again != other


@pytest.mark.parametrize(
    ("preemption", "ends"),
    [
        ("never", [(0, 0.0, 10.0, "completed"), (1, 10.0, 12.0, "completed")]),
        ("lost", [(0, 0.0, 3.0, "preempted"), (1, 3.0, 5.0, "completed"), (0, 5.0, 15.0, "completed")]),
        ("resumed", [(0, 0.0, 3.0, "preempted"), (1, 3.0, 5.0, "completed"), (0, 5.0, 12.0, "completed")]),
    ],
)
def test_a_higher_priority_takes_a_gpu_and_the_work_of_the_other_is_lost_or_resumed(preemption, ends):
    work = requests_of(("a", 10.0, {}), ("a", 2.0, {"at_s": 3.0, "priority": 5}), models=[model("a")])
    schedule = ran(work, machine((KIND, 1), preemption=preemption), "priority")
    assert [(row[0], *row[2:]) for row in rows(schedule)] == [(n, t, pytest.approx(e), o) for n, t, e, o in ends]
    if preemption == "lost":
        others = ran(work, machine((KIND, 1), preemption=preemption), "fifo")
        assert set(others.outcome) == {"completed"}, "only the policy 'priority' preempts"


def test_equal_priorities_do_not_preempt_and_only_as_many_executions_end_as_are_needed():
    models = [model("a"), model("two", gpus=2)]
    low = [("a", 10.0, {"priority": each}) for each in (2, 0, 1, 0)]
    work = requests_of(*low, ("two", 1.0, {"at_s": 3.0, "priority": 2}), models=models)
    schedule = ran(work, machine((KIND, 4), preemption="lost"), "priority")
    # by priority the nodes 0, 2, 1 and 3 have the GPUs 0 to 3: the two of priority 0 go, that of 1 stays
    outcomes = {row[0]: (row[1], row[4]) for row in rows(schedule)[:4]}
    ended = {(2,): "preempted", (3,): "preempted"}
    assert outcomes == {n: ((g,), ended.get((g,), "completed")) for n, g in ((0, 0), (2, 1), (1, 2), (3, 3))}


def test_a_model_on_its_way_is_not_there_after_an_interruption():
    parts = (("a", 1.0, {}), ("b", 1.0, {"at_s": 2.0, "priority": 5}), ("a", 1.0, {"at_s": 50.0}))
    work = requests_of(*parts, models=[model("a", load_s=10.0), model("b", load_s=4.0)])
    schedule = ran(work, machine((KIND, 1), preemption="resumed"), "priority")
    # the load of a ends at 2 s of 10; b finds an empty GPU; then a needs a switch, and the last one finds a
    assert schedule.ran.fetch_s.tolist() == [2.0, 4.0, 3.0, 0.0]
    assert schedule.ran.is_cold.tolist() == [True, True, False, False]
    assert rows(schedule)[2][2:4] == (7.0, 11.0), "nothing of its work was done before"
