"""Pipelines of the original benchmark's files, measured as a user does: `bench colocate FILE`."""

import csv
import json
import os
import signal
import subprocess
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from study_folder import BENCH, StudyFolder

from seamark.model.sample import EventKind

pytestmark = pytest.mark.e2e

OWN = """\
import os
from pathlib import Path
from time import sleep

from stages.stage import Stage, log_phase
from utils.schemas import PipelineModel, StageModel
from utils.schemas.query import Query


class MyStage(Stage):
    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel):
        super().__init__(stage_config, pipeline_config)
        self.pause_s = self.extra_config.get("pause_s", 0)

    @log_phase
    def prepare(self):
        super().prepare()
        with Path(f"pid-{self.parent_name}").open("a") as file:
            print(os.getpid(), file=file, flush=True)

    def get_dataset_splits(self):
        return {"train": 2, "val": 1}

    def run(self, query: Query) -> dict[int, Query]:
        sleep(self.pause_s)
        if query.query_id >= self.extra_config.get("fails_from", 1000):
            raise RuntimeError("asked to fail")
        query.data = [query.split, query.batch]
        return {idx: query for idx in self.output_queues}
"""
SCHEDULERS = """\
from time import sleep, time

from loadgen.schedulers.scheduler import LoadScheduler
from utils.schemas import Query


class Even(LoadScheduler):
    def arrivals(self, rng):
        at_s = 0.0
        while True:
            yield at_s
            at_s += self.extra_config["gap_s"]


class Source(LoadScheduler):
    def generate(self, queue, event):
        counter = 0
        self.timer.start()
        try:
            while counter < self.max_queries and not self.stop:
                for split, batches in self.dataset_splits.items():
                    for batch in range(batches):
                        if counter:
                            event.wait()
                            event.clear()
                        sleep(0.05)
                        queue.put(Query(split=split, batch=batch, query_submitted_timestamp=time()))
                        counter += 1
                        if counter >= self.max_queries:
                            return
        finally:
            queue.put(None)
            self.timer.cancel()
"""
PIPELINE = """\
  - name: {name}
    inputs: [0]
    outputs: [1]
    dataset_stage_id: 0
    loadgen: {{component: loadgen.OfflineLoadScheduler, max_queries: 5, timeout: 60, config: {{rate: 3}}}}
    stages:
      - {{name: Data loader, id: 0, outputs: [1], component: stages.my_new_stage.MyStage, config: {config}}}
      - {{name: End, id: 1, component: stages.TerminalCapture}}
"""


def write(study: StudyFolder, **configs: str) -> None:
    """Write a stage of one's own, and a file with a pipeline for each name."""
    folder = study.root / "stages" / "my_new_stage"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(OWN)
    pipelines = "".join(PIPELINE.format(name=name, config=config) for name, config in configs.items())
    (study.root / "own.yml").write_text(f"name: own pair\npipelines:\n{pipelines}")


def rows(path: Path, *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path, columns=list(columns) or None).to_pylist()
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """A study in which two pipelines of five queries each were measured at once."""
    study = StudyFolder.new(tmp_path_factory.mktemp("pair") / "study")
    write(study, first="{pause_s: 0.1}", second="{pause_s: 0.15}")
    done = study.bench("colocate", "own.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    return study


def parties(study: StudyFolder, scenario: str = "own_pair") -> dict[str, Path]:
    return {path.name: path for path in (study.root / "results" / scenario).glob("*/parties/*")}


@pytest.mark.covers("A1", "A2", "A3", "A6", "A8")
def test_two_pipelines_of_a_file_run_at_once_each_in_a_process_of_its_own(pair: StudyFolder) -> None:
    folders = parties(pair)
    assert set(folders) == {"first", "second"}
    spans = {}
    for name, folder in folders.items():
        events = rows(folder / "events.parquet", "query", "stage", "what", "begin_ns", "end_ns")
        runs = Counter((event["stage"], event["what"]) for event in events)
        assert {stage: runs[stage, EventKind.RUN] for stage in (0, 1)} == {0: 5, 1: 5}
        samples = rows(folder / "samples.parquet", "index", "sent_ns", "last_ns", "failure")
        assert sorted(sample["index"] for sample in samples) == list(range(5))
        assert not any(sample["failure"] for sample in samples)
        epoch_ns = json.loads((folder / "load.json").read_text())["epoch_unix_ns"]
        times = [(sample["sent_ns"], sample["last_ns"]) for sample in samples]
        spans[name] = (epoch_ns + min(begin for begin, _ in times), epoch_ns + max(end for _, end in times))
        answers = [json.loads(line) for line in (folder / "files/answers.jsonl").read_text().splitlines()]
        data = [["train", 0], ["train", 1], ["val", 0], ["train", 0], ["train", 1]]
        assert [(answer["query_id"], answer["epoch"], answer["final_data"]) for answer in answers] == [
            (str(number), 1 + number // 3, data[number]) for number in range(5)
        ]
    assert max(begin for begin, _ in spans.values()) < min(end for _, end in spans.values())
    pids = [(pair.root / f"pid-{name}").read_text().split() for name in folders]
    assert [len(of_one) for of_one in pids] == [1, 1]  # each was built once: not by a plan, nor to warm up
    assert pids[0] != pids[1]
    assert not any(psutil.pid_exists(int(pid)) for [pid] in pids)


@pytest.mark.covers("A4")
def test_a_closed_loop_never_has_two_queries_in_flight(pair: StudyFolder) -> None:
    for folder in parties(pair).values():
        times = sorted((row["sent_ns"], row["last_ns"]) for row in rows(folder / "samples.parquet"))
        assert all(ended <= sent for (_, ended), (sent, _) in pairwise(times))


@pytest.mark.covers("A7", "A8")
def test_the_log_has_each_step_once_and_in_order(pair: StudyFolder) -> None:
    for folder in parties(pair).values():
        events = [json.loads(line)["event"] for line in (folder / "log.jsonl").read_text().splitlines()]
        steps = [event for event in events if event not in ("stage preparing", "stage prepared")]
        assert steps == [
            *("load generator built", "logging built", "pipeline built", "stage built", "stage built", "prepared"),
            *("test started", "test ended", "load ended"),
        ]
        assert "flowchart LR" in (folder / "files/flow.md").read_text()


@pytest.mark.covers("A7")
def test_the_rows_of_the_original_are_exported_a_file_for_each_pipeline(pair: StudyFolder) -> None:
    done = pair.bench("export", "colocation", "-c", ".seamark/colocate/own_pair.yaml", "-o", "rows", "--perf")
    assert done.returncode == 0, done.stderr
    files = sorted((pair.root / "rows").iterdir())
    assert len(files) == 2
    for path in files:
        written = [[cell.strip() for cell in row] for row in csv.reader(path.read_text().splitlines())]
        assert [row[0] for row in written] == sorted(row[0] for row in written)
        phases = Counter((row[2], row[3], row[4]) for row in written)
        for end in ("start", "end"):
            assert phases["pipeline", "prepare", end] == phases["End", "prepare", end] == 1
            assert phases["Data loader", "run", end] == phases["End", "run", end] == 5
            assert (phases["pipeline - train", "run", end], phases["pipeline - val", "run", end]) == (4, 1)
        queries = [row for row in written if row[2].startswith("pipeline - ") and row[4] == "end"]
        assert [(row[5], row[7], row[8]) for row in queries] == [
            *(("0", "1", "1"), ("1", "1", "2"), ("2", "1", "1"), ("3", "2", "1"), ("4", "2", "2"))
        ]


@pytest.mark.covers("A4")
def test_a_rate_changes_nothing_of_a_closed_loop_and_a_setting_of_a_stage_is_a_factor(pair: StudyFolder) -> None:
    scenario = pair.root / "config/scenarios/varied.yaml"
    scenario.write_text(
        "scenario: varied\nrepetitions: 1\nworkload:\n  service: pipeline\n  graph: own.yml\n  pipeline: first\n"
        "  stages.0.config.pause_s: [0.2, 0.3]\n  requests: 3\n"
    )
    planned = pair.ask("plan", "-c", "varied", "--json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["trials"] == 2
    pair.bench("submit", "-c", "varied", code=0)
    pauses_ms = [
        json.loads(path.read_text())["stages"]["by_stage"]["data_loader"]["run_ms"]["mean"]
        for path in sorted((pair.root / "results/varied").glob("*/metrics.json"))
    ]
    assert len(pauses_ms) == 2
    assert min(pauses_ms) >= 200  # 100 is what the file says
    assert max(pauses_ms) >= 300
    refused = pair.ask("colocate", "own.yml", "-p", "2")
    assert (refused.returncode, "-p" in refused.stderr) == (2, True)
    assert "own.yml" in pair.ask("colocate", "own.yml", "-n").stderr


@pytest.mark.covers("A4", "A6")
def test_schedulers_of_a_study_run_in_both_of_their_forms(study: StudyFolder) -> None:
    write(study, even="{}", source="{}")
    folder = study.root / "loadgen" / "schedulers"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(SCHEDULERS)
    text = (study.root / "own.yml").read_text()
    for name in ("Even", "Source"):
        text = text.replace("loadgen.OfflineLoadScheduler", f"loadgen.schedulers.mine.{name}", 1)
    (study.root / "own.yml").write_text(text.replace("rate: 3", "gap_s: 0.1"))
    done = study.bench("colocate", "own.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    due = {
        name: sorted(row["due_ns"] for row in rows(path / "samples.parquet")) for name, path in parties(study).items()
    }
    assert due["even"] == [round(number * 1e8) for number in range(5)]
    assert len(due["source"]) == 5
    assert min(after - before for before, after in pairwise(due["source"])) >= 50_000_000
    times = sorted((row["sent_ns"], row["last_ns"]) for row in rows(parties(study)["source"] / "samples.parquet"))
    assert all(ended <= sent for (_, ended), (sent, _) in pairwise(times))
    assert max(ended - sent for sent, ended in times) < 50_000_000


@pytest.mark.covers("A5")
def test_a_stage_that_keeps_failing_fails_its_pipeline_and_no_other(study: StudyFolder) -> None:
    write(study, good="{pause_s: 0.05}", bad="{fails_from: 1}")
    done = study.bench("colocate", "own.yml")
    assert done.returncode == 1, done.stdout + done.stderr
    folders = parties(study)
    failed, good = (json.loads((folders[name] / "load.json").read_text()) for name in ("bad", "good"))
    assert (failed["status"], failed["category"]) == ("failed", "stage_failed")
    assert "Data loader" in failed["reason"]
    assert "asked to fail" in failed["reason"]
    assert (good["status"], good["rows"]) == ("ok", 5)
    pids = [int((study.root / f"pid-{name}").read_text()) for name in folders]
    assert not any(map(psutil.pid_exists, pids))


@pytest.mark.sweep
@pytest.mark.covers("A3")
def test_after_kill_9_of_one_pipeline_nothing_of_it_is_left_the_other_ends_and_retry_completes(
    study: StudyFolder,
) -> None:
    write(study, first="{pause_s: 0.5}", second="{pause_s: 0.6}")
    run = subprocess.Popen([*BENCH, "colocate", "own.yml"], cwd=study.root, stdout=subprocess.DEVNULL)
    pids = [study.root / f"pid-{name}" for name in ("first", "second")]
    limit_s = time.monotonic() + 60
    while not all(path.exists() and path.read_text() for path in pids):
        assert time.monotonic() < limit_s
        time.sleep(0.1)
    time.sleep(1)  # both have begun
    victim, other = (int(path.read_text()) for path in pids)
    os.kill(victim, signal.SIGKILL)
    assert run.wait(120) == 1
    folders = parties(study)
    loads = {name: json.loads((folder / "load.json").read_text()) for name, folder in folders.items()}
    assert (loads["first"]["status"], loads["second"]["status"]) == ("failed", "ok")
    assert not psutil.pid_exists(other)
    assert study.bench("retry", "-c", ".seamark/colocate/own_pair.yaml").returncode == 0
    loads = {name: json.loads((folder / "load.json").read_text()) for name, folder in folders.items()}
    assert {load["status"] for load in loads.values()} == {"ok"}
    assert {load["rows"] for load in loads.values()} == {5}


@pytest.mark.covers("A2", "A10")
def test_what_a_file_of_the_original_needs_and_is_not_here_is_a_line_each_with_exit_code_3(
    study: StudyFolder,
) -> None:
    text = (study.root / "pipeline_configs/finetune_huggingface.yml").read_text()
    for here, there in {
        "device: auto": "device: cuda",
        "seeded/llama": "org/m",
        "seeded/instructions": "org/d",
    }.items():
        assert here in text
        text = text.replace(here, there)
    (study.root / "theirs.yml").write_text(text)
    network = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(study.root)}
    refused = study.bench("colocate", "theirs.yml", code=3, env=network)
    assert len(refused.stderr.splitlines()) == 3
    assert "Traceback" not in refused.stderr
    assert not (study.root / "results/fine_tuning_with_hugging_face").exists()
    shown = study.bench("colocate", "theirs.yml", "-n", code=0, env=network)
    assert "flowchart" in shown.stdout
    assert len(shown.stderr.splitlines()) == 3


@pytest.mark.sweep
@pytest.mark.covers("A7", "A10")
def test_answers_of_a_real_pipeline_have_documents_tokens_and_a_score(study: StudyFolder) -> None:
    workload = {
        "service": "pipeline",
        "graph": "pipeline_configs/rag.yml",
        "pipeline": "With documents",
        "requests": 12,
    }
    document = {"scenario": "answers", "repetitions": 1, "workload": workload}
    (study.root / "answers.yaml").write_text(json.dumps(document))
    study.bench("submit", "-c", "answers.yaml", code=0, timeout=900)
    [folder] = (study.root / "results/answers").glob("pipeline_models-*")
    metrics = json.loads((folder / "metrics.json").read_text())
    answers = [json.loads(line) for line in (folder / "files/answers.jsonl").read_text().splitlines()]
    assert len(answers) == 12
    found = [
        any(right in text for text in row["retrieved_documents"] for right in row["golden_answers"])
        for row in answers
    ]
    assert sum(found) >= 10
    assert metrics["quality"]["answer_match"] == pytest.approx(sum(row["match"] for row in answers) / 12)
    assert metrics["throughput"]["unit"] == "tokens_per_s"
    assert metrics["ttft_ms"]["mean"] > 0
    assert metrics["stages"]["by_stage"]["generator"]["first_ms"]["mean"] > 0
    assert list(metrics["stages"]["by_stage"]) == ["questions", "retriever", "prompt", "generator", "end"]


@pytest.mark.covers("A4", "A7")
def test_a_faster_stage_is_tried_at_each_level_once_and_told_in_a_table(study: StudyFolder) -> None:
    write(study, first="{pause_s: 0.05}")
    (study.root / "slow.yaml").write_text(
        "scenario: slow\nrepetitions: 2\nworkload: {service: pipeline, graph: own.yml, requests: 20}\n"
    )
    words = ("whatif", "-c", "slow.yaml", "--stage", "Data loader", "--faster", "40,80")
    done = study.bench(*words, code=0)
    words_of = [line.split() for line in done.stdout.splitlines() if " %" in line and "pipeline" in line]
    assert [(row[1], row[3]) for row in words_of] == [("40", "0"), ("80", "0")]
    assert [float(row[5]) for row in words_of] == pytest.approx([-40, -80], rel=0.1)
    folders = sorted((study.root / "results/slow_faster_data_loader").glob("*/metrics.json"))
    assert len(folders) == 6
    p50_ms: dict[float, list[float]] = {}
    for path in folders:
        metrics = json.loads(path.read_text())
        faster = json.loads((path.parent / "trial.json").read_text())["trials"][0]["settings"]["faster"]
        p50_ms.setdefault(faster, []).append(metrics["latency_ms"]["p50"])
        assert metrics["verdict"] != "INVALID"
        if faster:
            assert metrics["quality"]["late_pause_ratio"] < 0.05
            assert metrics["quality"]["inserted_ms"] == pytest.approx(20 * 50 * faster / 100, rel=0.2)
    for faster, times_ms in p50_ms.items():
        assert times_ms == pytest.approx([50 * (1 - faster / 100)] * 2, rel=0.2)
    measured = {path: path.stat().st_mtime_ns for path in study.root.glob("results/slow_faster_*/*/samples.parquet")}
    assert len(measured) == 6
    again = study.bench(*words, code=0)
    assert set(done.stdout.splitlines()[-3:]) <= {*again.stdout.splitlines()}
    assert measured == {path: path.stat().st_mtime_ns for path in measured}


ASKING = """\
name: asking
pipelines:
  - name: Asking
    inputs: [0]
    outputs: [2]
    dataset_stage_id: 0
    loadgen: {component: loadgen.OfflineLoadScheduler, max_queries: 12, timeout: 60}
    stages:
      - {name: Question, id: 0, outputs: [1], component: stages.scripted.Scripted, config: {answers: [[who is it]]}}
      - {name: Model, id: 1, outputs: [2], component: stages.llm_server.Inference, config: {server: {model: m}}}
      - {name: End, id: 2, component: stages.TerminalCapture}
"""


@pytest.mark.sweep
@pytest.mark.covers("A10")
def test_a_stage_asks_the_server_of_another_party_which_has_telemetry_of_its_own(study: StudyFolder) -> None:
    (study.root / "asking.yml").write_text(ASKING)
    asking = {"service": "pipeline", "graph": "asking.yml"}
    asking["stages.1.config.server.api_base"] = "http://{server[model]}/v1"
    model = {"service": "known", "ttft_ms": 30, "gap_ms": 1, "concurrency": 1, "duration_s": 0.5, "warmup_s": 0}
    workload = {"sets": [["asking"], ["model"]], "parties": {"asking": asking, "model": model}}
    path = study.root / "config/scenarios/try.yaml"
    path.write_text(json.dumps({"scenario": "try", "repetitions": 1, "workload": workload}))
    study.submit(code=0)
    [folder] = study.results.glob("*/parties/asking")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["counts"]["ok"] == 12
    assert metrics["stages"]["by_stage"]["model"]["run_ms"]["mean"] > 30
    assert metrics["throughput"]["unit"] == "tokens_per_s"
    assert "model.server.cpu_ratio" in metrics["telemetry"]
    assert "idle_member_busy" not in [reason["code"] for reason in metrics["reasons"]]
    assert json.loads((folder / "load.json").read_text())["used"] == ["model"]
    asking["stages.1.config.server.api_base"] = "http://{server[modell]}/v1"
    path.write_text(json.dumps({"scenario": "try", "repetitions": 1, "workload": workload}))
    wrong = study.bench("plan", "-c", "config/scenarios/try.yaml", code=2)
    assert "modell" in wrong.stderr
