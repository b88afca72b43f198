"""Every node of an allocation describes itself, by a step of a real Slurm of two nodes; what stands in the way."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from slurm import allocation, slurm, why_no_slurm

from seamark.model.results.trial_meta import Machine, NodeRecord, NodeReport, NodeState
from seamark.telemetry.provenance import after, survey
from seamark.telemetry.provenance.nodes import Nodes


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a job script of an allocation of two nodes has in its environment, on the first of them."""
    if reason := why_no_slurm():
        pytest.skip(reason)
    with (
        slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=2) as told,
        allocation(told, nodes=2, tasks=2) as number,
    ):
        yield {**told, "SLURM_JOB_ID": number, "SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": "n1"}


@pytest.mark.cluster
@pytest.mark.covers("E-FR08", "E-MR08", "E-FR04")
def test_every_node_of_an_allocation_describes_itself(job, monkeypatch, tmp_path):
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    before, then = survey(), survey({"results": tmp_path}, whole=True)
    assert sorted(then.seen) == ["n1", "n2"], then.reason
    assert (before.reason, then.reason) == (None, None)
    nodes = after(before, then)
    for name, node in nodes.items():
        assert node.machine.hostname == name
        assert node.machine.mounts["results"].type
        assert node.before.monotonic_ns < node.after.monotonic_ns
    assert then.here.node == "n1"


@pytest.mark.cluster
@pytest.mark.covers("E-NFR04")
def test_nodes_that_cannot_be_asked_are_told_with_slurms_words_and_this_one_is_there(job, monkeypatch):
    for name, value in {**job, "SLURM_JOB_ID": "999"}.items():
        monkeypatch.setenv(name, value)
    seen = survey(whole=True)
    assert list(seen.seen) == ["n1"]
    assert seen.reason is not None
    assert seen.reason.startswith("srun: ")


def test_outside_of_an_allocation_there_is_one_node_and_nobody_is_asked(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = survey(whole=True)
    assert len(seen.seen) == 1
    assert seen.reason is None
    assert seen.here.machine.cpu_model


@pytest.mark.covers("E-NFR04")
def test_a_node_that_was_lost_in_mid_trial_keeps_what_it_said_before():
    state, machine = NodeState(monotonic_ns=1), Machine(cpu_model="x")
    there = NodeReport(node="n1", moment=state, machine=machine)
    lost = NodeReport(node="n2", moment=state)
    nodes = after(Nodes(seen={"n1": there, "n2": lost}), Nodes(seen={"n1": there}))
    assert nodes["n2"] == NodeRecord(before=state)
    assert nodes["n1"] == NodeRecord(machine=machine, before=state, after=state)


@pytest.mark.slow
def test_a_node_prints_itself_as_one_line_of_json_and_nothing_else(tmp_path):
    command = [sys.executable, "-W", "error", "-m", "seamark.telemetry.provenance.node", f"data={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["schema_version"] == 1
    assert said["machine"]["mounts"]["data"]["path"] == str(tmp_path)
    assert done.stderr == ""
    short = subprocess.run([*command[:-1], "--moment"], capture_output=True, text=True, check=True)
    assert sorted(json.loads(short.stdout)) == ["moment", "node", "schema_version"]
