"""Whole runs on a real Slurm: which jobs there are, what they ask for, what they leave."""

import csv
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from slurm_accounting import ACCOUNT
from slurm_study import SlurmStudy
from study_folder import StudyFolder

pytestmark = pytest.mark.cluster
CORE = ("metrics.json", "metrics.csv", "meta.json", "effective_config.yaml", "samples.parquet", "series.csv")


@pytest.fixture(scope="module")
def finished(accounted: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmStudy]:
    """A study whose deployments, of one and of two CPUs, were measured, with a QoS that lets one job wait or run."""
    study = SlurmStudy.at(tmp_path_factory.mktemp("finished") / "study", accounted)
    study.write_site(qos_max_submit={"test": 1})
    study.write(qos="test", resources={"cpus_per_task": [1, 2]})
    study.measure(code=0)
    yield study
    study.end()


def metas(study: StudyFolder) -> list[dict[str, Any]]:
    return [json.loads((trial / "meta.json").read_text()) for trial in study.trials()]


def summary(study: StudyFolder) -> list[dict[str, str]]:
    with (study.results / "summary.csv").open() as lines:
        return list(csv.DictReader(lines))


@pytest.mark.covers("E-FR03", "E-FR04", "E-MR01", "E-MR02", "E-MLX01", "E-AC04")
def test_each_deployment_is_one_job_that_states_all_it_needs(finished: SlurmStudy) -> None:
    jobs = finished.jobs()
    stated = {"Account": ACCOUNT, "Partition": "gpu", "QOS": "test", "NumNodes": "1", "TresPerNode": "gres:gpu:1"}
    for job in jobs:
        assert {key: job[key] for key in stated} == stated
        assert "mem=2G" in job["TRES"]
        assert job["TimeLimit"] == "00:18:00"  # 10 to serve, 2 to warm up, 4 for 4 loads, 2 to end
    assert sorted(job["CPUs/Task"] for job in jobs) == ["1", "2"]


@pytest.mark.covers("E-FR03", "E-MLX01")
def test_no_more_jobs_wait_than_the_qos_lets_a_user_submit(finished: SlurmStudy) -> None:
    first, second = finished.jobs()
    assert first["EndTime"] <= second["SubmitTime"]


@pytest.mark.covers("E-MR08", "E-FR08", "E-LOG01")
def test_a_trial_names_its_job_and_node_and_the_jobs_output_is_kept(finished: SlurmStudy) -> None:
    told = {(meta["slurm_job_id"], meta["slurm"]["slurm_job_nodelist"]) for meta in metas(finished)}
    assert told == {(job["JobId"], job["NodeList"]) for job in finished.jobs()}
    for job in finished.jobs():
        output = Path(job["StdOut"])
        assert output.is_relative_to(finished.root / "logs")
        assert output.stem == job["JobId"]
        assert "rule load" in output.read_text()


@pytest.mark.covers("E-NFR05", "E-AC04", "E-AC05")
def test_a_run_on_slurm_reports_as_one_without_and_a_second_submit_is_no_job(
    finished: SlurmStudy, tmp_path: Path
) -> None:
    assert all((trial / name).is_file() for trial in finished.trials() for name in CORE)
    before = finished.measurements()
    assert finished.submit().returncode == 0
    assert len(finished.jobs()) == 2
    assert finished.measurements() == before == dict.fromkeys(before, 1)

    here = StudyFolder.new(tmp_path / "here")
    here.write(resources={"cpus_per_task": [1, 2]})
    assert here.submit().returncode == 0
    there, local = summary(finished), summary(here)
    assert list(there[0]) == list(local[0])
    told = ("workload", "repetition", "service", "factor_concurrency", "status", "throughput_unit")
    assert sorted([row[key] for key in told] for row in there) == sorted([row[key] for key in told] for row in local)
    for kind in ("report.md", "index.html"):
        pages = [study.root / "reports" / "try" / kind for study in (finished, here)]
        assert [page.stat().st_size > 2000 for page in pages] == [True, True]


@pytest.mark.sweep
@pytest.mark.covers("E-FR17", "E-FR21", "E-MLX04")
def test_a_database_is_served_and_measured_inside_its_job(on_slurm: SlurmStudy) -> None:
    workload = {"component": "storage", "service": "postgres", "operation": ["lookup", "tpcb"], "scale": 1}
    workload |= {"concurrency": 1, "duration_s": 0.5, "warmup_s": 0.2}
    on_slurm.write(partition="cpu", resources={"gpus": 0}, repetitions=1, workload=workload)
    on_slurm.measure(code=0)
    (job,) = on_slurm.jobs()
    assert job["JobState"] == "COMPLETED"
    assert [on_slurm.json(f"{trial.name}/load.json")["status"] for trial in on_slurm.trials()] == ["ok", "ok"]
    assert {meta["slurm_job_id"] for meta in metas(on_slurm)} == {job["JobId"]}


@pytest.mark.covers("E-VAL", "E-MR01")
def test_a_job_that_its_qos_would_never_start_is_refused(on_slurm: SlurmStudy) -> None:
    on_slurm.write(qos="short", workload={"duration_s": 600})
    done = on_slurm.measure(code=2)
    assert "'short' ends a job after 30 min" in done.stderr
    assert "asks for 66 min" in done.stderr
    assert "more time (default)" in done.stderr
    assert on_slurm.jobs() == []


@pytest.mark.sweep
@pytest.mark.covers("E-FR03", "E-NFR04")
def test_a_job_whose_command_is_longer_than_an_argument_may_be_is_run(on_slurm: SlurmStudy) -> None:
    on_slurm.write(repetitions=1)
    longer = ("--wrapper-prefix", "w" * 100_000, "--apptainer-args", "a" * 60_000)  # as those of many trials are
    on_slurm.bench("submit", "-c", "config/scenarios/try.yaml", "--", *longer, code=0)
    assert len(on_slurm.trials()) == 2
    (job,) = on_slurm.jobs()
    assert job["JobState"] == "COMPLETED"


@pytest.mark.sweep
@pytest.mark.covers("D2", "D5")
def test_a_barrier_submits_the_next_jobs_when_those_before_have_ended(on_slurm: SlurmStudy) -> None:
    on_slurm.write(partition="cpu", resources={"gpus": 0, "mem_gb": [1, 2, 3, 4]}, repetitions=1)
    on_slurm.measure("--order", "barrier: 2", code=0)
    assert set(on_slurm.measurements().values()) == {1}
    jobs = sorted(on_slurm.jobs(), key=lambda job: job["SubmitTime"])
    assert len(jobs) == 4
    assert max(job["EndTime"] for job in jobs[:2]) <= min(job["SubmitTime"] for job in jobs[2:])
    on_slurm.measure("--order", "sequential", code=0)
    assert len(on_slurm.jobs()) == 4, "another order measures nothing again"


def gpus_seen(study: SlurmStudy) -> dict[str, str]:
    """Return what CUDA_VISIBLE_DEVICES is for the servers that run now, by their supervisors."""
    seen = {}
    for process in study.processes():
        with suppress(psutil.Error):
            if "seamark.testservers.null" in process.cmdline():
                told = process.environ()
                seen[told["SEAMARK_KEEPER"]] = told["CUDA_VISIBLE_DEVICES"]
    return seen


@pytest.mark.sweep
@pytest.mark.covers("E-FR04", "E-MLX01", "D5")
def test_deployments_that_share_a_node_each_have_gpus_of_their_own(on_slurm: SlurmStudy) -> None:
    on_slurm.write_site(deployments_per_job=2, placement="share", pinning="none")
    on_slurm.write(resources={"cpus_per_task": 1, "mem_gb": [1, 2]}, repetitions=1, workload={"duration_s": 2})
    run, seen = on_slurm.start(), set()
    while run.poll() is None:
        seen.add(tuple(sorted(gpus_seen(on_slurm).values())))
        time.sleep(0.2)
    assert run.returncode == 0
    together = [both for both in seen if len(both) == 2]
    assert [len(set(both)) for both in together] == [2]
    assert {gpu for some in seen for gpu in some} == set(together[0])
    (job,) = on_slurm.jobs()
    assert (job["NumNodes"], job["TresPerNode"], job["CPUs/Task"]) == ("1", "gres:gpu:2", "2")
    assert "mem=3G" in job["TRES"]
    assert {meta["placement"] for meta in metas(on_slurm)} == {"share"}


@pytest.mark.sweep
@pytest.mark.covers("E-FR03", "E-FR04", "E-SVR02", "E-MLX01")
def test_many_short_deployments_go_into_one_job_one_after_another_in_the_sites_words(on_slurm: SlurmStudy) -> None:
    words = {"gpu_request": "gpus", "job_options": ["--hint=nomultithread", "--nice=7"]}
    on_slurm.write_site(deployments_per_job=3, **words)
    resources = {"nodes": 2, "gpus": 4, "cpus_per_task": 1, "mem_gb": [1, 2, 3]}
    on_slurm.write(qos="default", resources=resources, repetitions=1, workload={"concurrency": 1})
    run, most = on_slurm.start(), 0
    while run.poll() is None:
        most = max(most, len(gpus_seen(on_slurm)))
        time.sleep(0.2)
    assert (run.returncode, most) == (0, 1)
    (job,) = on_slurm.jobs()
    assert (job["NumNodes"], job["TresPerNode"], job["CPUs/Task"], job["Nice"]) == ("2", "gres:gpu:4", "1", "7")
    assert job["TimeLimit"] == "00:46:00"  # 15 each, and 1
    assert job["MinMemoryNode"] == "3G"


@pytest.mark.sweep
@pytest.mark.covers("E-FR03", "E-FR04")
@pytest.mark.parametrize("together", [1, 2])
def test_every_block_starts_its_servers_in_jobs_of_its_own(on_slurm: SlurmStudy, together: int) -> None:
    on_slurm.write_site(deployments_per_job=together)
    workload = {"concurrency": 1, "duration_s": 1}
    sized = {"cpus_per_task": 1, "mem_gb": [1, 2]}
    on_slurm.write(qos="default", restarts="each", resources=sized, repetitions=2, workload=workload)
    on_slurm.measure(code=0)
    job_of = {
        trial.name: json.loads((trial / "meta.json").read_text())["slurm_job_id"] for trial in on_slurm.trials()
    }
    assert len(job_of) == 4
    blocks = [{job for name, job in job_of.items() if name.endswith(f"--r{block}")} for block in (1, 2)]
    assert [len(jobs) for jobs in blocks] == [2 // together] * 2
    assert not blocks[0] & blocks[1]
    assert len(on_slurm.jobs()) == 4 // together
    on_slurm.measure(code=0)
    assert len(on_slurm.jobs()) == 4 // together


@pytest.mark.covers("E-VAL")
def test_deployments_that_no_node_has_room_for_together_are_refused(on_slurm: SlurmStudy) -> None:
    on_slurm.write_site(deployments_per_job=3, placement="share", pinning="none")
    on_slurm.write(resources={"gpus": 2, "mem_gb": [1, 2, 3]})
    done = on_slurm.measure(code=2)
    assert "ask for 6 GPUs of 4" in done.stderr
