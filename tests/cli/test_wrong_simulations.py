"""Wrong command lines of `bench baseline`, `simulate`, `check`, `memory` and `fit`: one line, and nothing written."""

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import in_process
import pytest
import yaml
from model_folders import LLAMA_8B, LLAMA_8B_PARAMETERS, write_model

TABLE = Path(__file__).parent / "wrong_simulations.yaml"
WRONG: dict[str, dict[str, Any]] = {entry["words"]: entry for entry in yaml.safe_load(TABLE.read_text())}
SYSTEM = """\
# a model and a workflow
models:
  llm: {memory_gb: 14, gpus_required: 1, load_time_seconds: 30}
workflows:
  w:
    nodes: [{id: a, model: llm}]
"""
REQUESTS = """\
# a request
requests:
  - {request_id: r1, workflow_id: w}
"""
SWF = "1 10 0 100 4 -1 -1 4 200 -1 1 1 1 1 1 1 -1 -1\n"
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
DIAMOND = {
    "name": "one",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {"tasks": [{"name": "a", "id": "a", "parents": [], "children": []}]},
        "execution": {"tasks": [{"id": "a", "runtimeInSeconds": 1.0}]},
    },
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    texts = {"system.yaml": SYSTEM, "requests.yaml": REQUESTS, "jobs.swf": SWF, "trace.csv": TRACE, "empty": ""}
    for name, text in (texts | {"diamond.json": json.dumps(DIAMOND), "odd.parquet": "PAR1"}).items():
        Path(name).write_text(text, encoding="utf-8")
    Path("binary").write_bytes(bytes(range(256)))
    Path("folder").mkdir()
    write_model(Path("model"), LLAMA_8B, LLAMA_8B_PARAMETERS)
    write_model(Path("damaged"), LLAMA_8B, LLAMA_8B_PARAMETERS)
    Path("damaged/config.json").write_text('{"hidden_size": ', encoding="utf-8")
    return tmp_path


@pytest.mark.covers("C1", "C13", "D8", "E-VAL")
@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_command_line_is_one_line_with_exit_code_2_and_writes_nothing(words: str, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    said = in_process.said_by(shlex.split(words), code=2)
    assert WRONG[words]["says"] in said
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line and not line.startswith(("Usage: ", "Try 'bench "))]
    assert len(lines) == 1 or WRONG[words].get("more"), lines
    assert sorted(folder.rglob("*")) == before


OURS = "--config system.yaml"
OVERWRITING = (
    "simulate --gpus 4 --requests jobs.swf --log jobs.swf",
    "simulate --gpus 4 --requests jobs.swf --trace hard",
    "load http://127.0.0.1:1/ --body trace.csv --output ./trace.csv",
    "fit -c requests.yaml -o soft",
    f"check x.json --save-report {OURS} --requests x_conflicts_report.json",
    f"baseline --gpus 1 {OURS} --requests baseline_execution_log.json",
    f"simulate --gpus 1 --policy easy,heft {OURS} --requests x-heft.json --log x.json",
    "load http://127.0.0.1:1/ --pattern trace --set trace=trace.csv --output trace.csv",
)


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize("words", OVERWRITING)
def test_no_output_overwrites_a_file_of_the_same_command_line(words: str, folder: Path) -> None:
    Path("hard").hardlink_to("jobs.swf")
    Path("soft").symlink_to("requests.yaml")
    for name in ("x_conflicts_report.json", "baseline_execution_log.json", "x-heft.json"):
        Path(name).write_text(REQUESTS, encoding="utf-8")
    before = {path: path.read_bytes() for path in folder.glob("*") if path.is_file()}
    code, said = in_process.run(shlex.split(words))
    assert (code, len(said.splitlines())) == (2, 1), said
    assert "would be overwritten" in said
    assert {path: path.read_bytes() for path in folder.glob("*") if path.is_file()} == before


def test_the_right_files_are_read(folder: Path) -> None:
    ours = ["--config", "system.yaml", "--requests", "requests.yaml"]
    for words in (["baseline", "--gpus", "1", *ours], ["simulate", "--gpus", "4", "--requests", "jobs.swf"]):
        assert in_process.run(words)[0] == 0
    assert in_process.run(["simulate", "--gpus", "1", "--requests", "diamond.json"])[0] == 0
    assert in_process.run(["simulate", "--gpus", "1", *ours[:2], "--requests", "trace.csv"])[0] == 0
    assert in_process.run(["memory", "--model", "model", "--gpu", "40", "--max-model-len", "16000"])[0] == 0


def test_each_command_has_wrong_command_lines_and_there_are_forty_or_more() -> None:
    counts = Counter(words.split()[0] for words in WRONG)
    assert min(counts[command] for command in ("baseline", "simulate", "check", "memory", "fit")) >= 10
    assert counts.total() >= 40
