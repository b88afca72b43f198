"""Policies compared over blocks of one seed each: same times for all, intervals, verdicts."""

import json
import random
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from in_process import run, said_by

from seamark.model.results.schedule_metrics import Outcomes
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.trials.policy_comparison import compare_policies
from seamark_simulate.trials.quick_simulation import policy_table, simulated_blocks

SYSTEM = Path(__file__).resolve().parents[2] / "config" / "clusters" / "system_config.yaml"
WORDS = ["simulate", "--gpus", "2", "--config", str(SYSTEM), "--requests", "asked.json"]


@pytest.fixture(autouse=True)
def asked(tmp_path, monkeypatch):
    """Sixty requests of both workflows, without times of their own, one in 12 s on average."""
    monkeypatch.chdir(tmp_path)
    rng, at_s, entries = random.Random(1), 0.0, []
    for i in range(60):
        at_s += rng.expovariate(1 / 12)
        time = datetime(2024, 1, 1) + timedelta(seconds=at_s)
        workflow = ("text_generation", "multimodal_workflow")[i % 2]
        entries.append({"request_id": f"r{i}", "timestamp": time.isoformat(), "workflow_id": workflow})
    Path("asked.json").write_text(json.dumps({"requests": entries}), encoding="utf-8")


def blocks(seeds, policies=("baseline", "fifo", "static-placement"), gpus=2):
    return list(simulated_blocks(SYSTEM, Path("asked.json"), policies, Machine(gpus=gpus), "timestamps", seeds))


def test_columns_stay_apart_however_long_the_times_are():
    runs = blocks(range(1))[0]
    grown = [replace(run.figures, makespan_s=1.5e9, switch_s=1e9, switches=10**9, completion=None) for run in runs]
    of_one = policy_table([replace(run, figures=each) for run, each in zip(runs, grown, strict=True)])
    compared = compare_policies({run.policy: [each] * 2 for run, each in zip(runs, grown, strict=True)}, "makespan")
    assert all(len(line.split()) == 7 for line in of_one[1 : 1 + len(runs)])
    assert "1,500,000,000.00  " in compared.lines[1]
    assert compared.lines[1].endswith("  1,000,000,000")


@pytest.mark.covers("C14")
def test_policies_of_a_block_see_the_same_times_and_blocks_other_ones():
    drawn = []
    for runs in blocks(range(3)):
        times = [run.schedule.work.duration_s.tolist() for run in runs]
        assert times[0] == times[1] == times[2]
        drawn.append(times[0])
        work = runs[0].schedule.work
        of_llm = [took for took, model in zip(times[0], work.model, strict=True) if work.models[model].id == "llm7b"]
        assert sum(of_llm) / len(of_llm) == pytest.approx(8.5, abs=1.0)
        assert len(set(of_llm)) == 60
        assert set(work.estimate_s) == {8.5, 10.0}
    assert len({tuple(each) for each in drawn}) == 3
    assert blocks(range(1))[0][0].schedule.work.duration_s.tolist() == drawn[0]


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_shorter_makespans_are_better_and_equal_ones_equivalent():
    figures = {}
    for runs in blocks(range(8), ("baseline", "fifo"), gpus=1):
        for each in runs:
            figures.setdefault(each.policy, []).append(each.figures)
    figures["on four GPUs"] = [runs[0].figures for runs in blocks(range(8), ("baseline",), gpus=4)]
    compared = compare_policies(figures, "mean completion").comparisons
    assert (compared["fifo"].verdict, compared["on four GPUs"].verdict) == ("equivalent", "better")
    assert (compared["on four GPUs"].method, compared["on four GPUs"].pairs) == ("signed-rank", 8)
    assert compare_policies(dict(reversed(figures.items())), "makespan").comparisons["fifo"].verdict == "worse"


def test_the_command_prints_a_row_a_policy_and_keeps_the_logs_of_the_first_block():
    said = said_by([*WORDS, "--arrivals", "timestamps", "--draw", "--blocks", "6", "--policy", "baseline,fifo"])
    header, base, other, what, logs = said.splitlines()
    assert header.split()[-5:] == ["ratio", "to", "baseline", "p", "verdict"]
    assert base.split()[0] == "baseline"
    assert (other.split()[0], other.split()[-1]) == ("fifo", "equivalent")
    assert what.startswith("Medians over 6 blocks. Ratios are of the mean completion, with intervals of 9"), what
    assert logs == "Execution logs: execution_log-POLICY.json, of the first block"
    assert sorted(path.name for path in Path.cwd().glob("execution*")) == [
        "execution_log-baseline.json",
        "execution_log-fifo.json",
    ]


@pytest.mark.parametrize("more", [["--policy", "all"], ["--draw"], []])
def test_blocks_without_draws_or_policies_to_compare_are_refused(more):
    said = said_by([*WORDS, "--blocks", "6", *more], code=2)
    assert "--blocks: needs --draw" in said


def test_blocks_are_refused_where_no_time_is_drawn():
    document = {
        "requests": [{"request_id": "r", "workflow_id": "text_generation", "node_execution_times": {"generate": 1}}]
    }
    Path("asked.json").write_text(json.dumps(document), encoding="utf-8")
    said = said_by([*WORDS, "--draw", "--blocks", "6", "--policy", "baseline,fifo"], code=2)
    assert "--blocks: no time is drawn" in said


FAILING = """
gpu_kinds: {slow: {speed: 0.25}, fast: {speed: 1}}
hosts:
  - {name: slow, kind: slow, gpus: 4, network_gb_per_s: 10}
  - {name: fast, kind: fast, gpus: 4, network_gb_per_s: 10}
failures: {mtbf_s: 60, repair_s: 5, attempts: 1}
"""


@pytest.fixture
def failing():
    """A machine whose slow GPUs nearly always fail before a node of 50 s ends, and four such nodes."""
    Path("failing.yaml").write_text(FAILING, encoding="utf-8")
    workflow = {"nodes": [{"id": "n", "model": "m"}]}
    model = {"memory_gb": 1, "gpus_required": 1, "load_time_seconds": 0}
    Path("one.json").write_text(json.dumps({"models": {"m": model}, "workflows": {"w": workflow}}), encoding="utf-8")
    asked = [
        {
            "request_id": f"r{i}",
            "workflow_id": "w",
            "timestamp": "2024-01-01T10:00:00",
            "node_execution_times": {"n": 50},
        }
        for i in range(4)
    ]
    Path("asked.json").write_text(json.dumps({"requests": asked}), encoding="utf-8")
    words = ["simulate", "--machine", "failing.yaml", "--config", "one.json", "--requests", "asked.json"]
    return [*words, "--arrivals", "timestamps", "--policy", "baseline,heft"]


@pytest.mark.covers("C14")
def test_a_policy_whose_blocks_complete_nothing_has_no_mean_of_zero_and_is_not_compared(failing):
    said = said_by([*failing, "--blocks", "20"])
    header, base, other, what, left, _ = said.splitlines()
    assert "incomplete" in header
    baseline, heft = base.split(), other.split()
    assert baseline[2] == "200.00", said  # of the one request that completed
    assert (heft[2], heft[-2:]) == ("50.00", ["not", "compared"])
    assert (baseline[4:7], heft[4:7]) == (["79", "of", "80"], ["43", "of", "80"]), said
    assert what.startswith("Medians over 20 blocks.")
    assert left.endswith("Blocks in which a policy did not complete all are not compared.")
    said = run([*failing, "--blocks", "2"])[1]
    assert said.splitlines()[1].split()[1:6] == ["80.33", "–", "0", "8", "of"], said


def test_a_table_of_policies_has_no_mean_of_nothing_and_no_bound_of_what_did_not_run(failing):
    said = said_by([*failing, "--seed", "1"])
    _, base, *_ = said.splitlines()
    assert base.split()[2:4] == ["–", "–"], said
    assert "No schedule is shorter" not in said
    assert "of 4 requests not completed" in said


@pytest.mark.covers("C14")
def test_only_blocks_in_which_both_policies_completed_all_requests_are_compared():
    figures = {}
    for runs in blocks(range(8), ("baseline", "fifo"), gpus=1):
        for each in runs:
            figures.setdefault(each.policy, []).append(each.figures)
    lost = Outcomes(executions={"gpu_failed": 1}, held_s=1.0, not_run=1, incomplete_requests=1)
    again = replace(lost, not_run=0, incomplete_requests=0)
    figures["baseline"][0] = replace(figures["baseline"][0], outcomes=lost)
    figures["fifo"][1] = replace(figures["fifo"][1], outcomes=lost)
    figures["fifo"][2] = replace(figures["fifo"][2], outcomes=again)
    assert compare_policies(figures, "mean completion").comparisons["fifo"].pairs == 6
