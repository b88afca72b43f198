"""A recipe whose driver would fail every trial is refused before the first one, with the remedy."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from shipped import SERVICES

from seamark.cli.main import cli
from seamark.errors import UserError
from seamark.planning.study import Study

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "config" / "services"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study with its own copy of the recipe of the null service, and a folder on the path for drivers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "drivers")
    (tmp_path / "drivers").mkdir()
    (tmp_path / "config" / "services").mkdir(parents=True)
    shutil.copy(RECIPES / "null.yaml", tmp_path / "config" / "services")
    (tmp_path / "try.yaml").write_text('scenario: try\nworkload: {service: "null"}\n')
    return tmp_path


def with_recipe(study: Path, **changes: object) -> None:
    path = study / "config" / "services" / "null.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))


def mistake(study: Path) -> str:
    with pytest.raises(UserError) as caught:
        Study.at(study, scenario="try.yaml").require_drivers()
    [line] = caught.value.lines
    assert line.startswith("config/services/null.yaml: driver: ")
    return line


@pytest.mark.covers("E-VAL", "E-SVR05")
@pytest.mark.parametrize(
    ("driver", "says"),
    [
        ("seamark.drivers.nul:Null", "there is no module 'seamark.drivers.nul'"),
        ("no_such_package.driver:Null", "there is no module 'no_such_package.driver'"),
        ("seamark.drivers.null:Nul", "has no 'Nul'. Did you mean 'Null'?"),
        ("broken:Driver", "SyntaxError"),
        ("lacking:Driver", "needs the module 'no_such_library'"),
        ("ending:Driver", "SystemExit: 3"),
        (
            "seamark.drivers.fileio:FileIo",
            "reads the setting 'operation', which the recipe does not have. Add it under",
        ),
    ],
)
def test_a_driver_that_would_fail_every_trial_is_refused_before_the_first(
    study: Path, driver: str, says: str
) -> None:
    (study / "drivers" / "broken.py").write_text("class Driver(:\n")
    (study / "drivers" / "lacking.py").write_text("import no_such_library\n")
    (study / "drivers" / "ending.py").write_text("raise SystemExit(3)\n")
    with_recipe(study, driver=driver)
    assert says in mistake(study)


def test_plan_refuses_such_a_driver_and_writes_nothing(study: Path) -> None:
    with_recipe(study, driver="seamark.drivers.nul:Null")
    done = CliRunner().invoke(cli, ["plan", "-c", "try.yaml"])
    assert isinstance(done.exception, UserError)
    assert not (study / "results").exists()


def test_a_library_that_only_the_services_environment_has_is_not_missed_but_a_wrong_name_is(study: Path) -> None:
    (study / "drivers" / "vendors.py").write_text("import no_such_library\nclass Driver: ...\n")
    with_recipe(study, driver="vendors:Driver", environment="vendor")
    Study.at(study, scenario="try.yaml").require_drivers()
    with_recipe(study, driver="vendors:Drivers", environment="vendor")
    assert "has no 'Drivers'. Did you mean 'Driver'?" in mistake(study)
    with_recipe(study, driver="only_in_the_environment.driver:Driver", environment="vendor")
    Study.at(study, scenario="try.yaml").require_drivers()


NEEDED: Mapping[str, Mapping[str, object]] = {
    "vllm_questions": {"task": "mock_benchmark"},
    "attention": {"model": "known_reader", "task": "mock_benchmark"},
    "attention_cuda": {"model": "known_reader", "task": "mock_benchmark"},
    "command": {"command": {"argv": ["true"]}},
    "pipeline": {"graph": str(RECIPES.parents[1] / "pipeline_configs" / "scripted.yml"), "pipeline": "Training"},
    "pipeline_models": {"graph": str(RECIPES.parents[1] / "pipeline_configs" / "self_rag.yml")},
    "http": {"command": "python3 server.py --port {ports[main]}"},
    "cluster": {"system_file": str(RECIPES.parent / "clusters" / "system_config.yaml"), "generated_requests": 5},
    "fitted": {"model_file": str(RECIPES.parent / "models" / "example.yaml"), "model": "mm1", "rate_rps": 20},
}
"""Settings without a default."""


@pytest.mark.parametrize("name", SERVICES)
def test_the_drivers_of_shipped_recipes_are_found(name: str, tmp_path: Path) -> None:
    server = SERVICES[name].server
    resources = {"nodes": server.fewest_nodes, "gpus": server.fewest_gpus} if server else {}
    needed = NEEDED.get(name, {})
    scenario = {"scenario": "try", "resources": resources, "workload": {"service": name, **needed}}
    (tmp_path / "try.yaml").write_text(yaml.safe_dump(scenario))
    before = set(sys.modules)
    Study.at(tmp_path, scenario="try.yaml").require_drivers()
    assert not {"torch", "faiss", "psycopg2", "boto3"} & (set(sys.modules) - before)
