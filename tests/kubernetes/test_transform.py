"""Tekton matrices as ordered tasks: counts, orders, what is at work at once, what stays as it was, and mistakes."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from seamark.cli.main import cli
from seamark.errors import Mistake, UserError
from seamark_kubernetes.tekton.matrix import combine, matrix_lines
from seamark_kubernetes.tekton.transform import Order, distinct_names, transform

SEED = """\
# 4 x 3 x 3
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {generateName: experiment-, annotations: {mode: 0755}}
spec:
  taskRunSpecs:
    - pipelineTaskName: experiment  # all 36
      serviceAccountName: runner
  pipelineSpec:
    tasks:
      # the experiment
      - name: experiment
        runAfter: [prepare]
        matrix:
          params:
            - name: gaiePluginConfig
              value: [none, prefix, kv, queue]
            - {name: question_len, value: [100, 300, 1000]}
            - name: output_len
              value:
                - "100"
                - "300"
                - "1000"
        params:
          - {name: model, value: $(params.model)}
        onError: continue
#       retries: 3
        taskSpec:
          steps:
            - name: run  # a step
              script: |
                # no comment of YAML
                bench --gaie "$(params.gaiePluginConfig)"

      # before it
      - name: prepare
        taskRef: {name: prepare}  # small
      - taskRef: {name: collect}
        runAfter:
          - experiment
          - prepare
        # after all
        name: collect
    finally:
    - name: report
      taskRef: {name: report}
---
# the next document
kind: ConfigMap
data: {text: "kept  as   it is"}
"""
GAIE, LENGTHS = ("none", "prefix", "kv", "queue"), ("100", "300", "1000")
ALL = {
    frozenset(zip(("gaiePluginConfig", "question_len", "output_len"), row, strict=True))
    for row in product(GAIE, LENGTHS, LENGTHS)
}
Task = Mapping[str, Any]


def document(text: str) -> Any:
    """Return the first document."""
    return next(yaml.load_all(text, Loader=yaml.CSafeLoader))


def tasks_of(text: str) -> list[Task]:
    """Return the tasks of the first document."""
    spec = document(text)["spec"]
    found: list[Task] = spec.get("pipelineSpec", spec)["tasks"]
    return found


def combinations(task: Task) -> list[frozenset[tuple[str, str]]]:
    """Return what Tekton runs for a task: the parameters of each of its runs, but not `model`."""
    own = [(param["name"], param["value"]) for param in task.get("params", []) if param["name"] != "model"]
    matrix = task.get("matrix", {"include": [{"params": []}]})
    if "include" in matrix:
        rows = [[(param["name"], param["value"]) for param in row["params"]] for row in matrix["include"]]
    else:
        levels = [[(param["name"], value) for value in param["value"]] for param in matrix["params"]]
        rows = [list(row) for row in product(*levels)]
    return [frozenset([*own, *row]) for row in rows]


def run(tasks: Sequence[Task], seed: int) -> dict[str, tuple[float, float]]:
    """Return start and end of each task under random durations: it starts when all are done for which it waits."""
    random, waiting, times = Random(seed), {task["name"]: task for task in tasks}, dict[str, tuple[float, float]]()
    while waiting:
        ready = [task for task in waiting.values() if all(name in times for name in task.get("runAfter", []))]
        assert ready, "tasks wait for each other, or for one that is not there"
        for task in ready:
            start = max((times[name][1] for name in task.get("runAfter", [])), default=0.0)
            times[task["name"]] = (start, start + random.uniform(1, 9))
            del waiting[task["name"]]
    return times


def most_at_once(spans: Sequence[tuple[float, float, int]]) -> int:
    """Return the largest sum of the third numbers of spans at one time."""
    return max(sum(size for start, end, size in spans if start <= at < end) for at, _, _ in spans)


def bench(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["tekton", "transform", *words], input=stdin)


@pytest.fixture
def seed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("in.yaml").write_text(SEED)
    return "in.yaml"


def expanded(*words: str) -> list[Task]:
    """Return the tasks of the seed's experiment after a command."""
    done = bench("in.yaml", *words, "-o", "out.yaml")
    assert done.exit_code == 0, (done.output, done.exception)
    return [task for task in tasks_of(Path("out.yaml").read_text()) if task["name"] not in ("prepare", "collect")]


@pytest.mark.covers("D5", "D6")
@pytest.mark.parametrize(
    ("words", "count", "size"),
    [
        (("--unroll", "gaiePluginConfig"), 4, 9),
        (("--unroll", "gaiePluginConfig,question_len"), 12, 3),
        (("-n", "3"), 36, 1),
        (("-n", "3", "--sliding-window"), 36, 1),
        (("--unroll", "question_len", "-n", "5"), 36, 1),
    ],
)
def test_the_commands_of_the_seed_give_each_combination_once(
    seed_file: str, words: tuple[str, ...], count: int, size: int
) -> None:
    tasks = expanded(*words)
    assert [len(combinations(task)) for task in tasks] == [size] * count
    assert Counter(row for task in tasks for row in combinations(task)) == Counter(dict.fromkeys(ALL, 1))
    assert all(task["onError"] == "continue" and task["params"][0]["name"] == "model" for task in tasks)


@pytest.mark.covers("D2", "D5", "D6")
def test_each_order_makes_a_task_wait_for_what_its_definition_says(seed_file: str) -> None:
    def waits(*words: str) -> list[list[int]]:
        tasks = expanded(*words)
        places = {task["name"]: index for index, task in enumerate(tasks)} | {"prepare": -1}
        return [[places[name] for name in task["runAfter"]] for task in tasks]

    first = [[-1]] * 3
    batches = [[*range(index // 3 * 3 - 3, index // 3 * 3)] for index in range(3, 36)]
    one_by_one = [[-1], *([index - 1] for index in range(1, 36))]
    assert waits("-n", "3") == waits("-n", "3", "--barrier") == [*first, *batches]
    assert waits("-n", "3", "--sliding-window") == [*first, *([index - 3] for index in range(3, 36))]
    assert waits() == waits("-n", "1") == one_by_one
    assert waits("-n", "5")[35] == [30, 31, 32, 33, 34]
    assert waits("--unroll", "gaiePluginConfig") == one_by_one[:4]
    assert waits("--unroll", "gaiePluginConfig", "--parallel-groups") == [[-1]] * 4
    assert waits("--unroll", "gaiePluginConfig", "--parallel-groups", "-n", "2") == [[-1], [-1], [0, 1], [0, 1]]
    inside = waits("--unroll", "gaiePluginConfig", "-n", "4")  # 9 in a group: batches of 4, 4 and 1
    assert inside[4:11] == [*([[0, 1, 2, 3]] * 4), [4, 5, 6, 7], [8], [8]]


@pytest.mark.covers("D6")
def test_what_names_an_expanded_task_names_its_last_tasks_or_all_of_them(seed_file: str) -> None:
    names = [task["name"] for task in expanded("-n", "3", "--sliding-window")]
    spec = document(Path("out.yaml").read_text())["spec"]
    tasks = spec["pipelineSpec"]["tasks"]
    assert tasks[-1] == {"taskRef": {"name": "collect"}, "runAfter": [*names[-3:], "prepare"], "name": "collect"}
    assert spec["taskRunSpecs"] == [{"pipelineTaskName": name, "serviceAccountName": "runner"} for name in names]
    names = [task["name"] for task in expanded("--unroll", "gaiePluginConfig", "--parallel-groups")]
    assert tasks_of(Path("out.yaml").read_text())[-1]["runAfter"] == [*names, "prepare"]
    assert names == ["experiment-none", "experiment-prefix", "experiment-kv", "experiment-queue"]


@pytest.mark.covers("D6")
def test_all_around_the_changes_stays_as_it_is_written(seed_file: str) -> None:
    expanded("--unroll", "gaiePluginConfig")
    text = Path("out.yaml").read_text()
    begin, _, rest = SEED.partition("    - pipelineTaskName")
    assert text.startswith(begin)
    assert text[text.index("  pipelineSpec:") :].startswith("  pipelineSpec:\n    tasks:\n      # the experiment\n")
    end = rest[rest.index("\n      # before it") :]
    after = "runAfter:\n          - experiment\n          - prepare\n"
    assert text.endswith(end.replace(after, "runAfter: [experiment-queue, prepare]\n"))
    assert text.count("# no comment of YAML\n") == 4


def test_the_example_of_the_page_gives_what_stands_there() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to-tekton.md").read_text()
    before, after = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    text, _ = transform(before, Path("p.yaml"), Order(unroll=("picker",)))
    assert text == before[: before.index("    - name: run")] + after


def test_a_hyphen_is_standard_input_and_output_and_notes_are_apart(seed_file: str) -> None:
    for words in (("-o", "-"), ()):
        done = bench("-", "-n", "2", *words, stdin=SEED)
        assert len(tasks_of(done.stdout)) == 38
        assert done.stderr.startswith("-:12: spec.pipelineSpec.tasks[0]: ")


def pipeline(matrix: Mapping[str, Any]) -> str:
    return (
        f"kind: Pipeline\nspec:\n  tasks:\n  - name: t\n    matrix: {json.dumps(matrix)}\n    taskRef: {{name: t}}\n"
    )


def params(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in row.items()]


NAMES = ("a", "b", "c", "d")
LEVELS = st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from("01y"), min_size=1, max_size=3), min_size=1)
INCLUDES = st.lists(st.dictionaries(st.sampled_from(NAMES), st.sampled_from("01xy"), min_size=1), max_size=3)
ORDERS = st.builds(
    Order,
    unroll=st.permutations(NAMES).flatmap(lambda names: st.integers(0, 3).map(lambda count: tuple(names[:count]))),
    most=st.none() | st.integers(1, 5),
    sliding=st.booleans(),
    side_by_side=st.booleans(),
)


@pytest.mark.slow
@pytest.mark.covers("D5", "D6")
@settings(deadline=None)
@given(levels=LEVELS, includes=INCLUDES, order=ORDERS, seed=st.integers(0, 9))
def test_each_combination_runs_once_and_no_more_at_once_than_asked(
    levels: dict[str, list[str]], includes: list[dict[str, str]], order: Order, seed: int
) -> None:
    rows, _ = combine(levels, includes)
    known = {name for row in rows for name in row}
    unroll = tuple(name for name in order.unroll if name in known)
    order = replace(order, unroll=unroll, side_by_side=order.side_by_side and bool(unroll))
    matrix = {"params": params(levels), "include": [{"params": params(row)} for row in includes]}
    text, _ = transform(pipeline(matrix), Path("-"), order)
    tasks = tasks_of(text)
    assert Counter(row for task in tasks for row in combinations(task)) == Counter(frozenset(r.items()) for r in rows)
    names = [task["name"] for task in tasks]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in names)
    times = run(tasks, seed)
    runs = [(*times[task["name"]], len(combinations(task))) for task in tasks]
    groups: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
    for task in tasks:
        key = frozenset(pair for pair in combinations(task)[0] if pair[0] in order.unroll)
        groups.setdefault(key, []).append(times[task["name"]])
    spans = [(min(start for start, _ in found), max(end for _, end in found), 1) for found in groups.values()]
    if not order.unroll:
        assert most_at_once(runs) == min(order.most or len(rows), len(rows))
    elif order.side_by_side:
        assert most_at_once(spans) == min(order.most or len(spans), len(spans))
    else:
        assert most_at_once(spans) == 1
        assert order.most is None or most_at_once(runs) <= order.most


GO = {"GOARCH": ["linux/amd64", "linux/ppc64le", "linux/s390x"], "version": ["go1.17", "go1.18.1"]}


@pytest.mark.covers("D6")
def test_include_is_expanded_as_tekton_does_it() -> None:
    """The example of Tekton's page on the matrix, and what it drops in silence."""
    package, flags, context = {"package": "p/"}, {"flags": "-cover"}, {"context": "c/"}
    s390x, go117, new = {"GOARCH": "linux/s390x"}, {"version": "go1.17"}, {"GOARCH": "I-do-not-exist"}
    made = [
        {"GOARCH": arch, "version": version, **package}
        | (flags if arch == "linux/s390x" else {})
        | (context if version == "go1.17" else {})
        for arch, version in product(*GO.values())
    ]
    assert combine(GO, [package, s390x | flags, go117 | context, new]) == ([*made, new], [])
    dropped = {"GOARCH": "linux/amd64", "version": "go1.20"}
    assert combine(GO, [dropped])[0][-1] == dropped
    assert combine(GO, [dropped])[1] == [0]
    assert combine({}, [dropped, dropped, package]) == ([dropped, dropped, package], [])


def test_what_is_no_product_stays_a_matrix_of_explicit_combinations() -> None:
    rows = [{"a": "1", "b": value} for value in "12"] + [{"a": "2", "b": "1"}] * 2
    matrix = yaml.safe_load("\n".join(matrix_lines(rows)))["matrix"]
    assert matrix == {"include": [{"params": params(row)} for row in rows]}


def test_a_combination_that_tekton_drops_is_kept_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    odd = params({"a": 1, "b": 9})
    Path("p.yaml").write_text(pipeline({"params": params({"a": [1, 2], "b": [3]}), "include": [{"params": odd}]}))
    done = bench("p.yaml", "--unroll", "a", "--parallel-groups")
    assert [combinations(task) for task in tasks_of(done.stdout)] == [
        [frozenset({("a", "1"), ("b", "3")}), frozenset({("a", "1"), ("b", "9")})],
        [frozenset({("a", "2"), ("b", "3")})],
    ]
    assert "p.yaml:5: spec.tasks[0].matrix.include[0]" in done.stderr


TWO = """\
kind: Pipeline
spec:
  tasks:
  - name: build
    matrix: {params: [{name: os, value: [Linux, mac OS]}, {name: size, value: [1, 2]}]}
    taskRef: {name: t}
  - name: check
    runAfter: [build, lint]
    matrix: {params: [{name: os, value: [a, b]}]}
    taskRef: {name: t}
  - name: lint
    matrix: {params: [{name: rule, value: "$(params.rules[*])"}]}
    taskRef: {name: t}
"""


@pytest.mark.covers("D6")
def test_of_several_tasks_those_with_a_parameter_are_expanded() -> None:
    text, _ = transform(TWO, Path("p.yaml"), Order(unroll=("os",)))
    waits = {task["name"]: task.get("runAfter", []) for task in tasks_of(text)}
    assert waits == {
        "build-linux": [],
        "build-mac-os": ["build-linux"],
        "check-a": ["build-mac-os", "lint"],
        "check-b": ["check-a"],
        "lint": [],
    }
    assert tasks_of(text)[0]["matrix"] == {"params": [{"name": "size", "value": ["1", "2"]}]}
    assert text.endswith(TWO[TWO.index("  - name: lint") :])
    [mistake] = mistakes_of(TWO, Order(most=2))
    assert (mistake.code, mistake.line) == ("invalid", 12)


def test_names_are_lawful_distinct_and_the_same_again() -> None:
    rows = [{"a": "X" * 90}, {"a": "x" * 90}, {"a": "a/b"}, {"a": "a:b"}, {"a": "a:b"}, {"a": "c"}, {"a": "d"}, {}]
    names = distinct_names("t", rows, {"t", "t-d"})
    assert len({*names, "t", "t-d"}) == 10
    assert max(map(len, names)) == 63
    assert names[5] == "t-c"
    assert distinct_names("t", rows, {"t", "t-d"}) == names


def mistakes_of(text: str, order: Order) -> tuple[Mistake, ...]:
    with pytest.raises(UserError) as refused:
        transform(text, Path("p.yaml"), order)
    assert all(mistake.file == "p.yaml" for mistake in refused.value.mistakes)
    return refused.value.mistakes


ONE = "kind: Pipeline\nspec:\n  tasks:\n  - name: t\n    matrix:\n"
BIG = pipeline({"params": params({"a": ["1"], "b": [str(i) for i in range(257)]})})
WRONG = (
    ("", "no_value", 1),
    ("a: [", "not_yaml", None),
    ("- a\n", "not_a_choice", 1),
    ("kind: Task\n", "not_a_choice", 1),
    ("kind: PipelineRun\nspec:\n  pipelineRef: {name: p}\n", "missing", 3),
    ("kind: Pipeline\nspec:\n  tasks: [{name: a}]\n", "missing", 2),
    (f"{ONE}      params: []\n", "wrong_type", 5),
    (f"{ONE}      params:\n      - name: a\n", "missing", 7),
    (f"{ONE}      params:\n      - name: a\n        value: []\n", "wrong_type", 8),
    (f"{ONE}      params:\n      - name: a\n        value: one\n", "wrong_type", 8),
    (f"{ONE}      params:\n      - {{name: a, value: [1]}}\n      - {{name: a, value: [2]}}\n", "written_twice", 8),
    (f"{ONE}      params: [{{name: a, value: [1]}}]\n    params:\n    - {{name: a, value: 1}}\n", "written_twice", 8),
    (f"{ONE}      include:\n      - params:\n        - {{name: a, value: [1]}}\n", "wrong_type", 8),
    (f"{ONE}      <<: {{}}\n", "not_yaml", 6),
    (f"{ONE}      params: [{{name: a, value: [1]}}]\n  - matrix: {{}}\n", "missing", 7),
    ("kind: Pipeline\nspec:\n  tasks: [{name: t, matrix: {params: [{name: a, value: [1]}]}}]\n", "wrong_form", 3),
    (f"{ONE}      params: [{{name: a, value: &x [1]}}]\n  finally: *x\n", "wrong_form", None),
    (SEED.replace("name: report}", 'name: "$(tasks.experiment.results.x[*])"}'), "conflict", 46),
)


@pytest.mark.covers("D6")
@pytest.mark.parametrize(("text", "code", "line"), WRONG)
def test_a_file_that_cannot_be_expanded_is_a_mistake_with_its_line(text: str, code: str, line: int | None) -> None:
    first, *_ = mistakes_of(text, Order(most=1))
    assert first.code == code
    assert line is None or first.line == line


def test_more_than_tekton_allows_may_be_expanded_but_not_stay_a_matrix() -> None:
    [mistake] = mistakes_of(BIG, Order(unroll=("a",)))
    assert (mistake.code, mistake.line, mistake.path) == ("out_of_limits", 5, "spec.tasks[0].matrix")
    assert len(tasks_of(transform(BIG, Path("p.yaml"), Order(most=9))[0])) == 257


@pytest.mark.covers("D6")
@pytest.mark.parametrize(
    ("words", "code", "path"),
    [
        (("--unroll", "question_length"), "unknown_name", "spec.pipelineSpec.tasks[0].matrix"),
        (("--unroll", "output_len,"), "no_value", "--unroll"),
        (("--unroll", "output_len,output_len"), "written_twice", "--unroll"),
        (("-n", "0"), "out_of_limits", "-n"),
        (("--barrier", "--sliding-window"), "conflict", "--sliding-window"),
        (("--unroll", "output_len", "--sliding-window"), "missing", "--sliding-window"),
        (("--parallel-groups",), "missing", "--parallel-groups"),
    ],
)
def test_a_wrong_option_is_a_mistake_and_nothing_is_written(
    seed_file: str, words: tuple[str, ...], code: str, path: str
) -> None:
    done = bench("in.yaml", *words, "-o", "out.yaml")
    assert isinstance(done.exception, UserError)
    assert done.exception.exit_code == 2
    [mistake] = done.exception.mistakes
    assert (mistake.code, mistake.path) == (code, path)
    assert mistake.file == ("in.yaml" if code == "unknown_name" else None)
    assert not Path("out.yaml").exists()


def test_the_file_that_is_read_is_not_overwritten(seed_file: str) -> None:
    assert isinstance(bench("in.yaml", "-n", "3", "-o", "in.yaml").exception, UserError)
    assert Path("in.yaml").read_text() == SEED
    assert isinstance(bench("nowhere.yaml", "-n", "3").exception, UserError)
