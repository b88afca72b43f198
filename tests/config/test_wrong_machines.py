"""Machine files: each mistake is a line with place and remedy, in commands and in scenarios; nothing is written."""

import json
import re
from pathlib import Path
from typing import Any

import in_process
import pytest
from shipped import SERVICES
from wrong_files import change, wrong_files

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.planning.plan import plan
from seamark_simulate.config.machine_files import read_machine

ROOT = Path(__file__).parents[2]
SITE = read_site(ROOT / "config" / "sites" / "local.yaml")
MACHINE = """\
# two hosts
gpu_kinds:
  old: {memory_gb: 40}
  new: {memory_gb: 80, speed: 2}
hosts:
  - {name: a, kind: old, gpus: 2, network_gb_per_s: 25}
  - {name: b, kind: new, gpus: 3, network_gb_per_s: 25}
windows: any
several_models: true
preemption: resumed
failures: {mtbf_s: 86400, repair_s: 600}
changes:
  - {at_s: 60, remove: [3, 4]}
  - {at_s: 90.5, add: [3, 4]}
"""
SYSTEM = """\
models:
  llm: {memory_gb: 14, gpus_required: 1, load_time_seconds: 30, inference_time_mean: 8.5}
  big: {memory_gb: 60, gpus_required: 3, load_time_seconds: 120}
workflows:
  w:
    nodes:
      - {id: a, model: llm}
      - {id: b, model: big}
    edges:
      - {from: a, to: b, bytes: 1000000}
"""
REQUESTS = """\
requests:
  - {request_id: r1, workflow_id: w}
"""
SCENARIO = """\
scenario: simulated
repetitions: 1
workload:
  service: cluster
  system_file: system.yaml
  requests_file: requests.yaml
  machine: machine.yaml
"""
FILES = {"machine.yaml": MACHINE, "system.yaml": SYSTEM, "requests.yaml": REQUESTS, "scenario.yaml": SCENARIO}
WRONG = wrong_files(Path(__file__).with_name("wrong_machines.yaml"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")


def planned() -> Any:
    return plan(read_scenario(Path("scenario.yaml"), SERVICES, SITE), SERVICES, SITE)


def wrong_plan() -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        planned()
    return caught.value.lines


def test_the_right_file_is_read_and_its_hosts_have_their_kinds() -> None:
    machine = read_machine(Path("machine.yaml"))
    layout = machine.layout
    assert layout is not None
    assert (machine.gpus, layout.host_of, layout.windows) == (5, (0, 0, 1, 1, 1), "any")
    assert [(host.kind.name, host.kind.memory_gb, host.kind.speed) for host in layout.hosts] == [
        ("old", 40.0, 1.0),
        ("new", 80.0, 2.0),
    ]
    assert [(each.at_s, each.remove, each.add) for each in layout.changes] == [(60, (3, 4), ()), (90.5, (), (3, 4))]
    assert len(planned().trials) == 1


def test_a_host_with_a_count_is_that_many_hosts() -> None:
    change("machine.yaml", "gpus: 3", "gpus: 3, count: 2")
    layout = read_machine(Path("machine.yaml")).layout
    assert layout is not None
    assert [host.name for host in layout.hosts] == ["a", "b-1", "b-2"]
    assert layout.host_of == (0, 0, 1, 1, 1, 2, 2, 2)


def test_the_shipped_machine_is_read() -> None:
    layout = read_machine(ROOT / "config" / "clusters" / "machine_two_hosts.yaml").layout
    assert layout is not None
    assert [host.gpus for host in layout.hosts] == [4, 4]


@pytest.mark.covers("C1", "E-VAL")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_machine_file_is_one_line_that_says_where_and_what(name: str) -> None:
    entry = WRONG[name]
    change("machine.yaml", entry["old"], entry["new"])
    with pytest.raises(UserError) as caught:
        read_machine(Path("machine.yaml"))
    assert caught.value.exit_code == 2
    line, *more = caught.value.lines
    assert line.startswith(f"machine.yaml:{entry['line']}:"), line
    assert entry["says"] in line
    assert bool(more) == entry.get("more", False), more


@pytest.mark.covers("C1")
def test_all_mistakes_of_a_machine_are_reported_at_once_and_a_scenario_says_them_too() -> None:
    change("machine.yaml", "speed: 2", "speed: 0")
    change("machine.yaml", "mtbf_s: 86400", "mtbf_s: -1")
    with pytest.raises(UserError) as caught:
        read_machine(Path("machine.yaml"))
    assert [line.split(" ")[0] for line in caught.value.lines] == ["machine.yaml:4:", "machine.yaml:11:"]
    assert wrong_plan() == caught.value.lines


@pytest.mark.covers("C1")
@pytest.mark.parametrize(
    ("name", "old", "new", "line", "says"),
    [
        ("scenario.yaml", "machine.yaml", "mashine.yaml", 7, "no such file: mashine.yaml"),
        ("scenario.yaml", "  machine", "  cluster_gpus: 4\n  machine", 7, "machine and cluster_gpus are both set."),
        ("system.yaml", "gpus_required: 3", "gpus_required: 4", 7, "needs 4 GPUs of 60 GB or more on one host"),
        ("system.yaml", "memory_gb: 60", "memory_gb: 90", 7, "the model 'big' needs 3 GPUs of 90 GB or more"),
        ("machine.yaml", "speed: 2", "speeds: {lllm: 2}", None, "no model has the id 'lllm'. Did you mean 'llm'?"),
        ("machine.yaml", "speed: 2", "speeds: {other: 2}", None, "no model has the id 'other'. Known: "),
        ("system.yaml", "bytes: 1000000", "bytes: -1", None, "-1 is too small. Give 0 or more."),
        ("system.yaml", "bytes: 1000000", "bytes: 1.5", None, "expected a whole number, but it is 1.5."),
    ],
)
def test_a_scenario_whose_files_do_not_fit_its_machine_is_one_line(
    name: str, old: str, new: str, line: int | None, says: str
) -> None:
    change(name, old, new)
    [text] = wrong_plan()
    assert says in text
    assert line is None or text.startswith(f"scenario.yaml:{line}:"), text


def test_repetitions_differ_where_gpus_fail_and_the_content_of_the_file_is_part_of_the_identity() -> None:
    change("scenario.yaml", "repetitions: 1", "repetitions: 2")
    first, second = planned().trials
    assert first.seed != second.seed
    change("machine.yaml", "speed: 2", "speed: 3")
    assert planned().trials[0].id == first.id
    assert planned().trials[0].config_hash != first.config_hash
    change("machine.yaml", "failures: {mtbf_s: 86400, repair_s: 600}\n", "")
    [text] = wrong_plan()
    assert "all 2 repetitions would be the same" in text


@pytest.mark.covers("C1")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--machine", "machine.yaml", "--gpus", "4"], "--gpus and --machine are both given."),
        ([], "--gpus and --machine are both missing."),
        (["--machine", "machines.yaml"], "machines.yaml: no such file"),
        (["--machine", "small.yaml"], "machine: the model 'big' needs 3 GPUs of 60 GB or more on one host"),
        (["--machine", "slow.yaml"], "no model has the id 'biig'. Did you mean 'big'?"),
    ],
)
def test_a_wrong_machine_ends_the_command_with_exit_code_2_and_writes_nothing(words: list[str], says: str) -> None:
    Path("small.yaml").write_text(MACHINE.replace("memory_gb: 80", "memory_gb: 50"), encoding="utf-8")
    Path("slow.yaml").write_text(MACHINE.replace("speed: 2", "speeds: {biig: 2}"), encoding="utf-8")
    before = sorted(path.name for path in Path.cwd().iterdir())
    said = in_process.said_by(["simulate", *words, "--config", "system.yaml", "--requests", "requests.yaml"], code=2)
    [line] = said.strip().splitlines()
    assert says in line
    assert sorted(path.name for path in Path.cwd().iterdir()) == before


def test_the_command_runs_a_machine_and_its_log_passes_the_checker() -> None:
    files = ["--config", "system.yaml", "--requests", "requests.yaml"]
    said = in_process.said_by(["simulate", "--machine", "machine.yaml", *files])
    assert "Failed node b of request r1 on GPU(s) [2, 3, 4] (gpu_removed)" in said
    assert "Data between GPUs: 0.00s" in said, "a megabyte over the network of 25 GB/s"
    assert in_process.run(["check", "execution_log.json", *files]) == (0, "PASS: 3 executions without conflicts\n")


def test_check_shows_ten_of_many_mistakes_and_counts_the_others() -> None:
    row = {"node_id": "n", "gpu_id": 0, "start_time": 0.0, "end_time": 5.0}
    Path("log.json").write_text(json.dumps({"executions": [row | {"request_id": f"r{i}"} for i in range(60)]}))
    code, said = in_process.run(["check", "log.json"])
    *shown, more, verdict = said.splitlines()
    assert (code, len(shown)) == (1, 10)
    found = [int(word.replace(",", "")) for word in re.findall(r"\d[\d,]*", verdict)]
    assert int(re.search(r"\d[\d,]*", more)[0].replace(",", "")) == sum(found) - 10  # type: ignore[index]
