"""`artifacts.dataset` is planned and never measured, as long as no driver reads a data set."""

import json
import subprocess
import sys
from pathlib import Path

import in_process
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "config/scenarios/llm_vllm_baseline.yaml"
IDS = "vllm-1gpu-8cpu-32gb-24ada048--concurrency-32-66aa8a11--r1"
"""Name of the first trial of the sample with its data set, before that was refused."""


def bench(study: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return in_process.bench(*words, cwd=study)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study with the sample scenario as the requirements have it: with a data set."""
    monkeypatch.setenv("WORK", str(tmp_path))
    root = tmp_path / "study"
    assert bench(tmp_path, "init", str(root)).returncode == 0
    text = (root / SAMPLE).read_text()
    head, tail = text.split("  # `dataset`")
    (root / SAMPLE).write_text(f"{head}  dataset: $WORK/data/prompts.jsonl\n" + tail.split("\n", 1)[1])
    return root


@pytest.mark.covers("E-EX", "E-CFG")
def test_the_sample_with_a_data_set_still_plans_to_54_trials_of_the_same_names_and_says_what_is_not_read(study):
    done = bench(study, "plan", "-c", SAMPLE, "--site", "meluxina", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    trials = document["plan"]["trials"]
    assert (len(trials), trials[0]["id"]) == (54, IDS)
    assert any(
        note.startswith("artifacts.dataset ($WORK/data/prompts.jsonl): no driver") for note in document["notes"]
    )


@pytest.mark.slow
@pytest.mark.covers("E-VAL", "E-INT01")
@pytest.mark.parametrize("words", [("submit",), ("submit", "-n"), ("start",), ("retry",), ("export", "slurm")])
def test_what_would_measure_refuses_a_data_set_with_its_line_and_writes_nothing(study, words):
    before = sorted(study.rglob("*"))
    done = bench(study, *words, "-c", SAMPLE, "--site", "meluxina")
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith(f"{SAMPLE}:20: artifacts.dataset: no driver reads a data set in this version")
    assert "Remove the line" in done.stderr
    assert sorted(study.rglob("*")) == before


@pytest.mark.slow
def test_snakemake_alone_refuses_a_data_set_too(study):
    words = ["-m", "snakemake", "-n", "--config", f"scenario={SAMPLE}", "site=meluxina"]
    done = subprocess.run([sys.executable, *words], cwd=study, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"{SAMPLE}:20: artifacts.dataset: no driver reads a data set" in done.stdout + done.stderr
