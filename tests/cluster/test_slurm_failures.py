"""What Slurm can do to a run: it ends or goes on by itself, says what happened, and nothing measured is lost.

This Slurm has no accounting. It requeues jobs, and misses those of a node that was lost, after seconds, not minutes.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from slurm import node, slurm, why_no_slurm
from slurm_harm import (
    Run,
    assert_whole,
    controller,
    half_done,
    in_queue,
    job_of,
    kill_node,
    other_states,
    samples,
    started,
    stop_controller,
)
from slurm_study import SlurmStudy

from seamark.snake import runs_in

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.e2e,
    pytest.mark.skipif(
        not os.environ.get("SEAMARK_TEST_HARM"),
        reason="minutes of harm to a Slurm, bound by time-outs: `make test-cluster` does it, on a machine left alone",
    ),
]

MORE = """
AuthInfo=socket={folder}/munge/socket,cred_expire=5
MessageTimeout=3
BatchStartTimeout=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
PartitionName=spare Nodes=n[1-2] PreemptMode=CANCEL PriorityTier=1 MaxTime=24:00:00 State=UP
PartitionName=urgent Nodes=n[1-2] PreemptMode=OFF PriorityTier=10 MaxTime=24:00:00 State=UP
PartitionName=brief Nodes=n[1-2] MaxTime=00:05:00 State=UP
"""
BOOT_S = 5.0
"""How long a lost node is away: before, this Slurm takes its jobs for jobs that are being started."""

NODE = {"nodes": 2, "cpus": 16, "mem_gb": 15}
PARTITIONS = {"cpu": NODE, "spare": NODE, "brief": NODE}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := why_no_slurm():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("slurm")
    with slurm(folder, nodes=2, cpus=16, more=MORE.format(folder=folder)) as told:
        yield told


@pytest.fixture(scope="module")
def daemons(told: dict[str, str]) -> Iterator[ExitStack]:
    """Where a test puts the daemons that it starts again: they live as long as their Slurm."""
    with ExitStack() as held:
        yield held


@pytest.fixture
def study(told: dict[str, str], tmp_path: Path) -> Iterator[SlurmStudy]:
    """A study with deployments that differ in their CPUs, each of two trials."""
    study = SlurmStudy.at(tmp_path / "study", told, partitions=PARTITIONS)
    yield study
    study.end()


def write(study: SlurmStudy, partition: str, *cpus: int) -> None:
    resources = {"gpus": 0, "cpus_per_task": list(cpus)}
    study.write(partition=partition, resources=resources, repetitions=1, workload={"duration_s": 1})


def deployments(run: Run) -> dict[int, str]:
    """Return the ids of the deployments, by their CPUs."""
    planned = run.until(lambda: (run.study.results / "plan.json").exists() and run.study.json("plan.json"))
    return {each["cpus_per_task"]: each["id"] for each in planned["deployments"]}


@pytest.mark.covers("E-NFR04", "E-SVR06", "E-MLX01", "E-AC05")
def test_jobs_that_are_cancelled_preempted_out_of_time_or_lost_cost_their_running_trial_only(
    study: SlurmStudy, tmp_path: Path
) -> None:
    with other_states(study, tmp_path / "squeue") as states:
        write(study, "spare", 1, 2, 3, 4, 16)
        run = started(study)
        ids = deployments(run)
        left = {1: "cancelled", 2: "requeued", 3: "out of time", 4: "lost", 16: "preempted"}
        while left:
            cpus, load = run.until(lambda: next(((c, p) for c in left if (p := half_done(study, ids[c]))), None))
            number = job_of(study, ids[cpus])["JobId"]
            harm = left.pop(cpus)
            if harm == "cancelled":
                study.slurm("scancel", number)
            elif harm == "requeued":
                study.slurm("scontrol", "requeue", number)
            elif harm == "out of time":
                load.parent().suspend()  # so that its job does not end by itself, and other loads go on
                study.slurm("scontrol", "update", f"JobId={number}", "EndTime=now")
            elif harm == "lost":
                load.parent().suspend()
                states.write_text(f"{number} NODE_FAIL\n")
            else:
                where = f"--nodelist={job_of(study, ids[cpus])['NodeList']}"
                study.slurm("sbatch", "--partition=urgent", "-c16", where, "--output=/dev/null", "--wrap=true")
        assert run.ends() == 3
    for state, cpus in (("CANCELLED", 1), ("TIMEOUT", 3), ("NODE_FAIL", 4), ("PREEMPTED", 16)):
        (line,) = [line for line in run.said().splitlines() if ids[cpus] in line]
        assert f": {state}. " in line
    assert ids[2] not in run.said()
    before = samples(study)
    counts = Counter(name.split("--")[0] for name in before)
    assert (counts[ids[1]], counts[ids[2]], counts[ids[16]]) == (1, 2, 1)
    assert {counts[ids[cpus]] for cpus in (3, 4)} <= {1, 2}  # the load that ran may have ended by itself meanwhile
    (lost,) = in_queue(study)
    again = started(study)
    assert again.ends() == 0, again.said()
    assert f"job {lost} of an earlier run was ended" in again.said()
    assert_whole(study, before, trials=10)


@pytest.mark.covers("E-NFR04", "E-SVR06", "E-MLX01")
def test_a_controller_that_restarts_and_a_node_that_dies_end_no_run(study: SlurmStudy, daemons: ExitStack) -> None:
    write(study, "cpu", 1)
    run = started(study)
    (one,) = deployments(run).values()
    run.until(lambda: list(study.results.glob("*/.parts/*")))
    where = int(job_of(study, one)["NodeList"].removeprefix("n"))
    stop_controller(study.environment)
    run.until(lambda: half_done(study, one))
    kill_node(study.environment, where)
    before = samples(study)
    daemons.enter_context(controller(study.environment))
    run.until(lambda: "is UP" in study.slurm("scontrol", "ping"))
    time.sleep(BOOT_S)
    daemons.enter_context(node(study.environment, where))
    assert run.ends() == 0, run.said()
    assert job_of(study, one)["Restarts"] == "1"
    assert len(before) == 1
    assert_whole(study, before, trials=2)


@pytest.mark.covers("E-NFR04", "E-SVR06", "E-AC05", "E-MLX01")
def test_jobs_of_a_run_that_was_killed_end_before_the_next_run_measures(study: SlurmStudy) -> None:
    write(study, "cpu", 1, 16)
    run = started(study)
    ids = deployments(run)
    one = run.until(lambda: next((each for each in ids.values() if half_done(study, each)), None))
    (other,) = {*ids.values()} - {one}
    before, old = samples(study), job_of(study, one)["JobId"]
    study.slurm("scontrol", "requeuehold", job_of(study, other)["JobId"])
    for process in (run.process, *runs_in(study.root)):
        process.send_signal(signal.SIGKILL)
    assert half_done(study, one), "the job is to outlive its run"
    again = started(study)
    again.until(lambda: "of an earlier run was ended" in again.said())
    again.until(lambda: list(study.results.glob("*/.parts/*")))
    assert old not in in_queue(study)
    assert again.ends() == 0, again.said()
    assert_whole(study, before, trials=4)


@pytest.mark.covers("E-NFR04", "E-VAL", "E-MLX01")
def test_a_job_that_slurm_refuses_or_holds_for_ever_ends_the_run_with_the_reason(study: SlurmStudy) -> None:
    write(study, "brief", 1)
    refused = started(study)
    assert refused.ends() == 3
    assert "Slurm refuses a job: sbatch: error: Batch job submission failed: Requested time limit" in refused.said()
    assert study.jobs() == []

    study.write_site(partitions=PARTITIONS, job_options=["--hold"], queue_deadline_s=2)
    write(study, "cpu", 1)
    held = started(study)
    assert held.ends() == 3
    assert "waited longer than 'queue_deadline_s' of the site and was cancelled" in held.said()
    assert "Slurm's reason: JobHeldUser. A held job starts when it is released" in held.said()
    assert in_queue(study) == []

    study.write_site(partitions=PARTITIONS)
    good = started(study)
    assert good.ends() == 0, good.said()
    assert_whole(study, {}, trials=2)
