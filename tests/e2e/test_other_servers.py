"""Trials of another server, site, machine or configuration: named, kept, and never shown as those of this run."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml
from processes import running, until
from study_folder import StudyFolder

import seamark

pytestmark = pytest.mark.e2e
PACKAGE = Path(seamark.__file__).parent
TRY = ("-c", "config/scenarios/try.yaml")


@pytest.fixture
def small(study: StudyFolder) -> StudyFolder:
    """A study of two trials."""
    study.write(repetitions=1)
    return study


@pytest.fixture(scope="module")
def submitted_small(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """The study of two trials after a submit: to be copied, not changed."""
    folder = StudyFolder.new(tmp_path_factory.mktemp("small") / "study")
    folder.write(repetitions=1)
    folder.measure(code=0)
    return folder


@pytest.fixture
def measured_small(submitted_small: StudyFolder, tmp_path: Path) -> StudyFolder:
    return submitted_small.copy(tmp_path / "measured")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[Callable[[int], str]]:
    """Start a server that waits that many milliseconds before each reply; return its address."""
    with ExitStack() as held:

        def start(delay_ms: int) -> str:
            log = tmp_path / f"server-{delay_ms}.log"
            words = [
                sys.executable,
                str(PACKAGE / "platform/isolated_main.py"),
                "seamark.testservers.null",
                "--host=127.0.0.1",
            ]
            words += ["--port=0", f"--delay-ms={delay_ms}"]
            words += [f"--{name}=0" for name in ("stall-from-s", "stall-for-s", "error-every", "reset-every")]
            server = held.enter_context(running([*words, "--silent-every=0", "--reply-bytes=2"], log))
            until(lambda: psutil.Process(server.pid).net_connections(kind="tcp"), log)
            [listening] = [c for c in psutil.Process(server.pid).net_connections(kind="tcp") if c.status == "LISTEN"]
            return f"127.0.0.1:{listening.laddr.port}"

        yield start


def external(study: StudyFolder, address: str) -> None:
    site = {"name": "mine", "summary": "a server of mine", "runtime": "external", "address": address}
    (study.root / "config/sites/mine.yaml").write_text(yaml.safe_dump(site))


def edit(study: StudyFolder, old: str, new: str) -> None:
    """Change the recipe of the null service."""
    path = study.root / "config/services/null.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def measured(study: StudyFolder) -> dict[str, bytes]:
    """Return every raw sample and figure of the study's trials."""
    kept = ("samples.parquet", "samples.json", "load.json", "metrics.json", "meta.json", "effective_config.yaml")
    return {str(path): path.read_bytes() for trial in study.trials() for path in trial.iterdir() if path.name in kept}


def place_of(study: StudyFolder) -> set[str]:
    """Return where the trials that are there say that they were measured."""
    return {json.loads((trial / "samples.json").read_text())["server_identity"]["site"] for trial in study.trials()}


@pytest.mark.sweep
@pytest.mark.covers("E-NFR01", "B9", "D9")
def test_trials_of_another_server_are_named_by_every_verb_and_measured_anew_only_when_that_is_asked_for(
    small: StudyFolder, address: Callable[[int], str]
) -> None:
    external(small, first := address(1))
    small.bench("submit", *TRY, "--site", "mine", code=0)
    before = measured(small)
    node = os.uname().nodename
    named = (
        f"results/try: 2 trials were measured on {first} (external, site 'mine', from {node}); this run asks for site"
        f" 'local' (venv, on {node})."
    )

    done = small.submit()
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    for way in ("`scenario:`", "`paths: {results: results-local, reports: reports-local}`", "--measure-anew"):
        assert way in done.stderr
    planned = small.bench("plan", *TRY)
    assert (planned.returncode, named in planned.stdout) == (0, True), planned.stdout
    assert json.loads(small.bench("plan", *TRY, "--json").stdout)["conflicts"][0]["trials"]
    status = small.bench("status", *TRY)
    assert (named in status.stdout, "0 of 2 trials measured" in status.stdout) == (True, True), status.stdout
    document = json.loads(small.bench("status", *TRY, "--json").stdout)
    assert (document["ok"], document["other"], len(document["conflicts"])) == (0, 2, 1)
    snake = small.snakemake("--cores", "1")
    assert snake.returncode != 0
    assert named in snake.stdout + snake.stderr
    for words in (("start",), ("retry", small.trials()[0].name), ("submit", "-n")):
        refused = small.bench(words[0], *TRY, *words[1:])
        assert refused.returncode != 0, words
    shown = small.bench("submit", *TRY, "-n", "--measure-anew")
    assert (shown.returncode, "set aside and measured again" in shown.stdout) == (0, True), shown.stderr
    assert measured(small) == before, "nothing was measured, republished or moved"

    anew = small.bench("submit", *TRY, "--measure-anew", code=0)
    assert "only derived files" not in anew.stdout
    assert place_of(small) == {"local"}
    for path, content in before.items():
        kept = Path(path).parent / "attempts/1" / Path(path).name
        assert kept.read_bytes() == content, "old files lie in attempts as they were"
    assert "all 2 trials are there" in small.measure().stdout

    external(small, address(2))
    other = small.bench("submit", *TRY, "--site", "mine")
    assert (other.returncode, "2 trials were measured on site 'local'" in other.stderr) == (2, True)


@pytest.mark.covers("E-NFR01", "E-NFR05")
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("--delay-ms={settings[delay_ms]}", "--delay-ms=3", "recipe.command: --delay-ms={settings[delay_ms]} -> "),
        pytest.param(
            "  ports: [main]",
            "  environment: {OMP_NUM_THREADS: '1'}\n  ports: [main]",
            "environment.OMP_NUM_THREADS: ",
            marks=pytest.mark.sweep,
        ),
        pytest.param("    default: 2\n", "    default: 16\n", "reply_bytes: 2 -> 16", marks=pytest.mark.sweep),
        pytest.param('version: "1"', 'version: "2"', "version: 1 -> 2", marks=pytest.mark.sweep),
    ],
)
def test_an_edited_recipe_reuses_and_overwrites_no_trial(
    finished: StudyFolder, old: str, new: str, says: str
) -> None:
    before = measured(finished)
    edit(finished, old, new)
    done = finished.measure(code=2)
    assert "4 trials were measured with another configuration on site 'local'" in done.stderr
    assert says in done.stderr
    assert measured(finished) == before


@pytest.mark.sweep
@pytest.mark.covers("E-NFR01", "E-NFR05")
def test_trials_of_an_edited_recipe_are_measured_anew_and_those_of_the_first_kept(
    finished: StudyFolder,
) -> None:
    before = measured(finished)
    edit(finished, 'version: "1"', 'version: "2"')
    anew = finished.measure("--measure-anew", code=0)
    assert "4 of 4 trials to measure" in anew.stdout
    for path, content in before.items():
        assert (Path(path).parent / "attempts/1" / Path(path).name).read_bytes() == content
    edit(finished, 'version: "2"', 'version: "1"')
    assert finished.measure().returncode == 2, "the first recipe does not take the second one's trials either"


@pytest.mark.sweep
def test_failures_of_another_server_are_measured_anew_and_kept_in_attempts(small: StudyFolder) -> None:
    edit(small, "    timeout_s: 20\n", "    timeout_s: 1\n")
    external(small, "127.0.0.1:1")
    assert small.bench("submit", *TRY, "--site", "mine").returncode == 1
    done = small.measure()
    assert (done.returncode, "2 of 2 trials to measure" in done.stdout) == (0, True), done.stdout + done.stderr
    assert place_of(small) == {"local"}
    for trial in small.trials():
        assert json.loads((trial / "attempts/1/load.json").read_text())["category"] == "server_never_healthy"


def forget(study: StudyFolder) -> None:
    """Make results what they were before servers had identities."""
    for trial in study.trials():
        for name in ("samples.json", "load.json", "meta.json"):
            document = json.loads((trial / name).read_text())
            del document["server_identity"]
            (trial / name).write_text(json.dumps(document))


@pytest.mark.sweep
@pytest.mark.covers("E-NFR05")
def test_results_that_know_no_server_stand_and_the_report_says_so_once(measured_small: StudyFolder) -> None:
    forget(measured_small)
    again = measured_small.submit()
    assert (again.returncode, "all 2 trials are there" in again.stdout) == (0, True), again.stderr
    assert set(measured_small.measurements().values()) == {1}
    assert measured_small.bench("collect", *TRY).returncode == 0
    page = (measured_small.root / "reports/try/report.md").read_text()
    assert page.count("server identity not recorded") == 1
    [server] = measured_small.json("summary.json")["servers"]
    assert (server["place"], server["trials"]) == (None, 2)


@pytest.mark.sweep
@pytest.mark.covers("E-NFR05", "E-FR12")
def test_results_of_two_servers_are_marked_in_every_table(
    measured_small: StudyFolder, address: Callable[[int], str]
) -> None:
    for trial in measured_small.trials()[1:]:
        trial.rename(measured_small.root / trial.name)
    external(measured_small, address(2))
    assert measured_small.bench("retry", *TRY, "--site", "mine", measured_small.trials()[0].name).returncode == 0
    second = next(measured_small.root.glob("null-*"))
    for path in (measured_small.results / second.name).iterdir():
        path.rename(measured_small.root / f"gone-{path.name}")
    for path in second.iterdir():
        path.rename(measured_small.results / second.name / path.name)
    done = measured_small.bench("collect", *TRY, env=os.environ | {"COLUMNS": "200"}, code=0)
    assert "These trials were measured on several servers" in done.stdout
    assert {"server=A", "server=B"} <= set(done.stdout.split())
    summary = measured_small.json("summary.json")
    assert {server["name"] for server in summary["servers"]} == {"A", "B"}
    assert sorted(name for each in summary["treatments"] for name in each["trial_servers"]) == ["A", "B"]
    assert all("servers_differ" in [r["code"] for r in each["reasons"]] for each in summary["treatments"])
    assert {each["verdict"] for each in summary["treatments"]} <= {"SUSPECT", "INVALID"}
    page = (measured_small.root / "reports/try/report.md").read_text()
    assert "| Servers | A: null on " in page or "Servers: A: null on " in page or "A: null on " in page
    header = (measured_small.results / "summary.csv").read_text().splitlines()[0].split(",")
    assert "server" in header
