"""Runs that cannot begin or go on: what is said is one line with the remedy, and never Snakemake's own words."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from made_wheels import make_wheel
from study_folder import BENCH, StudyFolder

pytestmark = pytest.mark.e2e
AT_WORK = "another run is at work here (process "


def needing(study: StudyFolder, lock: str, **environment: str) -> StudyFolder:
    """Return a study whose one service needs an environment that is not there, made from this lock."""
    study.write(repetitions=1, workload={"component": "storage", "service": "s3", "concurrency": 1})
    (study.root / "envs").mkdir()
    (study.root / "envs/s3.lock").write_text(lock)
    site = study.root / "config/sites/local.yaml"
    paths = {"environments": str(study.root.parent / "cold")}
    site.write_text(yaml.safe_dump(yaml.safe_load(site.read_text()) | {"paths": paths}))
    return StudyFolder(root=study.root, environment=os.environ | environment)


def test_without_a_network_and_with_a_cold_cache_the_package_the_environment_and_the_remedy_are_named(
    study: StudyFolder,
) -> None:
    lock = "nopkg==1.0 --hash=sha256:" + "0" * 64 + "\n"
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "1"}
    done = needing(study, lock, **closed).measure(code=3)
    said = done.stdout + done.stderr
    assert "environment 's3' (" in done.stderr
    assert "http://127.0.0.1:9/nopkg/" in done.stderr
    assert "PIP_INDEX_URL" in done.stderr
    for word in ("Traceback", "SiteError", "Snakemake version", "rule environment"):
        assert word not in said
    assert "Traceback" not in "".join(path.read_text() for path in study.root.rglob("*.json.log"))


@pytest.mark.sweep
def test_a_wheel_with_another_hash_than_the_locks_is_named_and_forgotten_by_the_next_run(
    study: StudyFolder, tmp_path: Path
) -> None:
    wheels = tmp_path / "wheels"
    make_wheel(wheels)
    lock = "tinypkg==1.0 --hash=sha256:" + "0" * 64 + "\n"
    cold = needing(study, lock, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
    done = cold.measure(code=3)
    assert "Hash mismatch for `tinypkg==1.0`" in done.stderr, "uv's own words"
    assert "Traceback" not in done.stdout + done.stderr
    cold.write(repetitions=1, workload={"concurrency": 1})
    again = cold.measure(code=0)
    assert "tinypkg" not in again.stderr


def pair(study: StudyFolder, folder: Path) -> list[tuple[int, str]]:
    """Submit a study twice at once; return exit codes and outputs."""
    runs = []
    for number in range(2):
        with (folder / f"output-{number}").open("wb") as file:
            words = [*BENCH, "submit", "-c", "config/scenarios/try.yaml"]
            runs.append(subprocess.Popen(words, cwd=study.root, stdout=file, stderr=file))
    return [(run.wait(300), (folder / f"output-{number}").read_text()) for number, run in enumerate(runs)]


def assert_one_won(ended: list[tuple[int, str]]) -> None:
    assert sorted(code for code, _ in ended)[0] == 0, ended
    for code, said in ended:
        assert code in (0, 2), said
        assert code == 0 or AT_WORK in said, said
        assert "LockException" not in said
        assert "Traceback" not in said


@pytest.mark.covers("E-NFR04")
def test_of_two_submits_at_once_one_runs_and_the_other_says_who_does(study: StudyFolder, tmp_path: Path) -> None:
    study.write(repetitions=1, workload={"concurrency": 1, "duration_s": 2})
    ended = pair(study, tmp_path)
    assert_one_won(ended)
    assert sorted(code for code, _ in ended) == [0, 2], ended
    assert study.measurements() == {trial.name: 1 for trial in study.trials()}


@pytest.mark.sweep
@pytest.mark.parametrize("case", range(31))
def test_of_many_pairs_of_submits_the_loser_always_says_who_is_at_work(
    study: StudyFolder, tmp_path: Path, case: int, counted: Callable[[str, str], None]
) -> None:
    study.write(repetitions=1, workload={"concurrency": 1})
    ended = pair(study, tmp_path)
    try:
        assert_one_won(ended)
    except AssertionError:
        counted("pairs of submits", "unclear")
        raise
    counted("pairs of submits", "clear")
