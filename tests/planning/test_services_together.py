"""Several services under one load: planned in the same blocks, with the same draws, and compared with each other."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from shipped import SERVICES

from seamark.analysis.comparison.compared import Question, compared
from seamark.analysis.comparison.contrasts import contrasts_of, family_of
from seamark.config.read import read_scenario
from seamark.errors import UserError
from seamark.model.scenario import Comparing
from seamark.model.site import Site
from seamark.model.trial import Plan, levels_of
from seamark.planning.plan import plan
from seamark.storage.codec import decode, encode

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


OWN_LEVELS = STORES | {"per_service": {"faiss": {"index": ["flat", "ivf"]}, "milvus": {"index": "hnsw"}}}


def pairs_of(made: Plan, factor: str, **baseline: str) -> set[tuple[object, ...]]:
    """Return the contrasts of one factor: both levels with what each service alone was given, and what is fixed."""
    return {
        (one.base_level, *one.base_own.values(), one.new_level, *one.new_own.values(), *one.fixed.values())
        for one in contrasts_of(made, baseline)
        if one.factor == factor
    }


@pytest.mark.covers("E-FR29")
def test_levels_of_one_service_alone_multiply_its_trials_and_no_other_trial_changes(tmp_path: Path) -> None:
    before, made = planned(tmp_path, STORES), planned(tmp_path, OWN_LEVELS)
    counts = Counter((trial.service, trial.settings["index"], trial.settings["concurrency"]) for trial in made.trials)
    assert counts == {
        (*served, users): 3
        for served in (("faiss", "flat"), ("faiss", "ivf"), ("milvus", "hnsw"))
        for users in (1, 4)
    }
    flat = {trial.id: trial for trial in before.trials if trial.service == "faiss"}
    again = {trial.id: trial for trial in made.trials if trial.settings["index"] == "flat"}
    assert flat.keys() == again.keys()
    assert [trial.config_hash for trial in flat.values()] == [again[name].config_hash for name in flat]
    seeds: dict[object, set[int]] = {}
    for trial in made.trials:
        seeds.setdefault((trial.settings["concurrency"], trial.repetition), set()).add(trial.seed)
    assert [len(drawn) for drawn in seeds.values()] == [1] * 6
    assert made.factors["deployment"] == {"service": ("faiss", "milvus"), "index": ("flat", "ivf")}
    assert {(start.service, start.settings["index"]) for start in made.deployments if start.block in (None, 2)} == {
        ("faiss", "flat"),
        ("faiss", "ivf"),
        ("milvus", "hnsw"),
    }
    assert decode(encode(made), Plan) == made


@pytest.mark.covers("E-FR29")
def test_a_service_with_own_levels_is_compared_with_itself_and_at_one_of_them_with_the_others(tmp_path: Path) -> None:
    made = planned(tmp_path, OWN_LEVELS, compare={"family": ["service", "index"]})
    assert pairs_of(made, "service") == {("faiss", "flat", "milvus", "hnsw", users) for users in (1, 4)}
    assert pairs_of(made, "index") == {("flat", "ivf", "faiss", users) for users in (1, 4)}
    assert family_of(contrasts_of(made, {}), made) == 4
    assert pairs_of(made, "service", index="ivf") == {("faiss", "ivf", "milvus", "hnsw", users) for users in (1, 4)}
    assert pairs_of(made, "index", index="ivf") == {("ivf", "flat", "faiss", users) for users in (1, 4)}
    assert pairs_of(made, "service", service="milvus") == {
        ("milvus", "hnsw", "faiss", index, users) for index in ("flat", "ivf") for users in (1, 4)
    }
    assert pairs_of(made, "concurrency") == {
        (1, 4, *served) for served in (("faiss", "flat"), ("faiss", "ivf"), ("milvus", "hnsw"))
    }
    question = Question(contrasts=contrasts_of(made, {}), comparing=Comparing(family=("service",)))
    [(base, new)] = {
        (repr(one.base.own), repr(one.new.own)) for one in compared(question, {}).comparisons if one.in_family
    }
    assert (base, new) == ("{'index': 'flat'}", "{'index': 'hnsw'}")


@pytest.mark.covers("E-FR29")
def test_two_services_with_levels_of_their_own_have_a_baseline_each(tmp_path: Path) -> None:
    both = {"faiss": {"index": ["flat", "ivf"]}, "milvus": {"index": ["ivf", "hnsw"]}}
    made = planned(tmp_path, STORES | {"concurrency": 1, "per_service": both})
    assert pairs_of(made, "service") == {("faiss", "flat", "milvus", index) for index in ("ivf", "hnsw")}
    assert pairs_of(made, "index") == {("flat", "ivf", "faiss"), ("ivf", "hnsw", "milvus")}


@pytest.mark.covers("E-FR29")
def test_inclusions_and_exclusions_may_be_of_one_service(tmp_path: Path) -> None:
    lists = {
        "include": [{"service": "milvus", "index": "flat", "concurrency": 4}, {"concurrency": 16}],
        "exclude": [{"service": "faiss", "index": "ivf", "concurrency": 4}],
    }
    made = planned(tmp_path, OWN_LEVELS | lists)
    assert {(trial.service, trial.settings["index"], trial.settings["concurrency"]) for trial in made.trials} == {
        *(("faiss", "flat", users) for users in (1, 4, 16)),
        ("faiss", "ivf", 1),
        *(("milvus", "hnsw", users) for users in (1, 4, 16)),
        ("milvus", "flat", 4),
    }
    assert pairs_of(made, "index") == {("flat", "ivf", "faiss", 1), ("hnsw", "flat", "milvus", 4)}
    assert ("faiss", "flat", "milvus", "flat", 4) in pairs_of(made, "service")


@pytest.mark.covers("E-FR29", "E-VAL")
@pytest.mark.parametrize(
    ("changes", "path", "code", "line"),
    [
        ({"per_service": {"faiss": {"nlist": [64, 128]}}}, "per_service.faiss.nlist", "unknown_key", "nlist:"),
        ({"per_service": {"faiss": {"index": ["flat", "x"]}}}, "per_service.faiss.index[1]", "not_a_choice", "- x"),
        ({"per_service": {"faiss": {"index": []}}}, "per_service.faiss.index", "no_value", "index: []"),
        ({"exclude": [{"service": "milvos", "k": 1}]}, "exclude[0].service", "unknown_name", "service: milvos"),
        ({"include": [{"service": "s3", "concurrency": 8}]}, "include[0].service", "unknown_name", "service: s3"),
        ({"exclude": [{"service": "milvus"}]}, "exclude[0]", "no_value", "- service: milvus"),
        ({"exclude": [{"service": "faiss", "index": "hnsw"}]}, "exclude[0].index", "invalid", "- index: hnsw"),
        ({"exclude": [{"concurrency": 2}]}, "exclude[0].concurrency", "invalid", "- concurrency: 2"),
        ({"exclude": [{"index": "flat"}]}, "exclude[0].index", "missing", "- index: flat"),
        ({"include": [{"consistency": "strong"}]}, "include[0].consistency", "missing", "- consistency: strong"),
        (
            {"include": [{"service": "faiss", "consistency": "strong"}]},
            "include[0].consistency",
            "unknown_key",
            "- consistency: strong",
        ),
    ],
)
def test_a_wrong_level_or_entry_of_one_service_is_one_mistake_in_its_line(
    changes: dict[str, Any], path: str, code: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        planned(tmp_path, OWN_LEVELS | changes)
    [mistake] = caught.value.mistakes
    lines = (tmp_path / "stores.yaml").read_text(encoding="utf-8").splitlines()
    assert (mistake.path, mistake.code) == (f"workload.{path}", code), caught.value.lines
    assert lines[(mistake.line or 0) - 1].strip() == line


def test_what_a_service_alone_is_given_at_one_level_is_no_factor_to_compare(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        planned(tmp_path, STORES, compare={"family": ["index"]})
    assert [mistake.path for mistake in caught.value.mistakes] == ["compare.family[0]"]


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
