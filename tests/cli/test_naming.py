"""A scenario is named in one way by every verb; what names nothing is a mistake that says what can be named."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from study_folder import StudyFolder

from seamark.cli.main import cli, verb_summaries
from seamark.config.read import Recipes
from seamark.errors import Mistake, UserError
from seamark.planning.study import Study
from seamark_evaluate.evaluation.matrix import AdapterConfig
from seamark_evaluate.evaluation.matrix_study import service_of

SMALL = "scenario: {name}\nrepetitions: 1\nworkload:\n  service: 'null'\n  duration_s: 0.25\n  concurrency: [1, 2]\n"
OF_ONE_SCENARIO = (
    ("plan",),
    ("status",),
    ("report",),
    ("collect",),
    ("keep",),
    ("prepare", "--dry-run"),
    ("submit", "--dry-run"),
    ("retry",),
    ("export", "evaluation", "-o", "out"),
    ("export", "llmd"),
    ("compare",),
    ("fit", "-o", "out.json"),
    ("logs", "get"),
    ("whatif", "--stage", "none", "-n"),
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("naming") / "study"
    StudyFolder.new(root)
    for path in (root / "config" / "scenarios").glob("*.yaml"):
        path.unlink()
    (root / "config" / "scenarios" / "file.yaml").write_text(SMALL.format(name="named"))
    return root


@pytest.fixture
def here(study: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(study)
    return study


def bench(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def mistakes(*words: str) -> tuple[Mistake, ...]:
    """Return the mistakes of a call that must have some."""
    done = bench(*words)
    assert isinstance(done.exception, UserError), (done.output, done.exception)
    return done.exception.mistakes


@pytest.mark.parametrize("words", OF_ONE_SCENARIO, ids=" ".join)
def test_every_verb_takes_a_scenario_by_name_or_file_as_a_word_or_with_c(words: tuple[str, ...], here: Path) -> None:
    ways = [("named",), ("config/scenarios/file.yaml",), ("-c", "named"), ("-c", "config/scenarios/file.yaml")]
    if words in (("submit", "--dry-run"), ("retry",)):  # they would measure, and the second find nothing left
        paths = {str(Study.at(here, scenario=way[-1]).scenario_path) for way in ways}
        assert paths == {"config/scenarios/file.yaml"}
        return
    seen = set()
    for way in ways:  # retry would measure what is missing
        done = bench(*words, *way, *(["none"] if words == ("retry",) else []))
        said = str(done.exception) if isinstance(done.exception, UserError) else done.output
        seen.add((type(done.exception), said.replace("config/scenarios/file.yaml", "named")))
    assert len(seen) == 1, seen


@pytest.mark.parametrize("verb", ["plan", "status", "submit", "retry", "report", "collect", "start"])
def test_outside_of_the_repository_no_scenario_is_taken_by_default(verb: str, here: Path) -> None:
    [mistake] = mistakes(verb)
    assert (mistake.code, mistake.path) == ("missing", "--config")
    assert "named" in mistake.text


def test_in_its_own_repository_the_example_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    assert Study.at(root).scenario.name == "quickstart"


@pytest.mark.parametrize(("words", "path"), [(("-c", ""), "--config"), (("named", "--site", ""), "--site")])
def test_an_empty_scenario_or_site_is_a_mistake(words: tuple[str, ...], path: str, here: Path) -> None:
    for verb in ("plan", "submit", "collect"):
        [mistake] = mistakes(verb, *words)
        assert (mistake.code, mistake.path) == ("no_value", path)


def test_a_scenario_that_is_named_twice_or_not_there_is_a_mistake(here: Path) -> None:
    [mistake] = mistakes("plan", "named", "-c", "named")
    assert mistake.code == "written_twice"
    [mistake] = mistakes("plan", "-c", "name")
    assert (mistake.code, mistake.path) == ("unknown_name", "name")
    assert "Did you mean 'named'?" in mistake.text
    [mistake] = mistakes("plan", "named", "other")
    assert mistake.path == "other"


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "-c", "config/scenarios/quickstart.yaml"),
        ("submit", "quickstart"),
        ("status", "quickstart"),
        ("compare", "quickstart"),
        ("history",),
        ("prune",),
        ("logs", "get", "quickstart"),
        ("stop",),
    ],
    ids=" ".join,
)
def test_a_folder_without_a_study_says_how_to_make_one(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [mistake] = mistakes(*words)
    assert (mistake.code, mistake.file) == ("no_study", str(tmp_path))
    assert "bench init" in mistake.text
    assert not list(tmp_path.iterdir()), "something was written"


def test_a_broken_recipe_is_a_mistake_of_the_scenarios_that_name_it_alone(here: Path) -> None:
    broken, uses = here / "config" / "services" / "broken.yaml", here / "config" / "scenarios" / "uses.yaml"
    broken.write_text("name: broken\nsumary: x\n")
    uses.write_text("scenario: uses\nrepetition: 1\nworkload: {service: broken}\n")
    try:
        assert bench("plan", "named", "--no-write").exit_code == 0
        assert "fileio" in bench("servers", "list").output
        [refused] = mistakes("servers", "start", "postgres", "--nodes", "2")
        assert "--nodes 2" in refused.text
        adapter = AdapterConfig(adapter_name="huggingface")
        assert service_of(adapter, Recipes(broken.parent), "cpu").name == "attention"
        found = mistakes("plan", "uses")
        assert ("unknown_key", "config/services/broken.yaml", 2) in [(m.code, m.file, m.line) for m in found]
        assert ("unknown_key", "config/scenarios/uses.yaml", 2) in [(m.code, m.file, m.line) for m in found]
    finally:
        broken.unlink()
        uses.unlink()


OBJECTIVES = (
    ("fileio", "", "ttft_p99_s <= 1"),
    ("s3", "", "tpot_s <= 1"),
    ("known", "stream: false, ", "ttft_s <= 1"),
    ("postgres", "", "recall_at_10 >= 0.9"),
    ("faiss", "k: 5, ", "recall_at_10 >= 0.9"),
    ("'null'", "", "schedule_lag_p99_s <= 1"),
    ("'null'", "", "goodput_ratio >= 0.9"),
    ("'null'", "", "sessions_per_s >= 1"),
)


@pytest.mark.parametrize(("service", "settings", "objective"), OBJECTIVES)
def test_an_objective_that_a_service_can_never_have_is_refused_by_plan(
    service: str, settings: str, objective: str, here: Path
) -> None:
    text = (
        f"scenario: tried\nworkload: {{service: {service}, {settings}\n  slos: [latency_p99_s <= 1, {objective}]}}\n"
    )
    (here / "tried.yaml").write_text(text)
    [mistake] = mistakes("plan", "tried.yaml", "--no-write")
    assert (mistake.code, mistake.file, mistake.line) == ("conflict", "tried.yaml", 3)
    assert mistake.path == "workload.slos[1]"
    assert objective.split()[0] in mistake.text


@pytest.mark.parametrize(
    "workload",
    [
        "{service: known, slos: [ttft_p99_s <= 1, tpot_s <= 1, goodput_ratio >= 0.9]}",
        "{service: known, stream: [true, false], slos: [ttft_s <= 1]}",
        "{service: faiss, k: 5, slos: [recall_at_5 >= 0.9]}",
        "{service: 'null', pattern: poisson, rate_rps: 5, slos: [schedule_lag_p99_s <= 1]}",
    ],
)
def test_an_objective_that_some_trial_can_have_is_planned(workload: str, here: Path) -> None:
    (here / "tried.yaml").write_text(f"scenario: tried\nworkload: {workload}\n")
    assert bench("plan", "tried.yaml", "--no-write").exit_code == 0


@pytest.mark.slow
def test_more_trials_than_are_planned_in_ten_seconds_are_refused_with_their_count(here: Path) -> None:
    levels = ", ".join(str(level) for level in range(1, 401))
    workload = f"{{service: 'null', concurrency: [{levels}], reply_bytes: [{levels}]}}"
    (here / "tried.yaml").write_text(f"scenario: big\nrepetitions: 1\nworkload: {workload}\n")
    [mistake] = mistakes("plan", "tried.yaml")
    assert "160000 trials" in mistake.text


def test_the_files_of_config_and_requests_that_are_exchanged_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    system, requests = "config/clusters/system_config.yaml", "config/clusters/workflow_requests.yaml"
    for verb in (("baseline", "--gpus", "4"), ("simulate", "--gpus", "4", "--policy", "easy")):
        [mistake] = mistakes(*verb, "--config", requests, "--requests", system)
        assert (mistake.code, mistake.file) == ("conflict", requests)
        assert "exchanged" in mistake.text


def test_a_level_of_a_structure_is_a_baseline_by_its_name() -> None:
    from seamark.housekeeping.compared_results import baseline_of

    root = Path(__file__).parents[2]
    plan = Study.at(root, scenario="sparse_attention_local").plan
    [dense] = {str(trial.settings["method"]) for trial in plan.trials if '"dense"' in str(trial.settings["method"])}
    assert json.loads(dense)["name"] == "dense"
    assert baseline_of(plan, ["method=dense"]) == baseline_of(plan, ["dense"]) == {"method": dense}
    with pytest.raises(UserError, match="Did you mean 'dense'"):
        baseline_of(plan, ["method=dens"])


def test_verbs_of_one_scenario_are_all_tried() -> None:
    elsewhere = {"start", "stop", "doctor", "history", "prune", "load", "baseline", "simulate", "memory", "capacity"}
    elsewhere |= {"colocate", "tekton", "import", "data"}
    tried = {words[0] for words in OF_ONE_SCENARIO} | elsewhere | {"check", "servers", "init", "completion"}
    assert tried == set(verb_summaries())
