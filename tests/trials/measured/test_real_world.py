"""The real clock: executions in threads of the times that servers take, failures, limits, outputs as inputs."""

import time
from pathlib import Path

import numpy as np
import pytest
from made_servers import MadeServers

from seamark.storage.codec import encode
from seamark_simulate.simulation.checker import check_log, check_rules
from seamark_simulate.simulation.engine import simulate
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule import Executions
from seamark_simulate.simulation.system import Edge, Model, Request, System, Workflow, WorkflowNode
from seamark_simulate.simulation.workload import Requests, workload_of
from seamark_simulate.trials.measured.measured_run import (
    MeasuredWork,
    beside_lines,
    measured_simulation,
    measured_work,
)
from seamark_simulate.trials.measured.model_servers import ModelError

ROOT = Path(__file__).resolve().parents[3]
CLUSTERS = ROOT / "config" / "clusters"


def sample_s(call):
    """Return the time of a node of the sample requests, as their file gives it."""
    return 15.8 if call.model.id == "stable_diffusion" else 8.5 if call.config["max_length"] == 100 else 5.2


def sample(gpus: int, arrivals: str = "all-at-zero") -> MeasuredWork:
    return measured_work(
        CLUSTERS / "system_config.yaml",
        CLUSTERS / "workflow_requests.yaml",
        gpus=gpus,
        arrivals=arrivals,
        cold_load="charged",
    )


def run(asked, policy="baseline", *, failing=None, scale=0.01, limit_s=30.0, call_s=sample_s):
    servers = MadeServers(asked.machine, call_s, scale, failing)
    measured = measured_simulation(asked, policy, servers, limit_s=limit_s, call_limit_s=limit_s)
    return measured, servers


def checked(measured, asked):
    """Check an execution log by itself and against its inputs."""
    document = encode(measured.log)
    result = check_log(document)
    check_rules(result, document, asked.inputs.system, asked.inputs.requests)
    assert result.passed, [*result.conflicts, *result.problems]
    return document


@pytest.mark.slow
@pytest.mark.covers("C2", "C5", "C6")
@pytest.mark.parametrize(("gpus", "policy"), [(1, "baseline"), (2, "baseline"), (2, "heft"), (1, "batch-by-model")])
def test_on_a_real_clock_a_policy_decides_as_on_the_virtual_one_where_times_are_alike(gpus, policy):
    asked = sample(gpus)
    form = POLICIES[policy]
    virtual = simulate(asked.work, asked.machine, form.make, instants=form.instants)
    measured, _ = run(asked, policy, scale=0.03)
    for column in ("node", "gpu", "held"):
        assert getattr(measured.schedule, column).tolist() == getattr(virtual, column).tolist(), column
    assert measured.schedule.ran.makespan_s == pytest.approx(virtual.ran.makespan_s * 0.03, abs=1.0)
    assert (measured.schedule.end_s >= virtual.end_s * 0.03).all()
    assert not measured.failed
    document = checked(measured, asked)
    assert document["summary"]["simulate"] is True


@pytest.mark.covers("C2")
def test_the_output_of_a_node_is_an_input_of_the_next_and_requests_give_the_others():
    measured, servers = run(sample(2), scale=0.001)
    calls = {call.model.id: call for call in servers.calls if call.config.get("max_length") != 100}
    assert calls["llm7b"].inputs == {"prompt": "A sunset over mountains"}
    assert calls["llm7b"].config == {"max_length": 50}
    assert calls["stable_diffusion"].inputs == {"description": "words of llm7b"}
    assert calls["stable_diffusion"].prompt == "words of llm7b"
    assert not measured.failed


@pytest.mark.covers("C2", "C12")
def test_a_failed_call_is_a_failed_execution_with_category_and_reason_and_what_waits_for_it_is_counted_not_run():
    asked = sample(2)
    failing = {"llm7b": ModelError("call_failed", "status 503: ill")}
    measured, servers = run(asked, failing=failing, scale=0.001)
    document = checked(measured, asked)
    assert [each["outcome"] for each in document["executions"]] == ["call_failed", "call_failed"]
    assert [each["reason"] for each in document["executions"]] == ["status 503: ill"] * 2
    summary = document["summary"]
    assert (sum(summary["outcomes"].values()), summary["not_run"], summary["completed_requests"]) == (2, 1, 0)
    assert len(servers.calls) == 2
    assert "Failed node generate of request req_B" in "\n".join(measured.lines)
    assert measured.figures.completion is None
    text = "\n".join(beside_lines(measured))
    assert "makespan (of what ran)" in text
    assert "call_failed" in text


@pytest.mark.covers("C2")
def test_a_failure_that_empties_its_gpu_makes_the_next_node_of_that_model_load_it_again():
    asked = sample(1)
    failing = {"llm7b": ModelError("server_died", "gone", emptied=True)}
    measured, _ = run(asked, failing=failing, scale=0.001)
    empty = len(asked.work.models)
    assert measured.schedule.held.tolist() == [empty, empty]
    assert measured.figures.cold_loads == 1, "the second start is none onto a GPU that was empty"
    assert "first loads 1 and 1" in " ".join("\n".join(beside_lines(measured)).split())


@pytest.mark.parametrize(
    ("outcomes", "ran_s", "first"),
    [
        (("server_died", "completed"), (1, 1), [True, False]),
        (("setup_failed", "completed"), (0, 1), [False, True]),
        (("server_died", "setup_failed", "completed"), (1, 0, 1), [True, False, False]),
        (("gpu_failed", "completed"), (1, 1), [True, True]),
    ],
)
def test_a_first_load_is_whole_and_no_new_start_of_a_server_that_failed(outcomes, ran_s, first):
    count = len(outcomes)
    at_s, zeros = np.arange(count) * 10.0, np.zeros(count, int)
    ran = Executions(
        gpus=1,
        models=["m"],
        arrival_s=at_s,
        request=np.arange(count),
        model=zeros,
        gpu=zeros,
        count=zeros + 1,
        is_switch=zeros > 0,
        is_cold=zeros == 0,
        ready_s=at_s,
        taken_s=at_s,
        fetch_s=zeros + 1.0,
        end_s=at_s + 1 + np.array(ran_s),
        outcome=outcomes,
    )
    assert ran.is_first_load.tolist() == first


@pytest.mark.serial
@pytest.mark.covers("C2")
def test_at_the_limit_all_that_runs_fails_as_timeout_and_nothing_else_starts():
    asked = sample(1)
    began_s = time.monotonic()
    measured, servers = run(asked, scale=1.0, limit_s=0.2, call_s=lambda call: 3600.0)
    assert time.monotonic() - began_s < 5.0
    document = checked(measured, asked)
    [execution] = document["executions"]
    assert (execution["outcome"], document["summary"]["not_run"]) == ("timeout", 2)
    assert 0.2 <= execution["end_time"] < 1.0
    assert "limit of 0.2 s" in execution["reason"]
    assert servers.calls == []  # it was cut off in its load, which takes 30 s


@pytest.mark.serial
@pytest.mark.covers("C2")
def test_requests_arrive_at_their_time_stamps_on_the_real_clock_and_none_after_the_limit():
    asked = sample(2, "timestamps")  # the second one comes after a minute
    began_s = time.monotonic()
    measured, _ = run(asked, scale=0.001, limit_s=0.3)
    assert 0.3 <= time.monotonic() - began_s < 5.0
    document = checked(measured, asked)
    assert [each["request_id"] for each in document["executions"]] == ["req_B"]
    assert (document["summary"]["not_run"], document["summary"]["completed_requests"]) == (2, 1)
    assert "Processing request req_C" not in "\n".join(measured.lines)


@pytest.mark.slow
@pytest.mark.covers("C2", "C6")
def test_a_model_of_several_gpus_takes_its_window_and_waits_for_all_of_it():
    model = {"memory_gb": 1.0, "load_time_s": 10.0}
    models = {
        "one": Model(id="one", gpus_required=1, **model),
        "two": Model(id="two", gpus_required=2, **model),
    }
    nodes = (WorkflowNode(id="small", model="one"), WorkflowNode(id="large", model="two"))
    workflows = {"both": Workflow(id="both", nodes=nodes), "after": Workflow(id="after", nodes=nodes[::-1])}
    workflows["chain"] = Workflow(id="chain", nodes=nodes, edges=(Edge(source="small", target="large"),))
    system = System(models=models, workflows=workflows)
    requests = (Request(id="a", workflow="both"), Request(id="b", workflow="chain"))
    inputs = Requests(system=system, requests=requests)
    asked = MeasuredWork(
        inputs=inputs,
        work=workload_of(system, requests, "all-at-zero"),
        machine=Machine(gpus=2),
        arrivals="all-at-zero",
    )
    measured, servers = run(asked, scale=0.02, call_s=lambda call: 10.0)
    assert not measured.failed
    document = checked(measured, asked)
    assert [each["gpu_ids"] for each in document["executions"] if each["model_name"] == "two"] == [[0, 1], [0, 1]]
    assert servers.most_at_once == 2
