"""executions.parquet: what is written is read to the last digit, with the log and the figures of the schedule."""

from pathlib import Path

import pytest
from random_workflows import documents, nouns

from seamark.analysis.metrics.samples import DamagedError
from seamark_simulate.config.workflow_files import read_system
from seamark_simulate.simulation.engine import simulate
from seamark_simulate.simulation.execution_log import execution_log, facts_of
from seamark_simulate.simulation.generated_requests import GeneratedLoad, generated_requests
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule_metrics import schedule_metrics
from seamark_simulate.simulation.workload import workload_of
from seamark_simulate.trials.execution_file import log_of_file, schedule_of_trial, write_executions

SYSTEM = Path(__file__).resolve().parents[2] / "config" / "clusters" / "system_config.yaml"


def written(path: Path, seed: int, policy: str = "baseline"):
    """Write a random schedule, with nodes of several GPUs; return it."""
    config, asked, gpus = documents(seed, most_requests=8)
    system, requests = nouns(config, asked)
    work, machine = workload_of(system, requests, "timestamps"), Machine(gpus=gpus)
    form = POLICIES[policy]
    schedule = simulate(work, machine, form.make, instants=form.instants)
    write_executions(path, schedule, facts_of(schedule, policy=policy, mode="online"))
    return schedule


@pytest.mark.slow
@pytest.mark.covers("C11", "C12")
def test_log_and_figures_of_a_file_are_those_of_the_schedule_to_the_last_digit(tmp_path):
    path = tmp_path / "executions.parquet"
    for seed in range(60):
        policy = list(POLICIES)[seed % len(POLICIES)]
        schedule = written(path, seed, policy)
        figures = schedule_metrics(schedule)
        assert schedule_of_trial(path) == figures, seed
        log, right = log_of_file(path), execution_log(schedule, figures, mode="online", policy=policy)
        assert (log.summary, [*log.executions]) == (right.summary, [*right.executions]), seed


@pytest.mark.covers("E-NFR04")
def test_a_file_that_is_cut_or_changed_anywhere_is_damaged_or_has_the_same_figures(tmp_path):
    """Page checksums cover the data; the rest of a Parquet file is its footer."""
    path = tmp_path / "executions.parquet"
    right = schedule_metrics(written(path, 7))
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at])
        with pytest.raises(DamagedError, match=r"executions\.parquet is damaged: "):
            schedule_of_trial(path)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            assert schedule_of_trial(path) == right, at
        except DamagedError:
            continue


@pytest.mark.covers("C14")
def test_generated_requests_arrive_at_their_rate_and_more_of_them_begin_the_same():
    system = read_system(SYSTEM)
    many = generated_requests(system, GeneratedLoad(count=4000, rate_rps=0.5), 3).requests
    assert many[0].at_s == 0.0
    assert many[-1].at_s == pytest.approx(8000, rel=0.05)
    share = sum(request.workflow == "text_generation" for request in many) / 4000
    assert share == pytest.approx(0.5, abs=0.03)
    assert generated_requests(system, GeneratedLoad(count=100, rate_rps=0.5), 3).requests == many[:100]
    twice = generated_requests(system, GeneratedLoad(count=100, rate_rps=1.0), 3).requests
    assert [each.at_s for each in twice] == pytest.approx([each.at_s / 2 for each in many[:100]])
    assert [each.workflow for each in twice] == [each.workflow for each in many[:100]]
    other = generated_requests(system, GeneratedLoad(count=100), 4).requests
    assert [each.workflow for each in other] != [each.workflow for each in many[:100]]
    assert {each.at_s for each in other} == {None}
