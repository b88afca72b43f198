"""Wrong scenarios of simulated workflows: each mistake is a line with place and remedy, and nothing is written."""

from pathlib import Path
from typing import Any

import in_process
import pytest
from shipped import SERVICES
from wrong_files import change, wrong_files

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.planning.plan import plan
from seamark_simulate.simulation.policies.table import POLICIES

ROOT = Path(__file__).parents[2]
SITE = read_site(ROOT / "config" / "sites" / "local.yaml")
SCENARIO = """\
scenario: simulated
repetitions: 1
workload:
  service: cluster
  system_file: system.yaml
  requests_file: requests.yaml
  policy: easy
  cluster_gpus: 4
"""
SYSTEM = """\
models:
  small: {memory_gb: 14, gpus_required: 1, load_time_seconds: 30, inference_time_mean: 8.5, inference_time_std: 1}
  big: {memory_gb: 60, gpus_required: 4, load_time_seconds: 120}
workflows:
  both:
    nodes:
      - {id: a, model: big}
      - {id: b, model: small}
    edges:
      - {from: a, to: b}
  one:
    nodes:
      - {id: a, model: small}
"""
REQUESTS = """\
requests:
  - request_id: r1
    workflow_id: both
    timestamp: 2024-01-01T10:00:00
  - request_id: r2
    timestamp: 2024-01-01T10:00:30
    workflow_id: one
"""
WRONG = wrong_files(Path(__file__).with_name("wrong_clusters.yaml"))
FILES = {"scenario.yaml": SCENARIO, "system.yaml": SYSTEM, "requests.yaml": REQUESTS}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")


def planned(text: str = SCENARIO) -> Any:
    Path("scenario.yaml").write_text(text, encoding="utf-8")
    return plan(read_scenario(Path("scenario.yaml"), SERVICES, SITE), SERVICES, SITE)


@pytest.mark.covers("C1", "C2", "E-VAL")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_workload_is_one_line_that_says_where_and_what(name: str) -> None:
    entry = WRONG[name]
    change(f"{entry.get('in', 'scenario')}.yaml", entry["old"], entry["new"])
    with Path("scenario.yaml").open("a", encoding="utf-8") as scenario:
        scenario.write(entry.get("scenario", ""))
    text = Path("scenario.yaml").read_text(encoding="utf-8")
    if "repetitions" in entry:
        text = text.replace("repetitions: 1", f"repetitions: {entry['repetitions']}")
    with pytest.raises(UserError) as caught:
        planned(text)
    assert caught.value.exit_code == 2
    [line] = caught.value.lines
    assert line.startswith(f"{entry.get('place', 'scenario.yaml')}:{entry['line']}:"), line
    assert entry["says"] in line


@pytest.mark.covers("C1")
def test_a_wrong_workload_ends_the_command_with_exit_code_2_and_writes_nothing() -> None:
    Path("scenario.yaml").write_text(SCENARIO.replace("easy", "esay"), encoding="utf-8")
    said = in_process.said_by(["submit", "-c", "scenario.yaml"], code=2)
    [line] = said.strip().splitlines()
    assert "Did you mean 'easy'?" in line
    assert sorted(path.name for path in Path.cwd().iterdir()) == sorted(FILES)


@pytest.mark.covers("C1", "C3", "C4")
def test_mistakes_in_all_three_files_are_reported_at_once() -> None:
    Path("system.yaml").write_text(SYSTEM.replace("memory_gb: 60", "memory_gb: -60"), encoding="utf-8")
    Path("requests.yaml").write_text(REQUESTS.replace("workflow_id: one", "workflow_id: on"), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        planned(SCENARIO.replace("easy", "esay"))
    assert [line.split(" ")[0] for line in caught.value.lines] == [
        "scenario.yaml:7:",
        "system.yaml:3:",
        "requests.yaml:7:",
    ]


@pytest.mark.covers("C1", "C6")
def test_a_level_with_too_few_gpus_may_be_excluded_where_its_requests_need_more() -> None:
    Path("small.yaml").write_text(REQUESTS.replace("both", "one"), encoding="utf-8")
    text = SCENARIO.replace("cluster_gpus: 4", "cluster_gpus: [1, 4]")
    text = text.replace("requests_file: requests.yaml", "requests_file: [requests.yaml, small.yaml]")
    with pytest.raises(UserError):
        planned(text)
    found = planned(text + "  exclude:\n    - {cluster_gpus: 1, requests_file: requests.yaml}\n")
    assert len(found.trials) == 3


@pytest.mark.covers("C14")
def test_all_trials_of_a_block_have_one_seed_and_blocks_other_ones() -> None:
    text = SCENARIO.replace("policy: easy", "policy: [easy, fifo]\n  draw: true").replace(": 4", ": [4, 8]")
    found = planned(text.replace("repetitions: 1", "repetitions: 3"))
    by_block = {block: {trial.seed for trial in found.trials if trial.block == block} for block in (1, 2, 3)}
    assert [len(seeds) for seeds in by_block.values()] == [1, 1, 1]
    assert len(set.union(*by_block.values())) == 3
    assert len({trial.config_hash for trial in found.trials}) == 12
    assert found.factors["policy"] == {"policy": ("easy", "fifo")}
    assert found.factors["deployment"] == {"cluster_gpus": (4, 8)}
    assert (found.restarts, found.factors_without_p) == ("each", ()), "a virtual clock has no start to share"


@pytest.mark.covers("C4")
def test_the_content_of_both_files_is_part_of_the_identity_and_their_place_alone_is_not_enough() -> None:
    [before] = planned().trials
    Path("requests.yaml").write_text(REQUESTS.replace("10:00:30", "10:00:31"), encoding="utf-8")
    [after] = planned().trials
    assert before.id == after.id
    assert before.config_hash != after.config_hash
    Path("requests.yaml").write_text(REQUESTS, encoding="utf-8")
    Path("system.yaml").write_text(SYSTEM.replace("memory_gb: 14", "memory_gb: 15"), encoding="utf-8")
    [other] = planned().trials
    assert other.config_hash not in (before.config_hash, after.config_hash)


def test_the_recipe_knows_every_policy() -> None:
    setting = SERVICES["cluster"].setting("policy")
    assert setting is not None
    assert setting.allowed == tuple(POLICIES)
    assert setting.role == "policy"


def test_a_condition_on_another_setting_rules_combinations_of_files_out() -> None:
    text = SCENARIO.replace("cluster_gpus: 4", "cluster_gpus: [2, 4]").replace("policy: easy", "policy: [easy, fifo]")
    with pytest.raises(UserError, match="big"):
        planned(text)
    with pytest.raises(UserError, match="big"):
        planned(text + '  where: cluster_gpus > 2 or policy == "easy"\n')
    assert len(planned(text + "  where: cluster_gpus > 2\n").trials) == 2
