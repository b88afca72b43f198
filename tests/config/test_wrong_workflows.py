"""Wrong files and options of simulated workflows: a mistake is a line with place and remedy; nothing is written."""

import json
from pathlib import Path

import in_process
import pytest
from wrong_files import change, wrong_files

from seamark.config.yaml_source import value_of
from seamark.errors import UserError
from seamark_simulate.config.workflow_files import read_files
from seamark_simulate.simulation.workload import model_time

SYSTEM = """\
# models and workflows
models:
  llm: {memory_gb: 14, gpus_required: 1, load_time_seconds: 30, inference_time_mean: 8.5}
  sd: {memory_gb: 8, gpus_required: 1, load_time_seconds: 6}
workflows:
  w:
    nodes:
      - {id: a, model: llm, config_options: [max_length]}
      - {id: b, model: sd}
    edges:
      - {from: a, to: b}
"""
REQUESTS = """\
# two requests
requests:
  - request_id: r1
    timestamp: 2024-01-01T10:00:00
    workflow_id: w
    node_execution_times: {a: 2.5}
    node_configs: {a: {max_length: 5}}
  - request_id: r2
    timestamp: 2024-01-01T10:00:30
    workflow_id: w
"""
WRONG = wrong_files(Path(__file__).with_name("wrong_workflows.yaml"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("system.yaml").write_text(SYSTEM, encoding="utf-8")
    Path("requests.yaml").write_text(REQUESTS, encoding="utf-8")


def mistakes() -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        read_files(Path("system.yaml"), Path("requests.yaml"))
    assert caught.value.exit_code == 2
    return caught.value.lines


def test_the_right_files_are_read() -> None:
    requests = read_files(Path("system.yaml"), Path("requests.yaml"))
    system = requests.system
    assert [list(system.models), list(system.workflows)] == [["llm", "sd"], ["w"]]
    assert [(each.id, each.at_s) for each in requests.requests] == [("r1", 0.0), ("r2", 30.0)]
    assert (requests.requests[0].node_configs, requests.begin) == ({"a": {"max_length": 5}}, "2024-01-01 10:00:00")


@pytest.mark.covers("C3", "C4")
def test_keys_that_change_nothing_are_named_once_and_a_base_model_gives_what_is_left_out() -> None:
    change("system.yaml", "memory_gb: 8, gpus_required: 1", "base_model: llm, type: image")
    change("system.yaml", "workflows:", "metadata: {made: today}\nworkflows:")
    change("requests.yaml", "workflow_id: w", "workflow_id: w\n    type: batch")
    found = read_files(Path("system.yaml"), Path("requests.yaml"))
    system, notes = found.system, found.notes
    llm, sd = system.models["llm"], system.models["sd"]
    assert (sd.memory_gb, sd.gpus_required, sd.load_time_s) == (llm.memory_gb, llm.gpus_required, 6)
    assert sd.inference_time_mean_s == llm.inference_time_mean_s
    assert notes == ("Keys that change nothing here: metadata (system.yaml:5), type (system.yaml:4).",)


@pytest.mark.covers("C3", "C4")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_line_that_says_where_and_what(name: str) -> None:
    entry = WRONG[name]
    path = Path(f"{entry['in']}.yaml")
    change(str(path), entry["old"], entry["new"])
    found = mistakes()
    assert len(found) == 1 or entry.get("more"), found
    assert any(line.startswith(f"{path}:{entry['line']}: ") and entry["says"] in line for line in found), found


@pytest.mark.covers("C3", "C4")
def test_mistakes_in_both_files_are_reported_at_once() -> None:
    Path("system.yaml").write_text(SYSTEM.replace("model: sd", "model: x").replace("30,", "-30,"), encoding="utf-8")
    Path("requests.yaml").write_text(REQUESTS.replace("workflow_id: w", "workflow_id: v"), encoding="utf-8")
    assert [line.split(" ")[0] for line in mistakes()] == [
        "system.yaml:3:",
        "system.yaml:9:",
        "requests.yaml:5:",
        "requests.yaml:10:",
    ]


@pytest.mark.covers("C1")
@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('{"requests": [\n{"request_id": "r1",\n "workflow_id": "v"}]}', 3, "no workflow has the id 'v'"),
        ('{"requests": [\n{"request_id": "r1",,\n "workflow_id": "w"}]}', 2, "expected a key in double quotes"),
        ('{"requests": [\n{"request_id": "r1"\n "workflow_id": "w"}]}', 3, "expected ',' or '}'"),
        ('{"requests": [\n{"request_id": "r1", "request_id": "r2",\n "workflow_id": "w"}]}', 2, "written twice"),
        ('{"requests": [\n]', 2, "expected ',' or '}'"),
        ('{"requests": [\n{"a": "x\n"}]}', 2, "Invalid control character"),
        ('{"requests":\n nul}', 2, "expected a value"),
        ('{"requests": []}\n{}', 2, "text after the end of the document"),
        ("[1]", 1, "expected keys and values"),
        ("[" * 100, 1, "nested too deep"),
    ],
)
def test_a_mistake_in_json_has_its_line(text: str, line: int, says: str) -> None:
    Path("requests.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_files(Path("system.yaml"), Path("requests.json"))
    assert any(each.startswith(f"requests.json:{line}") and says in each for each in caught.value.lines)


def test_json_has_the_values_that_json_says() -> None:
    """1e1 is a number, and half characters in two escapes are one letter: YAML would read neither."""
    request = {
        "request_id": "r",
        "workflow_id": "w",
        "input_data": {"x": "\U0001f600", "n": None, "yes": [True, -1.5]},
    }
    text = json.dumps({"requests": [request]})[:-3] + ', "node_execution_times": {"a": 1e1}}]}'
    assert "\\ud83d\\ude00" in text
    Path("requests.yaml").write_text(text, encoding="utf-8")
    requests = read_files(Path("system.yaml"), Path("requests.yaml"))
    assert requests.requests[0].input_data == request["input_data"]
    assert requests.requests[0].node_execution_times_s == {"a": 10.0}


FILES = ["--config", "system.yaml", "--requests", "requests.yaml"]


@pytest.mark.covers("C1", "C2", "C13")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["baseline", "--gpus", "0", *FILES], "--gpus"),
        (["baseline", "--gpus", "two", *FILES], "--gpus"),
        (["baseline", *FILES], "--gpus"),
        (["baseline", "--gpus", "1", "--mode", "oneline", *FILES], "--mode"),
        (["baseline", "--gpus", "1", "--simulate", "maybe", *FILES], "--simulate"),
        (["baseline", "--gpus", "1", "--requests", "requests.yaml"], "system_config.yaml: no such file."),
        (
            ["baseline", "--gpus", "1", "--config", "sytem.yaml", *FILES[2:]],
            "no such file. Did you mean 'system.yaml'?",
        ),
        (
            ["simulate", "--gpus", "1", "--policy", "esay", *FILES],
            "--policy esay: no such policy. Did you mean 'easy'?",
        ),
        (["simulate", "--gpus", "1", "--policy", "fifo,fifo", *FILES], "--policy fifo: named twice."),
        (["simulate", "--gpus", "1", "--policy", "", *FILES], "no such policy"),
        (["simulate", "--gpus", "1", "--arrivals", "poisson", *FILES], "--arrivals"),
        (["simulate", "--gpus", "1", "--seed", "-1", *FILES], "--seed"),
        (["simulate", "--gpus", "1", "--log", "/", *FILES], "--log /: a folder."),
        (["simulate", "--gpus", "1", "--log", "/dev/null", *FILES], "--log /dev/null: is no file."),
        (
            ["simulate", "--gpus", "1", "--log", "nowhere/x.json", *FILES],
            "--log nowhere/x.json: no file can be written",
        ),
        (["check", "none.json"], "none.json: no such file."),
        (["check", "system.yaml"], "is no execution log"),
        (["check", "system.yaml", "--config", "system.yaml"], "--config: needs --requests too."),
    ],
)
def test_a_wrong_option_is_exit_code_2_and_nothing_is_written(words: list[str], says: str) -> None:
    said = in_process.said_by(words, code=2)
    assert says in said
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["requests.yaml", "system.yaml"]


def test_a_mean_of_tokens_without_a_rate_gives_no_time_so_a_node_takes_ten_seconds() -> None:
    Path("system.yaml").write_text(SYSTEM.replace("load_time_seconds: 6", "load_time_seconds: 6, token_mean: 50"))
    system = read_files(Path("system.yaml"), Path("requests.yaml")).system
    [model] = [each for each in system.models.values() if each.token_mean]
    assert (model_time(model).mean_s, model_time(model).source) == (10.0, "default")


@pytest.mark.parametrize(
    ("text", "value"), [("[&a [1], *a]", [[1], [1]]), ("[&a [1, 2], &b [*a, *a], &c [*b, *b]]", None)]
)
def test_aliases_inside_of_aliases_are_refused_in_a_text(text: str, value: object) -> None:
    if value is not None:
        assert value_of(text) == value
        return
    with pytest.raises(ValueError, match="nested aliases"):
        value_of(text)


@pytest.mark.covers("C2")
def test_requests_without_time_stamps_arrive_at_zero_or_not_at_all() -> None:
    text = REQUESTS.replace("    timestamp: 2024-01-01T10:00:30\n", "")
    Path("requests.yaml").write_text(text, encoding="utf-8")
    assert in_process.run(["baseline", "--gpus", "1", *FILES])[0] == 0
    code, said = in_process.run(["baseline", "--gpus", "1", "--mode", "online", *FILES])
    assert (code, said.strip()) == (
        2,
        "requests.yaml: 1 of 2 requests have no 'timestamp', the first 'r2'. Give each its time stamp, or let all"
        " arrive at zero.",
    )


@pytest.mark.covers("C2", "C4")
def test_online_time_counts_from_the_earliest_time_stamp_wherever_it_stands() -> None:
    text = REQUESTS.replace("10:00:30", "09:59:30")
    Path("requests.yaml").write_text(text, encoding="utf-8")
    requests = read_files(Path("system.yaml"), Path("requests.yaml"))
    assert [each.at_s for each in requests.requests] == [30.0, 0.0]
    assert requests.begin == "2024-01-01 09:59:30"
