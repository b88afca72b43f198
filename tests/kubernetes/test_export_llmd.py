"""Trials as benchmark reports of llm-d-benchmark: the official validator and the official converters are oracles.

Native files have the form of the tools, with figures by the formulas that each has in its source.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from planted_study import NAME, planted_study
from samples import a_load, samples_of, write_samples
from service_environment import CACHE, ROOT, ask

from seamark.analysis.summary.trial_files import write_metrics
from seamark.cli.main import cli
from seamark.drivers.harness.guidellm import GuideLlm
from seamark.drivers.harness.tool import record
from seamark.drivers.harness.vllm_bench import VllmBench
from seamark.errors import UserError
from seamark.load.driver import Target
from seamark.model.harness import HARNESS
from seamark.model.trial import Trial
from seamark.planning.study import Study
from seamark.services.runtimes.environments import prepare_environment
from seamark.storage.documents import write
from seamark.storage.paths import ScenarioFolder

RATE_RPS, DURATION_S, TOKENS = 25.0, 40.0, 4
COUNT = int(RATE_RPS * DURATION_S)
FAILED = (40, 41, 77)
CANARY = "hunter2-of-the-canary"
TOOLS = {"vllm_bench": VllmBench, "guidellm": GuideLlm}


def times() -> dict[str, np.ndarray]:
    """Return intended starts, starts, first tokens and ends of requests in seconds since 1970."""
    random = np.random.default_rng(3)
    due_s = 1_796_000_000.0 + np.arange(COUNT) / RATE_RPS
    sent_s = due_s + random.uniform(0.0, 0.05, COUNT)  # so that times from the due time on are others
    first_s = sent_s + 0.2 + random.exponential(0.05, COUNT)
    return {"due": due_s, "sent": sent_s, "first": first_s, "end": first_s + random.uniform(0.01, 0.05, COUNT)}


def spread(values: np.ndarray) -> dict[str, float]:
    levels = {"p50": 50, "p90": 90, "p95": 95}
    return {"mean": float(values.mean()), **{name: float(np.percentile(values, at)) for name, at in levels.items()}}


def native_files(folder: Path) -> dict[str, Path]:
    """Write a native file of each tool of the same requests."""
    at, good = times(), np.setdiff1d(np.arange(COUNT), FAILED)
    ttft_s, latency_s = at["first"] - at["sent"], at["end"] - at["sent"]
    tpot_s, length_s = (latency_s - ttft_s) / (TOKENS - 1), float(at["end"].max() - at["sent"].min())
    rows = [
        {
            "output_tokens": None if index in FAILED else TOKENS,
            "info": {
                "error": "ReadError('')" if index in FAILED else None,
                "timings": {
                    "targeted_start": at["due"][index],
                    "request_start": at["sent"][index],
                    "resolve_start": at["sent"][index],
                    "first_token_iteration": None if index in FAILED else at["first"][index],
                    "request_end": at["sent"][index] if index in FAILED else at["end"][index],
                    "resolve_end": at["end"][index],
                },
            },
        }
        for index in range(COUNT)
    ]
    vllm: dict[str, Any] = {
        "date": "20261130-120000",
        "num_prompts": COUNT,
        "completed": len(good),
        "total_input_tokens": 8 * len(good),
        "total_output_tokens": TOKENS * len(good),
        "request_rate": RATE_RPS,
        "max_concurrency": 64,
        "request_throughput": len(good) / length_s,
        "output_throughput": TOKENS * len(good) / length_s,
        "total_token_throughput": (8 + TOKENS) * len(good) / length_s,
        "start_times": at["sent"].tolist(),
        "queue_times": (at["sent"] - at["due"]).tolist(),
        "ttfts": [0.0 if index in FAILED else ttft_s[index] for index in range(COUNT)],
        "itls": [[] for _ in range(COUNT)],
        "latencies": [0.0 if index in FAILED else latency_s[index] for index in range(COUNT)],
        "output_lens": [0 if index in FAILED else TOKENS for index in range(COUNT)],
        "errors": ["Bad Gateway" if index in FAILED else "" for index in range(COUNT)],
    }
    for name, values in (("ttft", ttft_s), ("tpot", tpot_s), ("itl", tpot_s), ("e2el", latency_s)):
        figures = spread(values[good] * 1e3)
        vllm |= {f"mean_{name}_ms": figures["mean"], f"median_{name}_ms": figures["p50"]}
        vllm |= {f"{level}_{name}_ms": figures[level] for level in ("p90", "p95")}

    def summary(values: np.ndarray) -> dict[str, Any]:
        figures = spread(values)
        return {"successful": {"mean": figures.pop("mean"), "percentiles": figures}}

    metrics = {
        "request_totals": {"total": COUNT, "errored": len(FAILED), "incomplete": 0},
        "prompt_token_count": summary(np.full(len(good), 8.0)),
        "output_token_count": summary(np.full(len(good), float(TOKENS))),
        "time_to_first_token_ms": summary(ttft_s[good] * 1e3),
        "time_per_output_token_ms": summary(latency_s[good] * 1e3 / TOKENS),
        "inter_token_latency_ms": summary(tpot_s[good] * 1e3),
        "request_latency": summary(latency_s[good]),
        "output_tokens_per_second": summary(np.array([vllm["output_throughput"]])),
        "tokens_per_second": summary(np.array([vllm["total_token_throughput"]])),
        "requests_per_second": summary(np.array([vllm["request_throughput"]])),
    }
    requests = {
        "successful": [rows[index] for index in good],
        "errored": [rows[index] for index in FAILED],
        "incomplete": [],
    }
    benchmark = {
        "start_time": at["sent"].min(),
        "end_time": at["end"].max(),
        "duration": length_s,
        "config": {"strategy": {"type_": "constant", "rate": RATE_RPS}},
        "metrics": metrics,
        "requests": requests,
    }
    data = [{"kind": "synthetic_text", "prompt_tokens": 8, "output_tokens": TOKENS}]
    documents = {"vllm_bench": vllm, "guidellm": {"config": {"spec": {"data": data}}, "benchmarks": [benchmark]}}
    files = {}
    for tool, document in documents.items():
        files[tool] = folder / f"{tool}.json"
        files[tool].write_text(json.dumps(document), encoding="utf-8")
    return files


class Rows:
    """A recorder that keeps the samples."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def sample(self, index: int, **row: Any) -> None:
        self.rows.append(row)


def write_trial(trial: Trial, folder: ScenarioFolder, native: Path, data: Path) -> None:
    """Write the files of a trial whose load a tool sent, as this native file has it."""
    tool = TOOLS[str(trial.settings[HARNESS])](Target(settings=trial.settings, data=data, ports={"main": 1}))
    recorded: Any = Rows()
    record(tool.requests(json.loads(native.read_text())), recorded, trial.load, begun_s=1_796_000_000.0)
    rows = recorded.rows
    column = {name: [row[name] for row in rows] for name in rows[0]}
    at_s = {
        name: np.array([np.nan if time is None else time / 1e9 for time in column[f"{name}_ns"]])
        for name in ("due", "sent", "last", "first")
    }
    samples = samples_of(
        at_s["due"],
        at_s["sent"],
        at_s["last"],
        first_s=at_s["first"],
        failure=column["failure"],
        units=column["units"],
    )
    files = folder.trial(trial.id)
    write_samples(files.samples, samples, config_hash=trial.config_hash)
    load = {"warmup_s": 0.0, "duration_s": DURATION_S, "rows": COUNT, "unit": "token", "kinds": ["request"]}
    write(files.load, a_load(**load))
    write_metrics(trial, files, scenario=NAME)


@pytest.fixture(scope="module")
def natives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return native_files(tmp_path_factory.mktemp("natives"))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, natives: dict[str, Path]) -> Path:
    """A study of which the trials of other tools have the requests of their native files; ours are replies."""
    root = tmp_path_factory.mktemp("llmd") / "study"
    folder = planted_study(
        root,
        queue="none",
        harness=["seamark", *TOOLS],
        prompt_form="text",
        prompt_len=8,
        gen_tokens=TOKENS,
        pattern="constant",
        rate_rps=RATE_RPS,
        concurrency=64,
        warmup_s=0.0,
        duration_s=DURATION_S,
    )
    for trial in Study.at(root, scenario=NAME).plan.measured:
        if (tool := trial.settings[HARNESS]) in TOOLS:
            write_trial(trial, folder, natives[str(tool)], root)
    return root


def export(study: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Call `bench export llmd`; return its reports by trial."""
    monkeypatch.chdir(study)
    done = CliRunner().invoke(cli, ["export", "llmd", "-c", NAME, "-o", "out"])
    assert done.exit_code == 0, (done.output, done.exception)
    return {path.stem: yaml.safe_load(path.read_text()) for path in (study / "out").glob("*.yaml")}


@pytest.mark.covers("D8", "D9")
def test_trials_with_tokens_have_a_report_of_the_window_and_others_are_listed(
    study: Path, monkeypatch: pytest.MonkeyPatch
):
    reports = export(study, monkeypatch)
    trials = {trial.id: trial for trial in Study.at(study, scenario=NAME).plan.measured}
    assert {trials[name].settings[HARNESS] for name in reports} == {*TOOLS}
    for name, report in reports.items():
        assert report["run"]["uid"] == trials[name].trial_id
        requests = report["results"]["request_performance"]["aggregate"]["requests"]
        assert (requests["total"], requests["failures"]) == (COUNT, len(FAILED))
        sent_by = report["scenario"]["load"]["standardized"]
        assert sent_by["tool"] in {"vllm-benchmark", "guidellm"}
        assert sent_by["tool_version"][0].isdigit()
        assert "p99p9" not in report["results"]["request_performance"]["aggregate"]["latency"]["request_latency"]


@pytest.mark.covers("D4")
def test_a_secret_is_in_no_report(study: Path, monkeypatch: pytest.MonkeyPatch):
    scenario = study / "config" / "scenarios" / f"{NAME}.yaml"
    before = scenario.read_text()
    monkeypatch.setenv("CANARY_TOKEN", CANARY)
    for trial in Study.at(study, scenario=NAME).plan.measured:
        if trial.settings[HARNESS] in TOOLS:
            meta = {"service_version": f"1.0 {CANARY}", "trial_id": trial.trial_id}
            path = ScenarioFolder(root=study / "results" / NAME).trial(trial.id).meta
            path.write_text(json.dumps(meta))
    reports = export(study, monkeypatch)
    assert scenario.read_text() == before
    assert reports
    assert all(CANARY not in path.read_text() for path in (study / "out").iterdir())
    assert any("***" in path.read_text() for path in (study / "out").iterdir())


def test_a_study_without_results_has_no_report(tmp_path: Path, study: Path, monkeypatch: pytest.MonkeyPatch):
    planted_study(tmp_path / "bare")
    monkeypatch.chdir(tmp_path / "bare")
    done = CliRunner().invoke(cli, ["export", "llmd", "-c", NAME])
    assert isinstance(done.exception, UserError)
    assert [mistake.code for mistake in done.exception.mistakes] == ["missing"]
    assert not (tmp_path / "bare" / "llmd").exists()


@pytest.mark.services
@pytest.mark.covers("D8", "D9")
def test_the_official_validator_takes_the_reports_and_the_official_converters_find_our_figures(
    study: Path, natives: dict[str, Path], monkeypatch: pytest.MonkeyPatch
):
    reports = export(study, monkeypatch)
    root = prepare_environment("llmd_report", ROOT / "tests" / "oracles", CACHE / "envs")
    assert ask(root, "inside_llmd", "validated", files=[str(path) for path in (study / "out").iterdir()]) == {}
    theirs = ask(root, "inside_llmd", "converted", natives={tool: str(path) for tool, path in natives.items()})
    trials = {trial.id: trial for trial in Study.at(study, scenario=NAME).plan.measured}
    for name, report in reports.items():
        tool = str(trials[name].settings[HARNESS])
        official = theirs[tool]["results"]["request_performance"]["aggregate"]
        ours = report["results"]["request_performance"]["aggregate"]
        for latency, statistics in ours["latency"].items():
            if latency not in official["latency"] or "mean" not in official["latency"][latency]:
                continue
            there = official["latency"][latency]
            factor = 1e3 if there["units"] == "s" else 1.0
            for statistic in statistics.keys() & there.keys() - {"units"}:
                assert statistics[statistic] == pytest.approx(there[statistic] * factor, rel=0.01), (
                    latency,
                    statistic,
                )
        assert {"time_to_first_token", "request_latency"} <= ours["latency"].keys() & official["latency"].keys()
        assert ours["requests"]["output_length"]["mean"] == official["requests"]["output_length"]["mean"]
        assert ours["requests"]["failures"] == official["requests"]["failures"]
        for rate in ("request_rate", "output_token_rate"):
            mean = official["throughput"][rate]["mean"]
            assert ours["throughput"][rate]["mean"] == pytest.approx(mean, rel=0.02), (
                "a tool's time ends with the last reply"
            )
