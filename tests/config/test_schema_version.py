"""Schema versions of scenarios, recipes and sites: the present one is read, newer ones are refused."""

import shutil
from pathlib import Path

import pytest
import yaml
from shipped import SERVICES

from seamark.config.extends import SCHEMA_VERSION
from seamark.errors import UserError
from seamark.planning.study import Study
from seamark.storage.codec import encode

ROOT = Path(__file__).parents[2]
KINDS = ("scenarios", "services", "sites")
SCENARIO = {"scenario": "try", "repetitions": 2, "workload": {"service": "null", "concurrency": [1, 2]}}
FILES = {"scenarios": "scenarios/try.yaml", "services": "services/null.yaml", "sites": "sites/local.yaml"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "config/scenarios/try.yaml").write_text(yaml.safe_dump(SCENARIO))
    return tmp_path


def write(root: Path, kind: str, **changes: object) -> None:
    """Change keys of the file of a kind that the plan reads; None takes one away."""
    path = root / "config" / FILES[kind]
    document = yaml.safe_load(path.read_text()) | changes
    path.write_text(yaml.safe_dump({key: value for key, value in document.items() if value is not None}))


def identities(root: Path) -> list[tuple[str, str, str]]:
    trials = encode(Study.at(root, scenario="config/scenarios/try.yaml").plan)["trials"]
    return [(trial["id"], trial["trial_id"], trial["config_hash"]) for trial in trials]


@pytest.mark.covers("E-NFR07")
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_the_present_form_says_so_or_says_nothing(root: Path, kind: str) -> None:
    write(root, kind, schema_version=None)
    silent = identities(root)
    write(root, kind, schema_version=SCHEMA_VERSION)
    assert identities(root) == silent


@pytest.mark.covers("E-NFR07", "E-VAL")
@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_form_is_one_mistake_that_says_what_is_needed(root: Path, kind: str) -> None:
    write(root, kind, schema_version=SCHEMA_VERSION + 1, colour="blue")
    with pytest.raises(UserError) as refused:
        identities(root)
    [line] = refused.value.lines
    assert f"config/{FILES[kind]}:" in line
    assert "schema_version: form 2 needs a newer Seamark: this one, 0.1.0, reads forms up to 1." in line
    assert "docs/forms.md" in line


@pytest.mark.covers("E-NFR07", "E-VAL")
@pytest.mark.parametrize("wrong", ["1.0", '"1"', "0", "-1", "one", "[1]", "true", "null"])
def test_a_version_that_is_none_is_a_mistake(root: Path, wrong: str) -> None:
    path = root / "config/scenarios/try.yaml"
    path.write_text(f"schema_version: {wrong}\n{path.read_text()}")
    with pytest.raises(UserError, match=r"try\.yaml:1: schema_version: expected a number from 1 to 1, but it is"):
        identities(root)


@pytest.mark.covers("E-NFR07")
def test_every_form_has_its_row_and_every_shipped_recipe_says_its_own() -> None:
    rows = [line for line in (ROOT / "docs/forms.md").read_text().splitlines() if line[:3].strip("| ").isdigit()]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, SCHEMA_VERSION + 1))
    for path in (ROOT / f"config/services/{name}.yaml" for name in SERVICES):
        assert yaml.safe_load(path.read_text())["schema_version"] == SCHEMA_VERSION, path.name
