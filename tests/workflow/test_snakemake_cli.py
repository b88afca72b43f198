"""How Snakemake is called, and who may: a live run keeps its study, a dead one does not."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from shipped import SITES
from study_folder import StudyFolder

from seamark.cli.submit import take_over
from seamark.config.read import read_site
from seamark.errors import UserError
from seamark.planning.study import Study
from seamark.workflow.snakemake_cli import _is_snakemake, command, release, runs_in

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def running(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that looks like Snakemake at work in `tmp_path`, and has locked it."""
    (tmp_path / ".snakemake" / "locks").mkdir(parents=True)
    (tmp_path / ".snakemake" / "locks" / "0.input.lock").touch()
    script = tmp_path / "snakemake"
    script.write_text("print('up', flush=True)\nimport time\ntime.sleep(60)\n")
    process = subprocess.Popen([sys.executable, script], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.covers("E-NFR04")
def test_a_second_run_in_a_study_is_refused_while_the_first_lives(running, tmp_path):
    assert [process.pid for process in runs_in(tmp_path)] == [running.pid]
    with pytest.raises(UserError, match=rf"another run is at work here \(process {running.pid}\).*bench stop"):
        release(tmp_path)
    assert list((tmp_path / ".snakemake" / "locks").iterdir())


@pytest.mark.covers("E-NFR04")
def test_the_lock_of_a_killed_run_is_taken_away(running, tmp_path):
    running.kill()
    running.wait()
    release(tmp_path)
    assert not (tmp_path / ".snakemake" / "locks").exists()


def test_a_run_in_another_study_disturbs_nobody(running, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    release(other)
    assert runs_in(other) == []


@pytest.mark.covers("E-MLX01")
def test_the_profile_of_a_site_lets_plain_snakemake_submit_no_more_than_the_site_allows():
    for site in map(read_site, SITES):
        profile = yaml.safe_load((ROOT / "profiles" / site.profile / "config.yaml").read_text())
        if site.max_submit is not None:
            assert profile["jobs"] == site.max_submit, site.name


def test_the_profile_of_the_site_is_named_and_what_is_asked_comes_last(tmp_path):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    study = Study.at(tmp_path, scenario="config/scenarios/llm_vllm_baseline.yaml", site="meluxina")
    words = command(study, ("a.json",), ("--dry-run",))
    assert Path(words[words.index("--profile") + 1]).name == "meluxina"
    assert words[words.index("--directory") + 1] == str(tmp_path)
    assert "a.json" in words
    assert words[-3:] == ["--config", 'scenario= "config/scenarios/llm_vllm_baseline.yaml" ', 'site= "meluxina" ']
    local = command(Study.at(tmp_path, scenario="config/scenarios/null.yaml"))
    assert "--profile" not in local


@pytest.mark.parametrize(
    ("words", "is_run"),
    [
        (("python3", "-m", "snakemake", "--jobs", "2"), True),
        (("/v/bin/python3.12", "-X", "dev", "-m", "snakemake"), True),
        (("/v/bin/python3", "/v/bin/snakemake"), True),
        (("snakemake",), True),
        (("vim", "docs/snakemake"), False),
        (("python3", "watch.py", "snakemake"), False),
        (("bash", "-c", "sleep 5", "snakemake"), False),
        ((), False),
    ],
)
def test_a_program_with_snakemake_among_its_arguments_is_no_run(words, is_run):
    assert _is_snakemake(words) is is_run


def test_an_environment_that_an_interrupted_run_left_is_no_work_of_its_own(tmp_path: Path) -> None:
    """Snakemake would make an incomplete record again, and nothing of what waits for it."""
    study = Study.at(StudyFolder.new(tmp_path / "study").root, scenario="config/scenarios/try.yaml")
    record = study.results / ".environments" / "postgres-0123456789ab.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    take_over(study)
    assert record.exists(), "no run was interrupted"
    mark = study.root / ".snakemake" / "incomplete" / "cmVzdWx0cw=="
    mark.parent.mkdir(parents=True)
    mark.write_text("{}")
    take_over(study)
    assert not record.exists()
