"""Experiments of llm-d-benchmark as scenarios: what is planned of them, what is listed as not taken, and mistakes."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from seamark.cli.main import cli
from seamark.errors import UserError
from seamark.model.trial import Plan
from seamark.planning.study import Study

NEW = """\
experiment:
  name: layouts & lengths
  description: |
    Which layout,
    for which lengths?
  harness: inference-perf
  profile: mine.yaml
design:
  setup:
    factors:
      - {name: tp, key: decode.parallelism.tensor, levels: [1, 2, 4]}
  run:
    factors:
      - {name: question, key: data.shared_prefix.question_len}
      - {name: answer, key: data.shared_prefix.output_len}
    constants:
      - {key: data.shared_prefix.system_prompt_len, value: 2000}
      - {key: server.ignore_eos, value: "true"}
  total_setup_treatments: 3
  total_run_treatments: 5
  total_matrix: 15
reset_caches: true
treatment_max_attempts: 3
treatment_stop_on_error: true
validate_failures: true
max_parallel_treatments: 2
setup:
  constants:
    model.name: org/some-model
    router.epp.replicas: 2
  treatments:
    - {name: one, decode.parallelism.tensor: 1}
    - name: two
      decode: {parallelism: {tensor: "2"}}
    - {name: four, decode.parallelism.tensor: 4}
treatments:
  - {name: a, data.shared_prefix.question_len: 50, data.shared_prefix.output_len: 20}
  - {name: b, data.shared_prefix.question_len: 50, data.shared_prefix.output_len: 40}
  - {name: c, data.shared_prefix.question_len: 90, data.shared_prefix.output_len: 20}
  - {name: d, data.shared_prefix.question_len: 90, data.shared_prefix.output_len: 40, profile: other.yaml}
  - {name: e, data.shared_prefix.question_len: 70, data.shared_prefix.output_len: 3000, description: long}
"""
OLD = """\
setup:
  constants:
    - LLMDBENCH_VLLM_COMMON_MAX_MODEL_LEN: 9000
  factors:
    - LLMDBENCH_DEPLOY_METHODS
    - LLMDBENCH_VLLM_COMMON_TENSOR_PARALLELISM
    - LLMDBENCH_VLLM_MODELSERVICE_DECODE_TENSOR_PARALLELISM
  levels:
    LLMDBENCH_VLLM_COMMON_TENSOR_PARALLELISM: "2,4"
  treatments:
    - "standalone,2,NA"
    - "standalone,4,NA"
    - "modelservice,NA,8"
    - "modelservice,NA,NA"
run:
  factors: [question_len, output_len]
  levels: {question_len: "100,300", output_len: "10,30"}
  treatments: {first: "100,10", second: "100, 30", third: "300,10", fourth: "300,30"}
"""


@pytest.fixture(autouse=True)
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("config/scenarios").mkdir(parents=True)
    return tmp_path


def bench(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def imported(text: str) -> tuple[Any, str, Plan]:
    """Return the scenario of an experiment, what is said on standard error, and the plan."""
    Path("in.yaml").write_text(text)
    done = bench("import", "llmd", "in.yaml", "-o", "config/scenarios/out.yaml")
    assert done.exit_code == 0, (done.output, done.exception)
    assert not done.stdout
    path = Path("config/scenarios/out.yaml")
    planned = bench("plan", "-c", str(path), "--no-write")
    assert planned.exit_code == 0, (planned.output, planned.exception)
    return yaml.safe_load(path.read_text()), done.stderr, Study.at(Path.cwd(), scenario=str(path)).plan


def sizes(plan: Plan) -> tuple[int, int]:
    """Return the number of servers with other settings, and of trials."""
    return len({trial.deployment for trial in plan.trials}), len(plan.trials)


@pytest.mark.covers("D1", "D8")
def test_the_new_form_is_planned_as_its_design_says() -> None:
    scenario, _, plan = imported(NEW)
    assert sizes(plan) == (3, 15)
    assert scenario["scenario"] == "layouts-lengths"
    assert scenario["metadata"] == {"notes": "Which layout, for which lengths?"}
    assert (scenario["max_retries"], scenario["order"]) == (2, {"window": 2})
    assert scenario["workload"]["slos"] == ["error_rate <= 0"]
    settings = [trial.settings for trial in plan.trials]
    assert {row["tensor_parallel"] for row in settings} == {1, 2, 4}
    assert {(row["prompt_len"], row["prefix_len"]) for row in settings} == {(n + 2000, 2000) for n in (50, 70, 90)}
    fixed = {(row["model"], row["ignore_eos"], row["max_model_len"], row["pattern"]) for row in settings}
    assert fixed == {("org/some-model", True, 5070, "closed")}
    assert {(row["caches"], row["dev_mode"]) for row in settings} == {("reset", True)}


@pytest.mark.covers("D1", "D8")
def test_the_old_form_is_planned_without_levels_that_do_not_apply() -> None:
    scenario, said, plan = imported(OLD)
    assert sizes(plan) == (4, 16)
    assert {"tensor_parallel" in row for row in scenario["workload"]["include"]} == {True, False}
    assert {trial.settings["tensor_parallel"] for trial in plan.trials} == {1, 2, 4, 8}
    assert {trial.settings["max_model_len"] for trial in plan.trials} == {9000}
    assert said.splitlines()[0].startswith("in.yaml:11: setup.treatments[0].LLMDBENCH_DEPLOY_METHODS: ")
    assert len(said.splitlines()) == 1


def test_a_product_becomes_factors_with_levels() -> None:
    text = OLD.replace("NA,NA", "NA,16").replace('    - "standalone,4,NA"\n', "")
    scenario, _, plan = imported(text)
    workload = scenario["workload"]
    assert sizes(plan) == (3, 12)
    assert "include" not in workload
    levels = {name: workload[name] for name in ("tensor_parallel", "prompt_len", "gen_tokens")}
    assert levels == {"tensor_parallel": [2, 8, 16], "prompt_len": [100, 300], "gen_tokens": [10, 30]}


def test_what_is_not_taken_is_listed_once_with_its_line_and_in_the_scenario() -> None:
    Path("in.yaml").write_text(NEW)
    done = bench("import", "llmd", "in.yaml")
    places = {tuple(line.split(": ")[:2]) for line in done.stderr.splitlines()}
    assert places == {
        ("in.yaml:6", "experiment.harness"),
        ("in.yaml:7", "experiment.profile"),
        ("in.yaml:24", "treatment_stop_on_error"),
        ("in.yaml:30", "setup.constants.router.epp.replicas"),
        ("in.yaml:40", "treatments[3].profile"),
    }
    assert len(done.stderr.splitlines()) == len(places)
    assert all(f"# {line}\n" in done.stdout for line in done.stderr.splitlines())
    quiet = bench("import", "llmd", "in.yaml", "-o", "out.yaml")
    assert (quiet.stdout, Path("out.yaml").read_text()) == ("", done.stdout)


LOADS = """\
experiment: {harness: nop}
constants: {load.type: poisson, data.a: 1}
groups:
  - {name: alone, treatments: [{name: slow, load.stages.0.rate: 2, load.stages.0.duration: 30}]}
  - {name: beside, treatments: [{name: x, max-concurrency: 8}, {name: y, max-concurrency: 9}]}
run:
  - {name: fast, request-rate: 4}
  - {name: users, max-concurrency: 8, num-prompts: 80}
"""


@pytest.mark.covers("D8")
def test_rates_and_numbers_of_requests_become_loads_and_groups_at_one_time_are_listed() -> None:
    scenario, said, plan = imported(f"reset_caches: false\n{LOADS}")
    assert not {"caches", "dev_mode"} & {*scenario["workload"]}
    names = ("pattern", "rate_rps", "concurrency", "duration_s", "requests", "until_last_reply")
    loads = {tuple(trial.settings.get(name) for name in names) for trial in plan.trials}
    assert loads == {
        ("poisson", 2.0, 256, 30.0, None, None),
        ("poisson", 4.0, 256, 10.0, None, None),
        ("closed", None, 8, 3600.0, 80, True),
    }
    places = [line.split(": ")[1] for line in said.splitlines()]
    assert places == ["experiment.harness", "groups[1]", "constants.data.a"]


def test_treatments_that_differ_by_what_is_not_taken_are_measured_once_and_counted() -> None:
    picker = "setup: {treatments: [{picker: none}, {picker: prefix}]}\n"
    _, said, plan = imported(f"{picker}treatments: [{{max-concurrency: 1}}, {{max-concurrency: 2}}]\n")
    assert sizes(plan) == (1, 2)
    assert [line.split(": ")[0] for line in said.splitlines()] == ["in.yaml:1", "in.yaml:1"]
    assert "2 of 4" in said


def test_a_treatment_may_have_a_setting_that_its_design_does_not_name() -> None:
    _, said, plan = imported(NEW.replace("{name: e, ", "{name: e, request_rate: 2, replicas: 3, "))
    assert sizes(plan) == (3, 15)
    assert [trial.settings["rate_rps"] for trial in plan.trials if trial.settings["gen_tokens"] == 3000] == [2, 2, 2]
    assert "treatments[4].replicas" in said


ONE = "treatments: [{max-concurrency: 1}]\n"
WRONG = (
    ("a: ]\n", "not_yaml", None, 1),
    ("- a\n", "wrong_type", "", 1),
    ("experiment: {name: x}\n", "missing", "", 1),
    ("treatments: all\n", "wrong_type", "treatments", 1),
    ("treatments:\n- {replicas: 1}\n", "missing", "", 1),
    ("treatments:\n- a.b: 1\n  a.b.c: 2\n", "conflict", "treatments[0].a.b.c", 3),
    (f"{ONE}setup:\n  constants: {{a.b: 1}}\n  treatments:\n  - a: 2\n", "conflict", "setup.treatments[0].a", 5),
    (NEW.replace("total_matrix: 15", "total_matrix: 12"), "conflict", "design.total_matrix", 21),
    (NEW.replace("setup_treatments: 3", "setup_treatments: 4"), "conflict", "design.total_setup_treatments", 19),
    (NEW.replace("{name: b, data.shared", "{name: b, data-shared"), "unknown_key", None, 38),
    (OLD.replace("levels: {question_len", "levels: {question-len"), "unknown_key", "run.levels.question-len", 17),
    (OLD.replace("standalone,2,NA", "standalone,2"), "wrong_form", "setup.treatments[0]", 11),
    (OLD.replace("modelservice,NA,8", "modelservice,4,8"), "conflict", None, 13),
    (f"{ONE}setup:\n  factors: [a]\n", "missing", "setup", 2),
    ("treatments:\n- max-concurrency: many\n", "wrong_type", "treatments[0].max-concurrency", 2),
    (f"{ONE}treatment_max_attempts: 0\n", "out_of_limits", "treatment_max_attempts", 2),
    (f"{ONE}reset_caches: often\n", "wrong_type", "reset_caches", 2),
)


@pytest.mark.covers("D1")
@pytest.mark.parametrize(("text", "code", "path", "line"), WRONG)
def test_a_wrong_experiment_is_a_mistake_with_its_line(text: str, code: str, path: str | None, line: int) -> None:
    Path("in.yaml").write_text(text)
    refused = bench("import", "llmd", "in.yaml", "-o", "out.yaml").exception
    assert isinstance(refused, UserError)
    first, *_ = refused.mistakes
    assert (first.code, first.file, first.line) == (code, "in.yaml", line)
    assert path is None or first.path == path
    assert not Path("out.yaml").exists()


def test_a_file_that_exists_is_not_overwritten() -> None:
    Path("in.yaml").write_text(ONE)
    Path("out.yaml").write_text("mine")
    refused = bench("import", "llmd", "in.yaml", "-o", "out.yaml").exception
    assert isinstance(refused, UserError)
    assert [(mistake.code, mistake.file) for mistake in refused.mistakes] == [("conflict", "out.yaml")]
    assert Path("out.yaml").read_text() == "mine"


SHARED = """\
experiment: {name: shared, profile: shared_prefix_synthetic.yaml}
setup: {constants: {model.maxModelLen: 9000}}
treatments:
  - {name: a, max_concurrency: 4}
  - {name: b, max_concurrency: 4, question_len: 100, num_groups: 4}
  - {name: c, max_concurrency: 4, profile: chat_and_search, output_len: 30}
  - {name: d, max_concurrency: 4, profile: elsewhere.yaml}
"""


@pytest.mark.covers("D1", "D8")
def test_a_profile_is_what_treatments_override_and_an_unknown_one_is_listed() -> None:
    _, said, plan = imported(SHARED)
    names = ("prefix_groups", "prefix_len", "prompt_len", "gen_tokens")
    rows = {tuple(trial.settings[name] for name in names): trial.settings["mix"] for trial in plan.trials}
    plain = {(32, 2048, 2304, 256), (4, 2048, 2148, 256)}
    assert {row for row, mix in rows.items() if mix is None} > plain
    assert [row[3] for row, mix in rows.items() if mix is not None] == [30]
    assert "elsewhere" not in "".join(map(str, rows.values()))
    assert [line.split(":")[1] for line in said.splitlines()] == ["7"]
