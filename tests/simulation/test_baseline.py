"""The engine under the baseline policy against a literal transcription of the requirements, to the last digit."""

import literal_baseline
import pytest
from random_workflows import documents, nouns

from seamark.storage.codec import encode
from seamark_simulate.simulation.checker import check_log, check_rules
from seamark_simulate.simulation.engine import simulate
from seamark_simulate.simulation.execution_log import execution_log
from seamark_simulate.simulation.log_text import event_lines
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule_metrics import schedule_metrics
from seamark_simulate.simulation.workload import workload_of

CASES = 5_000
QUICK = 120


def compare(seed):
    """Compare one random case in all four settings of arrivals and cold loads."""
    config, asked, gpus = documents(seed)
    system, requests = nouns(config, asked)
    for online in (False, True):
        for cold in ("charged", "free"):
            lines, executions = literal_baseline.run(config, asked, gpus, cold, online)
            work = workload_of(system, requests, "timestamps" if online else "all-at-zero")
            schedule = simulate(work, Machine(gpus=gpus, cold_load=cold), POLICIES["baseline"].make)
            assert list(event_lines(schedule)) == lines, seed
            log = execution_log(
                schedule, schedule_metrics(schedule), mode="online" if online else "offline", policy="baseline"
            )
            rows = [
                (
                    (each["request_id"], each["node_id"]),
                    list(each["gpu_ids"]),
                    each["ready_time"],
                    taken,
                    each["switch_time"] + each["load_time"],
                    switched,
                    each["start_time"],
                    each["end_time"],
                )
                for each, taken, switched in zip(
                    log.executions, schedule.taken_s.tolist(), schedule.ran.is_switch.tolist(), strict=True
                )
            ]
            assert rows == executions, seed
            document = encode(log)
            result = check_log(document)
            check_rules(result, document, system, requests)
            assert result.passed, (seed, result.problems, result.conflicts)


@pytest.mark.slow
@pytest.mark.covers("C5", "C6", "C7", "C9", "C13")
def test_the_engine_agrees_with_a_literal_transcription_to_the_last_digit():
    for seed in range(QUICK):
        compare(seed)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.covers("C5", "C6", "C7", "C9", "C13")
def test_the_engine_agrees_with_a_literal_transcription_on_thousands_of_cases():
    for seed in range(QUICK, CASES):
        compare(seed)
