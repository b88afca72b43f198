"""The published JSON Schemas: they are what the model says, they take what is shipped, they refuse what is wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from shipped import SCENARIOS, SERVICES, SITES

from seamark.config.json_schema import as_text, main, schemas

ROOT = Path(__file__).parents[2]
KINDS = ("scenario", "service", "site")
GENERATED = schemas(SERVICES)
RECIPES = [ROOT / "config" / "services" / f"{name}.yaml" for name in SERVICES]
SHIPPED = [(kind, path) for kind, paths in zip(KINDS, (SCENARIOS, RECIPES, SITES), strict=True) for path in paths]


def validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(GENERATED[f"{kind}.schema.json"])


@pytest.mark.covers("E-INT01", "E-SVR05")
@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_schema_is_the_generated_one(kind: str) -> None:
    name = f"{kind}.schema.json"
    committed = (ROOT / "workflow" / "schemas" / name).read_text(encoding="utf-8")
    assert committed == as_text(GENERATED[name]), "run: python -m seamark.config.json_schema"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_valid_itself(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(GENERATED[f"{kind}.schema.json"])


@pytest.mark.covers("E-INT01", "E-CFG", "E-EX")
@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda value: getattr(value, "stem", value))
def test_every_shipped_file_follows_its_schema(kind: str, path: Path) -> None:
    assert list(validator(kind).iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"repetition": 3},
        {"repetitions": 0},
        {"repetitions": "3"},
        {"resources": {"mem_gb": 0}},
        {"resources": {"gpu": 1}},
        {"artifacts": {"container": "x.img"}},
        {"workload": {"service": "foo"}},
        {"workload": {"service": "fileio", "acess": "random"}},
        {"workload": {"service": "fileio", "access": "randon"}},
        {"workload": {"service": "fileio", "concurrency": [1, 1]}},
        {"workload": {"service": "fileio", "concurrency": []}},
        {"workload": {"service": "fileio", "concurrency": "4"}},
        {"workload": {"service": "fileio", "component": "inference"}},
        {"workload": {"service": "s3", "block_bytes": 4096}},
        {"workloads": [{"service": "s3"}]},
        {"binds": ["/data"]},
        {"metadata": {"seed": -1}},
    ],
    ids=str,
)
def test_a_wrong_scenario_is_refused_by_the_schema_too(change: dict[str, Any]) -> None:
    right = {"scenario": "a", "workload": {"service": "fileio"}}
    assert validator("scenario").is_valid(right)
    assert not validator("scenario").is_valid(right | change)


PARTIES = {
    "scenario": "co",
    "workload": {
        "name": "corun",
        "duration_s": 10,
        "warmup_s": 2,
        "placement": ["shared", "split", "my_placements:apart"],
        "gpu_sharing": ["exclusive", {"mps": {"threads": 50}}, {"mig": "3g.20gb"}],
        "keep_busy": False,
        "sets": [["search"], "ingest", ["search", "ingest"]],
        "parties": {
            "search": {
                "service": "known",
                "pattern": "poisson",
                "rate_rps": [20, 40],
                "ttft_ms": 2,
                "gpus": 0,
                "slos": ["latency_p99_s <= 0.1"],
            },
            "ingest": {"service": "null", "external": {"address": "127.0.0.1:1", "ports": {"main": 2}}},
            "store": {"service": "postgres", "container": "x.sif"},
        },
    },
}


def test_a_scenario_with_parties_follows_its_schema() -> None:
    assert list(validator("scenario").iter_errors(PARTIES)) == []
    several = {"scenario": "co", "workloads": [PARTIES["workload"], {"service": "null"}]}
    assert list(validator("scenario").iter_errors(several)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"parties": {"search": {"service": "known"}}},
        {"parties": [{"service": "known"}, {"service": "null"}]},
        {"parties": {"search": {"service": "known"}, "ingest": {"concurrency": 2}}},
        {"parties": {"search": {"service": "known"}, "ingest": {"service": "nul"}}},
        {"parties": {"search": {"service": "known"}, "2nd": {"service": "null"}}},
        {"parties": {"search": {"service": "known"}, "ingest": {"service": "null", "ttft_ms": 1}}},
        {"parties": {"search": {"service": "known"}, "ingest": {"service": "null", "gpus": -1}}},
        {"parties": {"search": {"service": "known"}, "ingest": {"service": "null", "external": {}}}},
        {"parties": {"search": {"service": "known"}, "ingest": {"service": "null", "container": "x.img"}}},
        {"parties": {"search": {"service": "known"}, "ingest": {"service": "null", "where": "concurrency > 1"}}},
        {"parties": {"search": {"service": "known"}, "ingest": {"service": "null", "placement": "split"}}},
        {"sets": "search"},
        {"sets": []},
        {"sets": [[]]},
        {"sets": [["search", "search"]]},
        {"placement": "splt"},
        {"placement": []},
        {"gpu_sharing": "exclusiv"},
        {"gpu_sharing": {"mps": {"threads": 0}}},
        {"gpu_sharing": {"mps": {"threads": 50}, "mig": "3g.20gb"}},
        {"keep_busy": "no"},
        {"service": "known"},
        {"ttft_ms": 2},
        {"duration_s": "long"},
        {"slos": ["latency_p99_s <= 0.1"]},
    ],
    ids=str,
)
def test_wrong_parties_are_refused_by_the_schema_too(change: dict[str, Any]) -> None:
    workload: dict[str, Any] = PARTIES["workload"]  # type: ignore[assignment]
    assert not validator("scenario").is_valid(PARTIES | {"workload": workload | change})


def test_the_command_writes_the_same_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    for recipe in RECIPES:
        shutil.copy(recipe, tmp_path / "recipes")
    assert main([str(tmp_path / "recipes"), str(tmp_path / "schemas")]) == 0
    for name, schema in GENERATED.items():
        assert json.loads((tmp_path / "schemas" / name).read_text(encoding="utf-8")) == schema
