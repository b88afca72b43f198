"""Several services under one load: planned in the same blocks, with the same draws, and compared with each other."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from shipped import SERVICES

from seamark.analysis.comparison.contrasts import contrasts_of
from seamark.config.read import read_scenario
from seamark.errors import UserError
from seamark.model.site import Site
from seamark.model.trial import Plan, levels_of
from seamark.planning.plan import plan

HERE = Site(name="here", summary="no batch system")
STORES = {
    "service": ["faiss", "milvus"],
    "vectors": 5000,
    "concurrency": [1, 4],
    "duration_s": 3,
    "per_service": {"faiss": {"index": "flat"}, "milvus": {"index": "hnsw", "consistency": "strong"}},
}


def planned(folder: Path, workload: dict[str, Any], **more: Any) -> Plan:
    path = folder / "stores.yaml"
    path.write_text(yaml.safe_dump({"scenario": "stores", "repetitions": 3, "workload": workload} | more))
    return plan(read_scenario(path, SERVICES, HERE), SERVICES, HERE)


@pytest.mark.covers("E-FR29")
def test_services_of_one_workload_are_levels_in_the_same_blocks_with_the_same_draws(tmp_path: Path) -> None:
    made = planned(tmp_path, STORES, compare={"family": ["service"], "baseline": {"service": "milvus"}})
    assert made.factors["deployment"]["service"] == ("faiss", "milvus")
    assert {trial.group for trial in made.trials} == {"faiss-milvus"}
    assert {(levels["service"], levels["concurrency"]) for levels in levels_of(made).values()} == {
        (service, concurrency) for service in ("faiss", "milvus") for concurrency in (1, 4)
    }
    assert set(levels_of(made)[made.trials[0].treatment]) == {"service", "concurrency"}
    draws: dict[object, dict[str, int]] = {}
    for trial in made.trials:
        at = draws.setdefault((trial.settings["concurrency"], trial.repetition), {})
        at[trial.service] = trial.seed
    assert all(seeds["faiss"] == seeds["milvus"] for seeds in draws.values())
    assert len({seeds["faiss"] for seeds in draws.values()}) == 6
    own = {trial.service: trial.settings["index"] for trial in made.trials}
    assert own == {"faiss": "flat", "milvus": "hnsw"}
    assert made.restarts == "each"
    blocks = [start.block for start in made.deployments]
    assert blocks == sorted(blocks, key=lambda block: block or 0)
    assert [{start.service for start in made.deployments if start.block == block} for block in (1, 2, 3)] == [
        {"faiss", "milvus"}
    ] * 3


@pytest.mark.covers("E-FR29")
def test_each_service_is_compared_with_the_baseline_at_each_level_of_the_load(tmp_path: Path) -> None:
    made = planned(tmp_path, STORES, compare={"family": ["service"]})
    of_service = [one for one in contrasts_of(made, {}) if one.factor == "service"]
    assert [(one.base_level, one.new_level, one.fixed) for one in of_service] == [
        ("faiss", "milvus", {"concurrency": 1}),
        ("faiss", "milvus", {"concurrency": 4}),
    ]
    [first, _] = [one for one in contrasts_of(made, {"service": "milvus"}) if one.factor == "service"]
    assert (first.base_level, first.new_level) == ("milvus", "faiss")


@pytest.mark.covers("E-FR29", "E-VAL")
@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"service": ["faiss"]}, "workload.service"),
        ({"service": ["faiss", "faiss"]}, "workload.service"),
        ({"service": ["faiss", "milvos"], "per_service": {}}, "workload.service[1]"),
        ({"service": ["faiss", "postgres"], "per_service": {}, "vectors": None}, "workload.service"),
        ({"per_service": {"weaviate": {"index": "hnsw"}}}, "workload.per_service.weaviate"),
        ({"per_service": {"faiss": {"indx": "hnsw"}}}, "workload.per_service.faiss.indx"),
        ({"per_service": {"faiss": {"name": "hnsw"}}}, "workload.per_service.faiss.name"),
        ({"consistency": "strong", "per_service": {}}, "workload.consistency"),
        ({"service": "faiss"}, "workload.per_service"),
        ({"per_service": {"milvus": {"concurrency": 8}}}, "workload.per_service.milvus.concurrency"),
        ({"per_service": {"faiss": {"index": ["flat", "hnsw"]}}}, "workload.per_service.faiss.index"),
    ],
)
def test_what_cannot_be_compared_is_one_mistake_with_its_place(
    changes: dict[str, Any], path: str, tmp_path: Path
) -> None:
    workload = {key: value for key, value in (STORES | changes).items() if value is not None}
    with pytest.raises(UserError) as caught:
        planned(tmp_path, workload)
    assert [mistake.path for mistake in caught.value.mistakes] == [path], caught.value.lines


def test_two_workloads_of_one_name_are_refused_as_before(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    two = [{"service": "faiss", "name": "a"}, {"service": "milvus", "name": "a"}]
    path.write_text(yaml.safe_dump({"scenario": "two", "workloads": two}))
    with pytest.raises(UserError) as caught:
        read_scenario(path, SERVICES, HERE)
    assert [mistake.path for mistake in caught.value.mistakes] == ["workloads[1].name"]


def test_an_unknown_key_beside_a_list_is_told_for_each_service(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        planned(tmp_path, STORES | {"concurency": 4})
    assert {(mistake.path, mistake.code) for mistake in caught.value.mistakes} == {
        ("workload.concurency", "unknown_key")
    }


def test_two_lists_are_compared_apart_and_workloads_of_one_name_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    stores = {"service": ["faiss", "milvus"], "name": "x"}
    files = {"service": ["s3", "fileio"], "name": "y"}
    path.write_text(yaml.safe_dump({"scenario": "two", "workloads": [stores, files]}))
    made = plan(read_scenario(path, SERVICES, HERE), SERVICES, HERE)
    assert made.factors["deployment"]["service"] == ("faiss", "milvus", "s3", "fileio")
    pairs = {
        (one.workload, one.base_level, one.new_level) for one in contrasts_of(made, {}) if one.factor == "service"
    }
    assert pairs == {("x", "faiss", "milvus"), ("y", "s3", "fileio")}
    alike = [{"service": "s3", "name": "faiss"}, {"service": "faiss"}]
    path.write_text(yaml.safe_dump({"scenario": "two", "workloads": alike}))
    apart = plan(read_scenario(path, SERVICES, HERE), SERVICES, HERE)
    assert "service" not in apart.factors["deployment"]
    assert len({trial.seed for trial in apart.trials}) == len(apart.trials)
