"""Whatever happens to a file of the results, bench says which one and what to do; the other trials are untouched."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from damage import OF_FILES, OF_FOLDERS, PLAIN, Damage, changed_values, rewritten
from harm import Harm
from in_process import run, said_by
from study_folder import StudyFolder

pytestmark = pytest.mark.e2e

GOOD = ("-c", "config/scenarios/try.yaml")
READS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", *GOOD),
    "status": ("status", *GOOD, "--json"),
    "collect": ("collect", *GOOD),
    "export prometheus": ("export", "prometheus", *GOOD, "-o", "try.prom"),
    "logs get": ("logs", "get", "try"),
    "prune": ("prune", "--samples-days", "0", "--attempts-days", "0"),
}
"""Verbs that read results, quick enough for each file and each kind of damage."""
LOOKS: dict[str, tuple[str, ...]] = {
    "report": ("report", *GOOD),
    "export slurm": ("export", "slurm", *GOOD),
    "servers ps": ("servers", "ps", "--all"),
    "stop": ("stop", *GOOD),
}
"""Others, for each document and folder in a few kinds of damage."""
RUNS: dict[str, tuple[str, ...]] = {"submit": ("submit", *GOOD), "retry": ("retry", *GOOD)}
RUN_LIMIT_S = 120
DERIVED = ("metrics.json", "metrics.csv", "series.csv", "histogram.json", "telemetry.parquet", "telemetry.csv")
Anew = Callable[[], Path]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of one deployment and two treatments that was measured; to be copied, not changed."""
    study = StudyFolder.new(tmp_path_factory.mktemp("finished") / "study")
    for recipe in (study.root / "config" / "services").glob("*.yaml"):
        if recipe.stem != "null":
            recipe.unlink()  # reading them all would be most of the time of a case
    study.write(repetitions=1)
    study.submit(code=0)
    return study.root


@pytest.fixture
def anew(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Anew:
    """Copies the finished study to the working folder, as often as it is called: files are links, until written."""
    root = tmp_path / "study"

    def copy() -> Path:
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(finished, root, symlinks=True, copy_function=os.link)
        monkeypatch.chdir(root)
        return root

    return copy


def first_trial(root: Path) -> Path:
    return sorted((root / "results" / "try").glob("*--*"))[0]


def paths_of(root: Path) -> Iterator[Path]:
    """Give each file and folder of a finished study's results, of its trials those of one."""
    results = root / "results"
    yield from (results, results / "try", results / "try" / "deployments", results / "try" / "logs", root / "reports")
    yield from (first_trial(root), *sorted(first_trial(root).rglob("*")))
    yield from sorted((results / "try" / "deployments").rglob("*"))
    yield from sorted(path for path in (results / "try").glob("*") if path.is_file())


def kinds_of(path: Path) -> dict[str, Damage]:
    if path.is_dir():
        return dict(OF_FOLDERS)
    return dict(OF_FILES) if path.suffix == ".json" else {kind: OF_FILES[kind] for kind in PLAIN}


def require_words(words: Iterable[str]) -> None:
    """Fail where bench ends with no code of its own, or with an error and not a word of it."""
    code, said = run(list(words))
    assert code in (0, 1, 2, 3), f"ended with {code!r}: {said}"
    assert "Traceback" not in said, said
    assert code in (0, 1) or said.strip(), "refused without a word"


OTHERS = ("samples.json", "metrics.json", "meta.json", "histogram.json")


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("name", ["load.json", *(pytest.param(name, marks=pytest.mark.sweep) for name in OTHERS)])
def test_a_damaged_document_of_a_trial_stops_no_verb(anew: Anew, name: str, counted: Callable[..., None]) -> None:
    harm = Harm(table="damaged documents, a few", counted=counted)
    for kind in ("a folder in its place", "cut", "null", "NaN", "nested deep"):
        for verb in ("status", "export prometheus", "collect")[: 2 + (kind == "cut")]:
            root = anew()
            OF_FILES[kind](first_trial(root) / name)
            harm.case(f"{name}: {kind}: {verb}", lambda verb=verb: require_words(READS[verb]))
    harm.require_none()


@pytest.mark.covers("E-NFR04")
def test_what_is_derived_is_derived_again_and_the_other_trials_are_untouched(anew: Anew) -> None:
    root = anew()
    trial, *others = sorted((root / "results" / "try").glob("*--*"))
    whole = json.loads((trial / "metrics.json").read_text())
    before = {path: path.stat().st_mtime_ns for other in others for path in other.rglob("*") if path.is_file()}
    rewritten(trial / "metrics.json", b"{}")
    OF_FILES["a folder in its place"](trial / "histogram.json")
    said_by(["collect", *GOOD])
    assert json.loads((trial / "metrics.json").read_text())["latency_ms"] == whole["latency_ms"]
    assert json.loads((trial / "histogram.json").read_text())["histograms"]
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.covers("E-NFR04")
def test_a_run_makes_damaged_records_again_and_measures_nothing_but_what_is_lost(anew: Anew) -> None:
    root = anew()
    study = StudyFolder(root=root)
    trial, other = sorted(study.results.glob("*--*"))
    before = (other / "load.json").stat().st_mtime_ns
    (root / "results" / ".environments").mkdir()
    (root / "results" / ".environments" / "s3-0123456789ab.json").write_text("[]")
    (root / "results" / ".environments" / "triton-0123456789ab.json").write_text('{"root": 5}')
    rewritten(next(study.results.glob("deployments/*/deployment.json")), b"[]")
    rewritten(study.results / "summary.json", b"{")
    rewritten(trial / "metrics.json", b"null")
    done = study.measure(code=0)
    assert "Traceback" not in done.stdout + done.stderr
    assert study.json("summary.json")["ok"] == 2
    assert study.json(f"{trial.name}/metrics.json")["status"] == "ok"
    assert next(study.results.glob("deployments/*/deployment.json")).read_text().startswith("{")
    assert (other / "load.json").stat().st_mtime_ns == before
    assert set(study.measurements().values()) == {1}, "measured again without need"


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("place", ["results", "results/try"])
def test_a_file_where_results_are_to_lie_is_named(anew: Anew, place: str) -> None:
    root = anew()
    OF_FOLDERS["a file in its place"](root / place)
    for verb in (*READS, "submit", "retry"):
        code, said = run([*{**READS, **RUNS}[verb]])
        assert code == 2 or (verb in ("logs get", "prune") and place != "results"), verb
        assert "is not a folder" in said or code != 2 or verb in ("logs get", "prune"), said


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
def test_no_damage_of_any_file_or_folder_ends_in_a_traceback(
    finished: Path, anew: Anew, counted: Callable[..., None]
) -> None:
    harm = Harm(table="damaged files and folders", counted=counted, limit_s=120)
    for path in paths_of(finished):
        verbs = (
            READS | LOOKS if path.is_dir() or (path.suffix == ".json" and path.parent.name != ".keeper") else READS
        )
        for kind, damage in kinds_of(path).items():
            for verb, words in verbs.items():
                damage(anew() / path.relative_to(finished))
                harm.case(f"{path.relative_to(finished)}: {kind}: {verb}", lambda words=words: require_words(words))
    harm.require_none()


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
def test_no_other_value_in_a_document_ends_in_a_traceback(
    finished: Path, anew: Anew, counted: Callable[..., None]
) -> None:
    harm = Harm(table="documents with another value", counted=counted, limit_s=120)
    for path in paths_of(finished):
        if path.suffix != ".json" or not path.is_file():
            continue
        for name, text in changed_values(path, 20, 1):
            for verb in ("plan", "status", "collect", "export prometheus", "prune"):
                rewritten(anew() / path.relative_to(finished), text.encode())
                words = READS[verb]
                harm.case(f"{path.relative_to(finished)}: {name}: {verb}", lambda words=words: require_words(words))
    harm.require_none()


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
def test_no_damage_keeps_a_run_from_going_on(finished: Path, anew: Anew, counted: Callable[..., None]) -> None:
    harm = Harm(table="runs over damaged results", counted=counted, limit_s=RUN_LIMIT_S + 30)
    for path in paths_of(finished):
        if path.suffix not in ("", ".json", ".parquet") or path.parent.name == ".keeper":
            continue
        for kind in ("a file in its place",) if path.is_dir() else ("a folder in its place", "cut"):
            for verb in RUNS:
                root = anew()
                for file in [each for each in root.rglob("*") if each.is_file() and not each.is_symlink()]:
                    rewritten(file, file.read_bytes())  # a run writes to files that are there: they are its own then
                kinds_of(path)[kind](root / path.relative_to(finished))
                harm.case(f"{path.relative_to(finished)}: {kind}: {verb}", lambda verb=verb: goes_on(verb))
    harm.require_none()


def goes_on(verb: str) -> None:
    """Run bench itself; fail at a traceback, and where it ends with an error that names no remedy."""
    done = StudyFolder(root=Path.cwd()).bench(*RUNS[verb], timeout=RUN_LIMIT_S)
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    assert done.returncode in (0, 1, 2, 3)
    assert done.returncode in (0, 1) or done.stderr.strip()
