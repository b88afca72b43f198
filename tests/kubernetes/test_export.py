"""Scenarios as manifests of Tekton: objects that a cluster takes, the order they keep, and mistakes."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from study_folder import StudyFolder
from tekton_runs import Document, combinations, documents, order_of_ends, values
from tekton_schema import schema_of

from seamark.dispatch.order import Unit, order_of
from seamark.errors import UserError
from seamark.planning.plan_order import planned_order
from seamark.planning.plan_time import Span
from seamark.planning.study import Study
from seamark_kubernetes.pod.steps import STEPS
from seamark_kubernetes.tekton import export, transform
from seamark_kubernetes.tekton.deployments import combinations as rows_of
from seamark_kubernetes.tekton.export import LARGEST_OBJECT, PASSED, Export, export_tekton, pipeline_tasks
from seamark_kubernetes.tekton.transform import LARGEST_MATRIX, LONGEST_NAME

LEVELS = {"delay_ms": [0, 1, 2], "reply_bytes": [2, 64]}
ORDERS = {
    "all": transform.Order(most=None),
    "sequential": transform.Order(most=1),
    "barrier: 4": transform.Order(most=4),
    "chained: 4": transform.Order(most=4, sliding=True),
    "unroll: [delay_ms]": transform.Order(unroll=("delay_ms",)),
    "unroll: [reply_bytes], then: {barrier: 2}": transform.Order(unroll=("reply_bytes",), most=2),
    "unroll: [reply_bytes], then: {chained: 2}": transform.Order(unroll=("reply_bytes",), most=2, sliding=True),
    "unroll: [delay_ms, reply_bytes]": transform.Order(unroll=("delay_ms", "reply_bytes")),
}
"""Orders of ours, and what makes the same of a PipelineRun with one matrix."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    return StudyFolder.new(tmp_path_factory.mktemp("export") / "study")


@pytest.fixture
def exported(made: StudyFolder, tmp_path: Path) -> Callable[..., Export]:
    def of(order: str = "all", **scenario: Any) -> Export:
        made.write(**{"workload": LEVELS, "order": order} | scenario)
        return export_tekton(study_of(made), tmp_path / "out", STEPS)

    return of


def study_of(made: StudyFolder, site: str = "local") -> Study:
    return Study.at(made.root, scenario=str(made.root / "config/scenarios/try.yaml"), site=site)


def runs_of(done: Export) -> list[Document]:
    return [each for path in sorted(done.folder.glob("pipeline/pipelinerun-*.yaml")) for each in documents(path)]


def tasks_of(run: Document) -> list[Document]:
    return list(run["spec"]["pipelineSpec"]["tasks"])


def waits(tasks: list[Document]) -> dict[str, set[str]]:
    """Return for each combination of levels those of the tasks for which it waits."""
    named = {
        task["name"]: {json.dumps({k: v for k, v in row.items() if k in LEVELS}) for row in combinations(task)}
        for task in tasks
    }
    return {
        row: {other for earlier in task.get("runAfter", ()) for other in named[earlier]}
        for task in tasks
        for row in named[task["name"]]
    }


@pytest.mark.covers("D2", "D4")
@pytest.mark.parametrize("order", [*ORDERS, "window: 2", "longest_first"])
def test_every_object_fits_the_api_and_names_each_deployment_once(
    exported: Callable[..., Export], order: str
) -> None:
    done = exported(order, resources={"gpus": 0, "mem_gb": 2})
    found = [each for path in sorted(done.folder.rglob("*.yaml")) for each in documents(path)]
    for each in found:
        jsonschema.validate(each, schema_of(each), cls=jsonschema.Draft202012Validator)
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 63 for _, name in names)
    seen = [row for run in runs_of(done) for task in tasks_of(run) for row in combinations(task) if "delay_ms" in row]
    assert sorted((row["delay_ms"], row["reply_bytes"]) for row in seen) == sorted(
        (str(delay), str(size)) for delay, size in product(*LEVELS.values())
    )
    [task] = [each for each in found if each["metadata"]["name"] == "experiment"]
    assert [step["ref"]["name"] for step in task["spec"]["steps"]] == [f"seamark-{name}" for name in STEPS]
    assert [step["name"] for step in task["spec"]["steps"]] == [*STEPS]
    assert {*PASSED} <= {each["name"] for each in task["spec"]["params"]}


def drawn(**levels: Sequence[int]) -> tuple[list[Unit], dict[str, dict[str, str]]]:
    """Return a unit for each combination, and their parameters."""
    rows = [dict(zip(levels, row, strict=True)) for row in product(*levels.values())]
    units = [Unit(id=f"d{number}", levels=row) for number, row in enumerate(rows)]
    return units, {unit.id: {name: str(level) for name, level in unit.levels.items()} for unit in units}


def run_text(order: str, units: list[Unit], rows: Mapping[str, dict[str, str]]) -> str:
    tasks = pipeline_tasks(order_of(order), units, rows, dict.fromkeys(rows, "experiment"))
    return export._run("run", tasks, order_of(order))


@pytest.mark.covers("D5", "D6")
@pytest.mark.parametrize("order", ORDERS)
def test_an_order_is_what_the_transformer_makes_of_the_matrix(order: str) -> None:
    units, rows = drawn(**LEVELS)
    text, form = run_text("all", units, rows), ORDERS[order]
    expected = text if form == transform.Order() else transform.transform(text, Path("run.yaml"), form)[0]
    found = yaml.safe_load(run_text(order, units, rows))
    assert waits(tasks_of(found)) == waits(tasks_of(yaml.safe_load(expected)))


@pytest.mark.covers("D5")
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from(["all", "sequential", "barrier: {n}", "chained: {n}"]),
    st.integers(1, 6),
    st.integers(0, 2),
    st.sampled_from(["in_sequence", "parallel"]),
    st.randoms(use_true_random=False),
)
def test_runs_begin_and_end_as_our_own_lanes_would_without_a_limit_of_theirs(
    levels: list[int], form: str, n: int, unrolled: int, groups: str, random: Any
) -> None:
    (units, rows), text = drawn(**{f"factor_{at}": range(count) for at, count in enumerate(levels)}), form.format(n=n)
    factors = [f"factor_{number}" for number in range(min(unrolled, len(levels)))]
    if factors:
        text = f"unroll: [{', '.join(factors)}], then: {{{text}}}, groups: {groups}".replace("{all}", "all")
        text = text.replace("{sequential}", "sequential")
    order, run = order_of(text), yaml.safe_load(run_text(text, units, rows))
    took = {json.dumps(row, sort_keys=True): random.uniform(1, 9) for row in rows.values()}
    own = [{**task, "params": [p for p in task["params"] if p["name"] not in PASSED]} for task in tasks_of(run)]
    played = order_of_ends(own, lambda row: took[json.dumps(row, sort_keys=True)])
    spans = {
        unit.id: Span(least=0, typical=took[json.dumps(rows[unit.id], sort_keys=True)], most=0) for unit in units
    }
    ours = planned_order(order, units, len(units), spans, ())
    expected = {json.dumps(rows[unit.id], sort_keys=True): (unit.begins_s, unit.ends_s) for unit in ours.units}
    assert {key: pytest.approx(value) for key, value in expected.items()} == played


@pytest.mark.covers("D5")
def test_a_window_is_a_run_for_each_deployment_in_a_queue_and_the_report_apart(
    exported: Callable[..., Export],
) -> None:
    done = exported("window: 2")
    *runs, report = runs_of(done)[1:], runs_of(done)[0]
    runs = runs[0]
    assert len(runs) == 6
    assert all(run["metadata"]["labels"] == {export.QUEUE: "seamark"} and len(tasks_of(run)) == 1 for run in runs)
    assert all("finally" not in run["spec"]["pipelineSpec"] for run in runs)
    assert [task["taskRef"]["name"] for task in tasks_of(report)] == ["report"]
    assert len(done.notes) == 2


@pytest.mark.covers("D2")
@pytest.mark.slow
def test_a_matrix_beyond_256_and_an_object_beyond_its_size_are_split() -> None:
    units, rows = drawn(n=range(10_000))
    kinds = dict.fromkeys(rows, "experiment")
    tasks = pipeline_tasks(order_of("all"), units, rows, kinds)
    assert [len(task.rows) for task in tasks] == [LARGEST_MATRIX] * 39 + [16]
    chain = pipeline_tasks(order_of("chained: 4"), units, rows, kinds)
    assert [task.after for task in chain[4:6]] == [(chain[0].name,), (chain[1].name,)]
    assert len({task.name for task in chain}) == len(units)
    assert max(len(task.name) for task in chain) <= LONGEST_NAME
    runs = list(export._runs("try", "sequential-4-sliding", chain, order_of("chained: 4")))
    assert max(len(text) for _, text in runs) < LARGEST_OBJECT + 4_000 < 1 << 20
    assert sum(text.count("finally:") for _, text in runs) == runs[-1][1].count("finally:") == 1
    second = yaml.safe_load(runs[1][1])
    names = {task["name"] for task in tasks_of(second)}
    assert all(names.issuperset(task.get("runAfter", ())) for task in tasks_of(second))


@pytest.mark.covers("D2", "D4")
def test_deployments_of_other_resources_have_a_task_of_their_own(made: StudyFolder, tmp_path: Path) -> None:
    made.write(workload={"delay_ms": [0, 1]}, resources={"cpus_per_task": [1, 2], "gpus": 0, "mem_gb": 3})
    done = export_tekton(study_of(made), tmp_path / "out", STEPS)
    tasks = {
        each["metadata"]["name"]: each["spec"] for each in documents(tmp_path / "out/pipeline/experiment-task.yaml")
    }
    asked = [tasks[name]["sidecars"][0]["computeResources"]["requests"] for name in ("experiment", "experiment-2")]
    assert sorted(each["cpu"] for each in asked) == ["1", "2"]
    assert {each["memory"] for each in asked} == {"3G"}
    [run] = runs_of(done)
    assert [(task["taskRef"]["name"], len(combinations(task))) for task in tasks_of(run)] == [
        ("experiment", 2),
        ("experiment-2", 2),
    ]
    assert all("cpus_per_task" in values(task["params"]) and task["timeout"] == "0" for task in tasks_of(run))


@pytest.mark.covers("D4")
def test_levels_that_tekton_would_read_otherwise_give_way_to_ids(made: StudyFolder) -> None:
    made.write(workload={"component": "inference", "service": "vllm", "model": ["a$(b)", "A"], "concurrency": 1})
    study = study_of(made)
    rows = rows_of(study.plan, study.services)
    assert [{*row} for row in rows.values()] == [{"deployment"}] * 2
    assert [row["deployment"] for row in rows.values()] == [*rows]


def test_a_factor_with_the_name_of_a_parameter_of_tasks_gives_way_to_ids(made: StudyFolder) -> None:
    recipe = made.root / "config/services/null.yaml"
    text = recipe.read_text()
    recipe.write_text(text.replace("delay_ms", "debug"))
    try:
        made.write(workload={"debug": [0, 1]})
        study = study_of(made)
        assert [{*row} for row in rows_of(study.plan, study.services).values()] == [{"deployment"}] * 2
    finally:
        recipe.write_text(text)


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "nodes": ({"resources": {"nodes": 2}}, "out_of_limits", "resources.nodes"),
    "own order": ({"order": "in_process:run"}, "conflict", "order 'in_process:run'"),
    "window in a group": ({"order": {"unroll": ["delay_ms"], "then": {"window": 2}}}, "conflict", "order"),
}


@pytest.mark.covers("D5")
@pytest.mark.parametrize("case", WRONG)
def test_what_pods_or_tekton_cannot_do_is_refused(made: StudyFolder, tmp_path: Path, case: str) -> None:
    scenario, code, path = WRONG[case]
    made.write(**{"workload": LEVELS} | scenario)
    with pytest.raises(UserError) as refused:
        export_tekton(study_of(made), tmp_path, STEPS)
    [mistake] = refused.value.mistakes
    assert (mistake.code, (mistake.path or "").startswith(path)) == (code, True), mistake
    assert not list(tmp_path.rglob("*.yaml"))


@pytest.mark.covers("D4")
def test_a_site_with_a_batch_system_has_no_pods(made: StudyFolder, tmp_path: Path) -> None:
    (made.root / "config/sites/batch.yaml").write_text("name: batch\nsummary: a batch system\nprofile: slurm\n")
    made.write(workload=LEVELS)
    with pytest.raises(UserError) as refused:
        export_tekton(study_of(made, "batch"), tmp_path, STEPS)
    assert [(each.code, each.path) for each in refused.value.mistakes] == [("conflict", "site 'batch'")]
