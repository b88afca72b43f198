"""Waits by cause on machine files: GPUs that are gone, hosts that windows lie on, interrupted executions."""

import json

import pytest
from small_clusters import machine, model, ran, work_of

from seamark.analysis.schedule.execution_rows import gone_of, rows_of
from seamark.analysis.schedule.waiting import waiting_causes
from seamark_simulate.simulation.execution_log import facts_of
from seamark_simulate.simulation.machine import Change
from seamark_simulate.trials.execution_file import execution_table

MODELS = [model("a"), model("two", gpus=2)]


def table_of(work, cluster):
    schedule = ran(work, cluster)
    return execution_table(schedule, facts_of(schedule, policy="baseline", mode="online"))


def causes_of(work, cluster):
    """Return (predecessors, too few free, not neighbours, held back) of each execution, in s."""
    found = waiting_causes(rows_of(table_of(work, cluster)))
    columns = (found.predecessors_s, found.lacking_s, found.apart_s, found.held_back_s)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def one(name, at_s, time_s):
    return at_s, {"n": (name, time_s)}, {}


@pytest.mark.covers("C11")
def test_gpus_that_are_gone_are_not_free():
    changes = Change(at_s=0.0, remove=(0, 1)), Change(at_s=100.0, add=(0,))
    work = work_of(one("a", 0.0, 10), one("a", 0.0, 10), models=MODELS)
    assert causes_of(work, machine(2, changes=changes)) == [(0, 100, 0, 0), (0, 110, 0, 0)]


@pytest.mark.covers("C11")
@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        ({}, (0, 0.5, 9.0, 0)),
        ({"windows": "any"}, (0, 0.5, 9.0, 0)),
        ({"span_hosts": True}, (0, 0.5, 0, 0)),
        ({"windows": "any", "span_hosts": True}, (0, 0.5, 0, 0)),
    ],
)
def test_windows_lie_on_one_host_unless_they_may_span_several(settings, waits):
    # two hosts of two GPUs: GPUs 1 and 2 are free from 1 on, 0 and 3 from 10 on
    held = [one("a", 0.0, 10), one("a", 0.0, 1), one("a", 0.0, 1), one("a", 0.0, 10)]
    work = work_of(*held, one("two", 0.5, 1), models=MODELS)
    assert causes_of(work, machine(2, 2, several_models=True, **settings))[4] == waits


@pytest.mark.covers("C11")
def test_a_failed_attempt_is_no_wait_for_predecessors():
    chain = 0.0, {"first": ("a", 5), "then": ("a", 60)}, {}
    work = work_of(chain, models=MODELS, edges=[("first", "then")])
    cluster = machine(2, changes=(Change(at_s=50.0, remove=(0,)),))
    assert causes_of(work, cluster) == [(0, 0, 0, 0), (5, 0, 0, 0), (0, 0, 0, 0)]


def test_a_gpu_is_gone_until_it_is_back_from_its_failure_and_from_its_removal():
    whats = [("failed", 1), ("removed", 2), ("repaired", 3), ("added", 5), ("failed", 7)]
    gone = gone_of({"gpu_changes": [{"at_s": at_s, "what": what, "gpus": [1]} for what, at_s in whats]}, 2)
    assert list(zip(gone.gpu, gone.begin_s, gone.end_s, strict=True)) == [(1, 1, 5), (1, 7, float("inf"))]


@pytest.mark.parametrize(
    "wrong", [{"machine": {"hosts": [{"gpus": 3}]}}, {"gpu_changes": [{"at_s": 1, "what": "failed", "gpus": [2]}]}]
)
def test_a_machine_with_other_gpus_than_its_file_is_damage(wrong):
    own = table_of(work_of(one("a", 0.0, 10), models=MODELS), machine(2, several_models=True))
    own = own.replace_schema_metadata({b"seamark": json.dumps({"gpus": 2} | wrong).encode()})
    with pytest.raises(ValueError, match="GPU"):
        rows_of(own)
