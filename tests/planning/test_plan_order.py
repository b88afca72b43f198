"""An order of a plan: which factors it can unroll, waves, what waits for what, and how a batch system keeps it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import in_process
import pytest
import yaml
from shipped import ROOT

from seamark.errors import UserError
from seamark.planning.plan_order import units_of, unrollable
from seamark.planning.study import Study
from seamark.workflow.dag import Dag
from seamark.workflow.lanes import order_planned, require_order
from seamark.workflow.snakemake_cli import command

MATRIX = {
    "service": "null",
    "delay_ms": [0, 1, 2, 3],
    "concurrency": [1, 2, 4],
    "duration_s": [1, 2, 3],
    "warmup_s": 0,
}
CLUSTER = {
    "schema_version": 1,
    "name": "cluster",
    "summary": "Slurm",
    "profile": "slurm",
    "partitions": {"cpu": {"nodes": 8, "cpus": 64, "mem_gb": 256}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    in_process.said_by(["init", str(tmp_path / "study")])
    monkeypatch.chdir(tmp_path / "study")
    return tmp_path / "study"


def write(folder: Path, **changes: Any) -> None:
    workload = MATRIX | changes.pop("workload", {})
    for site in (CLUSTER, CLUSTER | {"name": "together", "deployments_per_job": 2}):
        (folder / f"config/sites/{site['name']}.yaml").write_text(yaml.safe_dump(site))
    document = {"scenario": "matrix", "repetitions": 1, "workload": workload} | changes
    (folder / "config/scenarios/matrix.yaml").write_text(yaml.safe_dump(document))


def study_of(folder: Path, order: object = None, site: str = "local") -> Study:
    lanes = "" if order is None else json.dumps({"order": order})
    return Study.at(folder, scenario="config/scenarios/matrix.yaml", site=site, lanes=lanes)


@pytest.mark.covers("D1", "D2")
def test_a_fresh_server_makes_each_treatment_a_deployment_and_its_factors_can_be_unrolled(folder: Path) -> None:
    write(folder)
    shared = study_of(folder)
    assert len(shared.plan.deployments) == 4
    assert unrollable(units_of(shared.plan, shared.services)) == ("delay_ms",)
    write(folder, workload={"fresh_server": True})
    fresh = study_of(folder)
    assert len(fresh.plan.deployments) == 36
    assert unrollable(units_of(fresh.plan, fresh.services)) == ("delay_ms", "concurrency", "duration_s")
    assert fresh.plan.factors_without_p == ("delay_ms", "concurrency", "duration_s")
    assert not {trial.id for trial in fresh.plan.trials} & {trial.id for trial in shared.plan.trials}
    assert {trial.config_hash for trial in fresh.plan.trials}.isdisjoint(
        trial.config_hash for trial in shared.plan.trials
    )


@pytest.mark.covers("D2")
def test_an_order_changes_no_trial_and_the_option_comes_before_the_scenario(folder: Path) -> None:
    write(folder)
    without = study_of(folder).plan.trials
    write(folder, order={"barrier": 2})
    assert study_of(folder).plan.trials == without
    assert study_of(folder).site.order == "barrier: 2"
    assert study_of(folder, "window: 3").site.order == "window: 3"
    site = {"schema_version": 1, "name": "own", "summary": "own", "order": "sequential"}
    (folder / "config/sites/own.yaml").write_text(yaml.safe_dump(site))
    assert study_of(folder, site="own").site.order == "barrier: 2"
    write(folder)
    assert study_of(folder, site="own").site.order == "sequential"


@pytest.mark.covers("D5", "D6")
@pytest.mark.parametrize(
    ("order", "waves", "most"),
    [
        ("all", 1, 36),
        ("sequential", 36, 1),
        ("barrier: 3", 12, 3),
        ("barrier: 5", 8, 5),
        ("window: 3", 1, 3),
        ("chained: 3", 12, 3),
        ("unroll: [delay_ms]", 4, 9),
        ("unroll: [delay_ms, concurrency]", 12, 3),
        ("unroll: [delay_ms], then: {barrier: 4}", 12, 4),
        ("unroll: [delay_ms], then: {chained: 2}, groups: parallel", 5, 8),
    ],
)
def test_the_matrix_of_the_source_has_the_waves_that_each_order_promises(
    order: str, waves: int, most: int, folder: Path
) -> None:
    write(folder, workload={"fresh_server": True})
    planned = order_planned(study_of(folder, order, site="cluster"), {})
    assert len(planned.units) == 36
    assert (planned.waves, planned.most_at_once) == (waves, most)
    assert planned.length_s[0] < planned.length_s[1] < planned.length_s[2]
    begun: set[str] = set()
    for unit in planned.units:
        assert begun.issuperset(unit.waits_for)
        assert unit.waits_for_count == len(unit.waits_for)
        begun.add(unit.id)


@pytest.mark.covers("D5")
def test_the_scenario_orders_shows_what_orders_cost() -> None:
    def taken_s(order: str) -> float:
        lanes = json.dumps({"order": order, "parallel": 2, "cpus": "0,1"})
        study = Study.at(ROOT, scenario="config/scenarios/orders.yaml", lanes=lanes)
        return order_planned(study, {}).length_s[1]

    window_s, barrier_s, chained_s = (taken_s(f"{name}: 2") for name in ("window", "barrier", "chained"))
    assert window_s < barrier_s == pytest.approx(chained_s)
    assert barrier_s < taken_s("unroll: [duration_s]") < taken_s("sequential") < 60


def test_the_time_of_an_order_is_that_of_its_deployments_on_the_lanes_there_are(folder: Path) -> None:
    write(folder)
    study = study_of(folder, "window: 3")
    planned = order_planned(study, {})
    assert (planned.lanes, planned.most_at_once) == (1, 1), "no lanes: one deployment at a time"
    assert planned.length_s[1] == pytest.approx(
        sum(unit.estimated_s for unit in units_of(study.plan, study.services))
    )
    site = {"schema_version": 1, "name": "two", "summary": "two", "parallel": 2, "devices": {"cpu": [0, 1]}}
    (folder / "config/sites/two.yaml").write_text(yaml.safe_dump(site))
    planned = order_planned(study_of(folder, "window: 3", site="two"), {})
    assert (planned.lanes, planned.most_at_once) == (2, 2)


@pytest.mark.covers("D2", "E-FR01")
def test_bench_plan_explains_an_order(folder: Path) -> None:
    write(folder, order={"unroll": ["delay_ms"]})
    words = ["plan", "matrix", "--explain", "--no-write"]
    order = json.loads(in_process.said_by([*words, "--json"]))["order"]
    assert (order["order"], order["waves"], order["lanes"]) == ("unroll: [delay_ms]", 4, 1)
    assert sorted(unit["wave"] for unit in order["units"]) == [1, 2, 3, 4]
    said = in_process.said_by(words)
    [_, *rows] = said[said.index("\nOrder unroll") :].strip().splitlines()[1:]
    assert [row.split()[-1] for row in rows[1:]] == ["1", "2", "3"]
    first, second, *_ = order["units"]
    assert first["waits_for"] == []
    assert second["waits_for"] == [first["id"]]
    assert "runs one deployment at a time" in said
    assert "order" not in json.loads(in_process.said_by(["plan", "matrix", "--no-write", "--json"]))


@pytest.mark.covers("D5")
def test_a_batch_system_has_no_more_jobs_than_an_order_allows_and_each_waits_for_those_before(folder: Path) -> None:
    named = {"account": "p1", "partition": "cpu"}
    write(folder, **named)
    study = study_of(folder, "barrier: 2", site="cluster")
    words = command(study)
    assert words[words.index("--jobs") + 1] == "2"
    ids = [deployment.id for deployment in study.plan.deployments]
    waits = [Dag(study=study).waits_for(_wildcards(name)) for name in ids]
    first = [f"results/matrix/deployments/{name}/deployment.json" for name in ids[:2]]
    assert waits == [[], [], first, first]
    write(folder, order={"barrier": 2}, **named)
    alone = study_of(folder, site="cluster")
    assert Dag(study=alone).waits_for(_wildcards(ids[2])) == [], "a target asked for alone waits for nothing"
    assert not any("lanes=" in word for word in command(alone, targets=["x"]))
    [lanes] = [word for word in command(alone) if word.startswith("lanes=")]
    asked = lanes.partition("=")[2].strip(' "')
    assert not set(asked) & set("{}\"' :,")
    assert Study.at(folder, scenario="config/scenarios/matrix.yaml", lanes=asked).site.order == "barrier: 2"


def _wildcards(deployment: str) -> Any:
    return SimpleNamespace(scenario="matrix", deployment=deployment)


@pytest.mark.parametrize(
    ("order", "site", "says"),
    [
        ("unroll: [concurrency]", "local", "'concurrency' is no factor of which a deployment has one level"),
        ("unroll: [dely_ms]", "local", "Did you mean 'delay_ms'?"),
        ("unroll: [delay_ms], then: {window: 2}, groups: parallel", "cluster", "one limit for all groups"),
        ("unroll: [delay_ms]", "together", "a job of this site has 2 deployments"),
        ("refused_order:first", "cluster", "on this site each deployment is a job"),
        (
            "unroll: [delay_ms], then: {unroll: [block], then: {window: 2}}, groups: parallel",
            "cluster",
            "one limit for all",
        ),
    ],
)
def test_an_order_that_a_plan_or_a_site_cannot_keep_is_refused_in_a_line(
    order: str, site: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "refused_order.py").write_text("def first(units):\n    return units[0]\n")
    monkeypatch.syspath_prepend(str(folder))
    write(folder, repetitions=2, restarts="each")
    with pytest.raises(UserError) as caught:
        require_order(study_of(folder, order, site=site))
    [line] = caught.value.lines
    assert says in line


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("order: {windw: 2}", 2),
        ("order: {unroll: [delay_ms], then: {barrier: 0}}", 2),
        ("order: [sequential]", 2),
        ("workload: {service: 'null', fresh_server: 'yes'}", 2),
        ("workload: {parties: {a: {service: 'null', fresh_server: true}, b: {service: 'null'}}}", 2),
    ],
)
def test_a_wrong_order_or_fresh_server_of_a_scenario_is_one_line_with_its_place(
    text: str, line: int, folder: Path
) -> None:
    others = "" if text.startswith("workload") else "workload: {service: 'null', delay_ms: [0, 1]}\n"
    (folder / "config/scenarios/matrix.yaml").write_text(f"scenario: matrix\n{text}\n{others}")
    said = in_process.said_by(["plan", "matrix", "--no-write"], code=2)
    [mistake] = said.strip().splitlines()
    assert f"matrix.yaml:{line}:" in mistake


def test_a_simulation_is_no_unit_of_an_order(folder: Path) -> None:
    workflows = {"service": "fitted", "model_file": "config/models/example.yaml", "model": "mm1", "rate_rps": 1}
    text = yaml.safe_dump({"scenario": "matrix", "repetitions": 1, "workloads": [MATRIX, workflows]})
    (folder / "config/scenarios/matrix.yaml").write_text(text)
    study = study_of(folder, "sequential")
    served = [each.id for each in study.plan.deployments if each.service == "null"]
    assert len(served) == len(study.plan.deployments) - 1
    assert [unit.id for unit in units_of(study.plan, study.services)] == served


@pytest.mark.parametrize("site", ["external", "local"])
def test_a_fresh_server_is_refused_where_no_server_is_started(site: str, folder: Path) -> None:
    external = {"schema_version": 1, "name": "external", "summary": "x", "runtime": "external", "address": "a:1"}
    write(folder, workload={"fresh_server": True})
    (folder / "config/sites/external.yaml").write_text(yaml.safe_dump(external))
    study = study_of(folder, site=site)
    if site == "local":
        assert len(study.plan.deployments) == 36
        return
    with pytest.raises(UserError) as caught:
        _ = study.plan
    [line] = [line for line in caught.value.lines if "fresh_server" in line]
    assert "matrix.yaml:" in line
