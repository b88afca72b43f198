"""The seam to batch systems: every dispatcher fits it, a site has one, and an allocation has its own."""

import inspect
import os
from pathlib import Path

import pytest

from seamark.dispatch.dispatcher import (
    DISPATCHERS,
    Dispatcher,
    dispatcher_here,
    dispatcher_of,
    end_jobs,
    is_batch,
    leaves_this_machine,
)
from seamark.dispatch.identity import allocated_nodes, allocation, cluster, job_step, node
from seamark.dispatch.job import JobResources, JobSpec
from seamark.errors import SiteError
from seamark.model.site import Partition, Site

LAPTOP = Site(name="laptop", summary="s")
CLUSTER = Site(name="cluster", summary="s", profile="slurm", partitions={"p": Partition(nodes=2, cpus=8, mem_gb=8)})
JOB = {"SLURM_JOB_ID": "71", "SLURMD_NODENAME": "n2", "SLURM_CLUSTER_NAME": "far", "SLURM_JOB_NUM_NODES": "2"}


@pytest.mark.parametrize("name", DISPATCHERS)
def test_a_dispatcher_has_every_method_of_the_protocol_with_its_parameters(name: str) -> None:
    methods = {name: each for name, each in vars(Dispatcher).items() if inspect.isfunction(each) and name[0] != "_"}
    for method, promised in methods.items():
        found = getattr(type(DISPATCHERS[name]), method)
        assert inspect.signature(found).parameters.keys() == inspect.signature(promised).parameters.keys(), method
    assert DISPATCHERS[name].name == name


@pytest.mark.covers("E-MLX01")
def test_a_site_with_partitions_is_on_slurm_and_any_other_on_this_machine() -> None:
    assert (dispatcher_of(LAPTOP).name, dispatcher_of(CLUSTER).name) == ("local", "slurm")
    assert (is_batch(LAPTOP), is_batch(CLUSTER)) == (False, True)
    assert (leaves_this_machine(LAPTOP), leaves_this_machine(CLUSTER)) == (False, True)


def test_the_dispatcher_of_a_process_is_that_of_its_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert dispatcher_here().name == "local"
    monkeypatch.setenv("SLURM_JOB_ID", "71")
    here = dispatcher_here()
    assert here.name == "slurm"
    assert here.step(["true"], tasks=2, count=2)[:3] == ["srun", "--jobid=71", "--ntasks=2"]
    monkeypatch.setenv("SLURM_STEP_ID", "3")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    assert [name for name in here.step_environment() if name.startswith("SLURM_")] == ["SLURM_CONF"]


@pytest.mark.covers("E-MR08")
def test_identity_is_that_of_the_batch_job_and_outside_of_one_that_of_the_machine() -> None:
    assert (node(JOB), allocation(JOB), cluster(JOB), allocated_nodes(JOB)) == ("n2", "71", "far", 2)
    assert (job_step(JOB), job_step({**JOB, "SLURM_STEP_ID": "4"})) == ("71.batch", "71.4")
    assert (node({}), allocation({}), cluster({"SLURM_CLUSTER_NAME": "far"})) == (os.uname().nodename, None, None)
    assert (allocated_nodes({"SLURM_JOB_NUM_NODES": "2"}), job_step({})) == (1, None)


def test_a_machine_without_a_batch_system_has_no_jobs_and_refuses_one(tmp_path: Path) -> None:
    local = dispatcher_of(LAPTOP)
    assert local.jobs() == end_jobs(local, ["7"], within_s=1) == local.losses(tmp_path, []) == []
    job = JobSpec(command=("true",), name="try", logs=tmp_path, folder=tmp_path, resources=JobResources())
    with pytest.raises(SiteError, match="no batch system"):
        local.submit(job, LAPTOP)


@pytest.mark.covers("E-MLX01")
def test_jobs_are_listed_by_their_folder_and_waited_for_until_they_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    listing = tmp_path / "listing"
    listing.write_text(f"7|try|RUNNING|n1|{tmp_path}|None\n8|try|COMPLETED|n1|{tmp_path}|None\n9|x|PENDING||/|Held\n")
    for name, does in {"squeue": f"cat {listing}", "scancel": f"sed -i /^$1/d {listing}"}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    slurm = dispatcher_of(CLUSTER)
    assert [job.id for job in slurm.jobs()] == ["7", "9"]
    (job,) = slurm.jobs(tmp_path)
    assert (job.id, job.state, job.nodes) == ("7", "RUNNING", "n1")
    assert end_jobs(slurm, ["7"], within_s=5) == []
    assert [job.reason for job in slurm.jobs()] == ["Held"]
