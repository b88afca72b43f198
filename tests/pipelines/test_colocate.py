"""What the options of bench colocate make of a file: the scenario, and what is said of it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from seamark.cli.main import cli
from seamark.errors import UserError

PIPELINE = """\
  - name: {name}
    inputs: [0]
    outputs: [0]
    loadgen: {{component: loadgen.OfflineLoadScheduler, config: {{rate: 3}}}}
    stages: [{{name: only, id: 0, component: stages.Stage}}]
"""


def shown(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[dict[str, Any], str]:
    """Return the scenario that `bench colocate -n` shows of three pipelines, and what it says beside."""
    monkeypatch.chdir(folder)
    pipelines = "".join(PIPELINE.format(name=name) for name in ("one", "two", "three"))
    (folder / "own.yml").write_text(f"name: Own three\npipelines:\n{pipelines}")
    done = CliRunner().invoke(cli, ["colocate", "own.yml", "-n", *words])
    assert done.exit_code == 0, done.output
    assert not (folder / ".seamark").exists()
    return yaml.safe_load(done.stdout[done.stdout.index("# .seamark") :]), done.stderr


@pytest.mark.covers("A2", "A3")
@pytest.mark.parametrize(
    ("words", "sets"),
    [
        ((), ["all"]),
        (("--alone",), ["alone", "all"]),
        (("--pairs",), ["pairs", "all"]),
        (("--alone", "--pairs"), ["alone", "pairs", "all"]),
    ],
)
def test_all_pipelines_are_one_set_and_options_add_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sets: list[str]
) -> None:
    scenario, _ = shown(tmp_path, monkeypatch, *words)
    assert scenario["scenario"] == "own_three"
    assert scenario["workload"]["sets"] == sets
    loads = scenario["workload"]["parties"]
    assert [load["pipeline"] for load in loads.values()] == list(loads) == ["one", "two", "three"]
    assert not any("serialize_queries" in load for load in loads.values())


@pytest.mark.covers("A2", "A9")
def test_a_number_takes_one_pipeline_and_a_label_names_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, said = shown(tmp_path, monkeypatch, "-p", "1", "--label", "My run (2)", "-e", "42")
    assert scenario["scenario"] == "my_run_2"
    assert scenario["workload"] == {"service": "pipeline", "graph": "own.yml", "pipeline": "two"}
    assert "-e" in said
    _, unsaid = shown(tmp_path, monkeypatch)
    assert "-e" not in unsaid
    refused = CliRunner().invoke(cli, ["colocate", "own.yml", "-p", "3"]).exception
    assert isinstance(refused, UserError)
    assert refused.mistakes[0].path == "-p"


@pytest.mark.covers("A9")
@pytest.mark.parametrize(("word", "value"), [("true", True), ("false", False)])
def test_serialize_is_said_to_each_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, value: bool
) -> None:
    scenario, _ = shown(tmp_path, monkeypatch, "--serialize", word)
    assert [load["serialize_queries"] for load in scenario["workload"]["parties"].values()] == [value] * 3
