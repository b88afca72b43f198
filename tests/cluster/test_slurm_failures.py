"""What Slurm can do to a run: it ends or goes on by itself, says what happened, and nothing measured is lost.

This Slurm has no accounting. It requeues jobs, and misses those of a node that was lost, after seconds, not minutes.
"""

import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from slurm import node, slurm, why_no_slurm
from slurm_harm import (
    Run,
    assert_whole,
    at_work,
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
from slurm_study import Job, SlurmStudy

from seamark.workflow.snakemake_cli import runs_in

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

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
HARMS = {1: "CANCELLED", 2: "requeued", 3: "TIMEOUT", 4: "NODE_FAIL", 16: "PREEMPTED"}
"""What is done to the job of a deployment of so many CPUs: a state in which it ends, or that it is requeued."""

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


@dataclass(frozen=True, kw_only=True)
class Harmed:
    """A run that has ended after each of its jobs was harmed; `ids` are its deployments, by the harm."""

    study: SlurmStudy
    said: str
    code: int
    ids: Mapping[str, str]
    measured: Mapping[str, str]


@pytest.fixture(scope="module")
def long_lived(told: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmStudy]:
    """A study that several tests follow through its runs."""
    study = SlurmStudy.at(tmp_path_factory.mktemp("harmed") / "study", told, partitions=PARTITIONS)
    yield study
    study.end()


@pytest.fixture(scope="module")
def harmed(long_lived: SlurmStudy, tmp_path_factory: pytest.TempPathFactory) -> Harmed:
    """Each deployment's job is harmed while its second trial is measured; one that is said to be lost runs on."""
    study = long_lived
    with other_states(study, tmp_path_factory.mktemp("states") / "squeue") as states:
        write(study, "spare", *HARMS)
        run = started(study)
        ids = {HARMS[cpus]: name for cpus, name in deployments(run).items()}
        left = dict(ids)
        while left:
            harm, load = run.until(lambda: stopped_at_work(study, left))
            if harm in ("TIMEOUT", "NODE_FAIL"):  # its fork server: the job does not learn that the load has ended
                load.parent().suspend()
            do_harm(study, harm, job_of(study, left.pop(harm)), states)
            with suppress(psutil.Error):
                load.resume()
        code = run.ends()
    return Harmed(study=study, said=run.said(), code=code, ids=ids, measured=samples(study))


def stopped_at_work(study: SlurmStudy, ids: Mapping[str, str]) -> tuple[str, psutil.Process] | None:
    """Return a harm to be done, and the second load of its deployment, halted so that it does not end first."""
    for harm, deployment in ids.items():
        with suppress(psutil.Error):
            if load := half_done(study, deployment):
                load.suspend()
                return harm, load
    return None


def do_harm(study: SlurmStudy, harm: str, job: Job, states: Path) -> None:
    number = job["JobId"]
    if harm == "CANCELLED":
        study.slurm("scancel", number)
    elif harm == "TIMEOUT":
        # a time that has passed when it arrives would be refused
        study.slurm("scontrol", "update", f"JobId={number}", "EndTime=now+3seconds")
    elif harm == "NODE_FAIL":
        states.write_text(f"{number} {harm}\n")
    elif harm == "PREEMPTED":
        place = [f"--nodelist={job['NodeList']}", f"--cpus-per-task={NODE['cpus']}"]
        study.slurm("sbatch", "--partition=urgent", *place, "--output=/dev/null", "--wrap=true")
    else:
        study.slurm("scontrol", "requeue", number)


@pytest.mark.covers("E-NFR04", "E-SVR06", "E-MLX01")
def test_a_job_that_is_lost_costs_its_running_trial_only_and_the_run_says_how_it_was_lost(harmed: Harmed) -> None:
    assert harmed.code == 3
    lines = harmed.said.splitlines()
    for harm in ("CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"):
        assert [f": {harm}. " in line for line in lines if harmed.ids[harm] in line] == [True]
    counts = Counter(name.split("--")[0] for name in harmed.measured)
    assert counts[harmed.ids["CANCELLED"]] == counts[harmed.ids["PREEMPTED"]] == 1
    assert {counts[harmed.ids[harm]] for harm in ("TIMEOUT", "NODE_FAIL")} <= {1, 2}  # the load may just have ended
    assert " of 10 trials are measured" in lines[-1]


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04", "E-SVR06", "E-MLX01")
def test_a_job_that_is_requeued_goes_on_where_it_was_and_its_run_with_it(harmed: Harmed) -> None:
    assert harmed.ids["requeued"] not in harmed.said
    assert job_of(harmed.study, harmed.ids["requeued"])["Restarts"] == "1"
    record = harmed.study.json(f"deployments/{harmed.ids['requeued']}/deployment.json")
    assert record["trials"] == {"n": 2, "ok": 2}


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04", "E-SVR06", "E-AC05", "E-MLX01")
def test_jobs_that_a_lost_or_killed_run_left_end_before_the_next_measures_and_nothing_is_measured_twice(
    harmed: Harmed,
) -> None:
    study = harmed.study
    (lost,) = in_queue(study)
    second = started(study)
    second.until(lambda: f"job {lost} of an earlier run was cancelled" in second.said())
    forked_by = second.until(lambda: at_work(study)).parent()
    forked_by.suspend()
    orphan = forked_by.environ()["SLURM_JOB_ID"]
    for process in (second.process, *runs_in(study.root)):
        process.send_signal(signal.SIGKILL)
    left = {*in_queue(study)}
    assert orphan in left
    third = started(study)
    new = third.until(lambda: {*in_queue(study)} - left)
    assert not left & {*in_queue(study)}, f"{left} are there beside {new}"
    assert third.ends() == 0, third.said()
    assert f"job {orphan} of an earlier run was cancelled" in third.said()
    assert_whole(study, harmed.measured, trials=2 * len(HARMS))


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04", "E-SVR06", "E-MLX01")
def test_a_controller_that_restarts_and_a_node_that_dies_end_no_run(study: SlurmStudy, daemons: ExitStack) -> None:
    write(study, "cpu", 1)
    run = started(study)
    (one,) = deployments(run).values()
    run.until(lambda: at_work(study))
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


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04", "E-VAL", "E-MLX01")
def test_a_job_that_slurm_refuses_or_holds_for_ever_ends_the_run_with_the_reason(study: SlurmStudy) -> None:
    write(study, "brief", 1)
    refused = started(study)
    assert refused.ends() == 3
    assert (
        "Slurm refuses a job: Requested time limit is invalid (missing or exceeds some limit). The trials of"
        in refused.said()
    )
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
