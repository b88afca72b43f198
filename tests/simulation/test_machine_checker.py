"""The checker of logs of machine files finds each kind of mistake, and nothing in a clean log."""

import copy

import pytest

from seamark.storage.codec import encode
from seamark_simulate.simulation.checker import check_log, check_rules
from seamark_simulate.simulation.execution_log import execution_log
from seamark_simulate.simulation.machine import Change, GpuKind, Host, Layout, Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule_metrics import schedule_metrics
from seamark_simulate.simulation.system import Edge, Model, Request, System, Workflow, WorkflowNode
from seamark_simulate.simulation.virtual_world import run_policy
from seamark_simulate.simulation.workload import workload_of

SYSTEM = System(
    models={
        name: Model(id=name, memory_gb=memory_gb, gpus_required=gpus, load_time_s=1.0)
        for name, memory_gb, gpus in (("a", 16.0, 1), ("b", 16.0, 1), ("c", 10.0, 2))
    },
    workflows={
        "w": Workflow(
            id="w",
            nodes=(WorkflowNode(id="x", model="a"), WorkflowNode(id="y", model="b"), WorkflowNode(id="z", model="c")),
            edges=(Edge(source="x", target="z", data_bytes=4_000_000_000), Edge(source="y", target="z")),
        )
    },
)
REQUESTS = tuple(
    Request(id=f"r{i}", workflow="w", at_s=at_s, priority=i, node_execution_times_s={"x": 8.0, "y": 4.0, "z": 2.0})
    for i, at_s in enumerate((0.0, 2.0))
)
LAYOUT = Layout(
    hosts=(
        Host(name="h", kind=GpuKind(name="old", memory_gb=40.0), gpus=2, network_gb_per_s=1.0),
        Host(name="g", kind=GpuKind(name="small", memory_gb=12.0, speed=2.0), gpus=1, network_gb_per_s=1.0),
    ),
    several_models=True,
    preemption="resumed",
    changes=(Change(at_s=30.0, remove=(1,)), Change(at_s=40.0, add=(1,))),
)


def made():
    work = workload_of(SYSTEM, REQUESTS, "timestamps")
    schedule = run_policy(work, Machine(gpus=3, layout=LAYOUT), POLICIES["priority"].make, instants=True)
    return encode(execution_log(schedule, schedule_metrics(schedule), mode="online", policy="priority"))


CLEAN = made()


def problems(document):
    result = check_log(document)
    check_rules(result, document, SYSTEM, REQUESTS)
    return [*(conflict.text for conflict in result.conflicts), *result.problems]


def row(executions, request, node, outcome="completed"):
    """Return one execution of a log."""
    wanted = (request, node, outcome)
    return next(e for e in executions if (e["request_id"], e["node_id"], e.get("outcome", "completed")) == wanted)


def shift(execution, by_s):
    execution["start_time"] += by_s
    execution["end_time"] += by_s


def on_other_hosts(e, s):
    row(e, "r0", "z").update(gpu_ids=[1, 2], gpu_id=1)


def too_small(e, s):
    row(e, "r1", "x").update(gpu_ids=[2], gpu_id=2)


def longer(key):
    def change(e, s):
        execution = row(e, "r0", "z")
        execution[key] = 1.0
        shift(execution, 1.0)
        s["makespan"] += 1.0

    return change


def too_short(e, s):
    execution = row(e, "r1", "y")
    execution["execution_time"] -= 1.0
    execution["end_time"] -= 1.0


def gone(e, s):
    s["gpu_changes"] = [{"at_s": 8.0, "what": "removed", "gpus": [1]}]


def test_a_clean_log_of_a_machine_has_no_mistake_and_every_feature():
    assert problems(CLEAN) == []
    assert {e.get("outcome", "completed") for e in CLEAN["executions"]} == {"completed", "preempted"}
    assert CLEAN["summary"]["machine"]["several_models"]
    assert any("transfer_time" in e for e in CLEAN["executions"])


@pytest.mark.covers("C13", "C7")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (on_other_hosts, "its GPUs [1, 2] are on several hosts"),
        (too_small, "a needs 16 GB, and GPU 2 has 12 GB"),
        (longer("load_time"), "c, which GPU 0 holds, takes 0 s, not 1 s"),
        (longer("transfer_time"), "its data take 0 s to GPU 0, not 1 s"),
        (too_short, "its work takes 4 s on a GPU of speed 1, but 3 s were done"),
        (gone, "GPU 1 is not there from 8 s on"),
        (lambda e, s: s["machine"].update(preemption="never"), "it was preempted, which the machine does not allow"),
        (lambda e, s: row(e, "r0", "x", "preempted").pop("outcome"), "the node was executed before"),
        (lambda e, s: row(e, "r0", "x", "preempted").update(outcome="gpu_failed"), "none of its GPUs failed then"),
        (lambda e, s: row(e, "r0", "x", "preempted").update(outcome=3), "outcome is not text"),
        (lambda e, s: row(e, "r0", "x").update(outcome="lost"), "it ran, but x before it did not complete"),
        (lambda e, s: s.pop("outcomes"), "outcomes are None, but the executions have {'preempted': 3}"),
        (lambda e, s: s.update(not_run=1), "not_run is 1, but 0 nodes have no execution"),
        (lambda e, s: s["machine"]["hosts"].pop(), "gpus is 3, but the machine has 2"),
        (lambda e, s: s.update(machine=[]), "machine or gpu_changes"),
        (lambda e, s: s.update(machine={"hosts": []}), "gpus is 3, but the machine has 0"),
        (lambda e, s: s.update(gpu_changes=[{"at_s": "x"}]), "machine or gpu_changes"),
        (lambda e, s: s.update(gpu_changes=[{"at_s": 1, "what": "failed", "gpus": [9]}]), "no GPU 9"),
    ],
)
def test_a_mistake_in_a_log_of_a_machine_is_named(change, says):
    document = copy.deepcopy(CLEAN)
    change(document["executions"], document["summary"])
    found = problems(document)
    assert any(says in line for line in found), found


ODD = (None, True, -1, 0, 1e300, 10**18, "", "x", [], [0, 0], ["0"], {}, [[]])


def places(part, way=()):
    """Yield the way to each value inside a document."""
    inside = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, each in inside:
        yield (*way, key)
        yield from places(each, (*way, key))


@pytest.mark.slow
def test_gpus_that_are_taken_before_data_are_there_are_named_where_transfers_overlap():
    log = copy.deepcopy(CLEAN)
    log["summary"]["machine"]["transfers"] = "overlap"
    assert any("before its data are there at" in line for line in problems(log))


@pytest.mark.slow
def test_whatever_stands_in_a_log_of_a_machine_is_a_line_and_no_exception():
    document = copy.deepcopy(CLEAN)
    document["summary"]["gpu_changes"] = [{"at_s": 8.0, "what": "removed", "gpus": [1]}]
    for way in places(document):
        for odd in ODD:
            changed = copy.deepcopy(document)
            part = changed
            for key in way[:-1]:
                part = part[key]
            part[way[-1]] = odd
            problems(changed)
