"""Policies compared over blocks of one seed each: same times for all, intervals, verdicts."""

import json
import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from in_process import run

from seamark.simulation.machine import Machine
from seamark.trials.simulation.policy_comparison import compare_policies
from seamark.trials.simulation.quick_simulation import simulated_blocks

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
    code, said = run([*WORDS, "--arrivals", "timestamps", "--draw", "--blocks", "6", "--policy", "baseline,fifo"])
    assert code == 0, said
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
    code, said = run([*WORDS, "--blocks", "6", *more])
    assert code == 2
    assert "--blocks: needs --draw" in said


def test_blocks_are_refused_where_no_time_is_drawn():
    document = {
        "requests": [{"request_id": "r", "workflow_id": "text_generation", "node_execution_times": {"generate": 1}}]
    }
    Path("asked.json").write_text(json.dumps(document), encoding="utf-8")
    code, said = run([*WORDS, "--draw", "--blocks", "6", "--policy", "baseline,fifo"])
    assert code == 2
    assert "--blocks: no time is drawn" in said
