"""HEFT and CPOP on the published example, and what every plan has to keep."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
from in_process import run, said_by
from list_planning import TaskGraph, cpop, downward_ranks, heft, upward_ranks

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


@pytest.mark.covers("C6")
@pytest.mark.parametrize(("policy", "occupied", "published"), [("heft", 136, 80), ("cpop", 142, 86)])
def test_the_published_example_as_files_takes_as_long_as_published_where_transfers_overlap(
    tmp_path, monkeypatch, policy, occupied, published
):
    monkeypatch.chdir(tmp_path)
    tasks = range(len(TOPCUOGLU.cost_s))
    models = {f"m{task}": {"memory_gb": 0, "gpus_required": 1, "load_time_seconds": 0} for task in tasks}
    nodes = [{"id": f"n{task}", "model": f"m{task}"} for task in tasks]
    edges = [
        {"from": f"n{source}", "to": f"n{target}", "bytes": length_s * 10**9}
        for (source, target), length_s in TOPCUOGLU.transfer_s.items()
    ]
    machine = {
        "gpu_kinds": {
            f"p{processor}": {"speeds": {f"m{task}": 1 / TOPCUOGLU.cost_s[task][processor] for task in tasks}}
            for processor in range(3)
        },
        "hosts": [{"name": f"h{p}", "kind": f"p{p}", "gpus": 1, "network_gb_per_s": 1} for p in range(3)],
        "switch_overhead_s": 0,
    }
    times_s = {f"n{task}": 1.0 for task in tasks}
    for name, document in {
        "system.json": {"models": models, "workflows": {"w": {"nodes": nodes, "edges": edges}}},
        "requests.json": {"requests": [{"request_id": "r", "workflow_id": "w", "node_execution_times": times_s}]},
        "occupy.json": machine,
        "overlap.json": machine | {"transfers": "overlap"},
    }.items():
        Path(name).write_text(json.dumps(document))
    files = ["--config", "system.json", "--requests", "requests.json"]
    for name, makespan_s in (("occupy", occupied), ("overlap", published)):
        said_by(["simulate", "--machine", f"{name}.json", "--policy", policy, *files])
        log = json.loads(Path("execution_log.json").read_text())
        assert log["summary"]["makespan"] == pytest.approx(makespan_s)
        assert run(["check", "execution_log.json", *files])[0] == 0


def random_graph(seed):
    """Return speeds of processors, sizes of tasks, and data on edges, as for the recorded makespans."""
    rng = random.Random(seed)
    tasks, processors = rng.randint(2, 25), rng.randint(2, 5)
    speeds = [rng.uniform(0.5, 2) for _ in range(processors)]
    sizes = [rng.uniform(1, 10) for _ in range(tasks)]
    data = [(i, j, rng.uniform(0.5, 10)) for i in range(tasks) for j in range(i + 1, tasks) if rng.random() < 0.25]
    return speeds, sizes, data


def test_heft_has_the_makespans_of_saga_on_200_graphs():
    """heft_of_saga.json has those of HeftScheduler of anrg-saga 2.0.2 on links of bandwidth 1 between all processors.
    Its mean transfer counts the links of each of P processors to itself, so it is (P - 1) / (P + 1) of the
    paper's."""
    recorded = json.loads((Path(__file__).parent / "heft_of_saga.json").read_text(encoding="utf-8"))
    assert len(recorded) == 200
    for seed, makespan_s in enumerate(recorded):
        speeds, sizes, data = random_graph(seed)
        graph = TaskGraph(
            cost_s=[[size / speed for speed in speeds] for size in sizes],
            transfer_s={(source, target): length for source, target, length in data},
        )
        plan = heft(graph, transfers=(len(speeds) - 1) / (len(speeds) + 1))
        assert max(slot.end_s for slot in plan) == pytest.approx(makespan_s, abs=1e-9), seed


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
