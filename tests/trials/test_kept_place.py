"""Whether processes keep to the place of their party: real processes, moved and slowed from outside."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from seamark.dispatch.identity import node
from seamark.dispatch.placement import Place
from seamark.model.results.deployment_record import Endpoint, PartRecord
from seamark.platform.pinning import shown_cores
from seamark.trials.kept_place import KeptPlace

CORES = tuple(sorted(os.sched_getaffinity(0)))
NICENESS = os.getpriority(os.PRIO_PROCESS, 0)
pytestmark = [
    pytest.mark.covers("A1"),
    pytest.mark.skipif(len(CORES) < 2, reason="a process cannot be moved on one core"),
]


@pytest.fixture
def start() -> Iterator:
    """Start a process that sleeps, with a child, on the first core; return its id."""
    with ExitStack() as held:

        def sleeping(**variables: str) -> int:
            command = ["sh", "-c", "sleep 60 & echo; wait"]
            process = held.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | variables, start_new_session=True)
            )
            held.callback(os.killpg, process.pid, 9)
            process.stdout.readline()
            for pid in (process.pid, *child_of(process.pid)):
                os.sched_setaffinity(pid, CORES[:1])
            return process.pid

        yield sleeping


def child_of(pid: int) -> list[int]:
    return [int(name) for name in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def seen(place: KeptPlace) -> list[tuple[str, str, int, str, str]]:
    return [(one.role, one.what, one.pid, one.asked, one.seen) for one in place.record().departures]


def test_processes_that_keep_to_their_place_or_to_less_of_it_depart_from_nothing(start) -> None:
    place = Place(server_cores=CORES, load_cores=CORES[:1], threads=2, gpus=(1, 2))
    server = start(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="1,2")
    kept = KeptPlace(place, Endpoint(server_pid=server), (4, 2), 0)
    worker = start()
    os.setpriority(os.PRIO_PROCESS, child_of(worker)[0], NICENESS + 3)
    kept.look((worker,))
    kept.look((worker,))
    record = kept.record()
    assert (record.looks, record.departures, record.server_cores, record.threads) == (2, (), CORES, 2)
    assert (record.all_threads, record.all_cores) == (4, 2)


def test_the_first_process_that_departs_in_each_way_is_recorded(start) -> None:
    server, part, worker = start(OMP_NUM_THREADS="8", CUDA_VISIBLE_DEVICES="0"), start(), start()
    endpoint = Endpoint(server_pid=server, parts=(PartRecord(name="part", node=node(), pid=part),))
    kept = KeptPlace(Place(server_cores=CORES[:1], load_cores=CORES[:1], threads=2, gpus=(1, 2)), endpoint, every_s=0)
    moved = child_of(part)[0]
    os.sched_setaffinity(moved, CORES)
    os.setpriority(os.PRIO_PROCESS, worker, NICENESS + 5)
    kept.look((worker,))
    os.sched_setaffinity(moved, CORES[:1])
    os.sched_setaffinity(server, CORES)
    kept.look((worker,))
    assert seen(kept) == [
        ("server", "threads", server, "2", "8"),
        ("server", "gpus", server, "1,2", "0"),
        ("server", "cores", moved, shown_cores(CORES[:1]), shown_cores(CORES)),
        ("load", "niceness", worker, str(NICENESS), str(NICENESS + 5)),
    ]


def test_a_process_with_more_priority_than_its_place_gives_is_a_departure(start) -> None:
    worker = start()
    kept = KeptPlace(Place(niceness=NICENESS + 5), Endpoint())
    kept.look((worker,))
    assert seen(kept) == [("load", "niceness", worker, str(NICENESS + 5), str(NICENESS))]


def test_processes_of_other_nodes_and_those_that_have_ended_are_not_compared(start) -> None:
    moved = start()
    os.sched_setaffinity(moved, CORES)
    parts = (PartRecord(name="part", node="n2", pid=moved),)
    kept = KeptPlace(
        Place(server_cores=CORES[:1]), Endpoint(server_pid=moved, server_nodes=("n2", node()), parts=parts)
    )
    ended = subprocess.Popen(["true"])
    ended.wait()
    kept.look((ended.pid,))
    assert seen(kept) == []
