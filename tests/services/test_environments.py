"""Environments of services: found by content, built once, whole or not at all. Builds are real, from PyPI."""

import ast
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from processes import eventually

from seamark.errors import SiteError, UserError
from seamark.services.runtimes.environments import COMPLETE, damage_hint, environment_folder, prepare_environment

TINY_LOCK = """\
iniconfig==2.0.0 \\
    --hash=sha256:b6a85871a79d2e3b22d2d1b94ac2824226a63c6b741c88f7ae975f18b6778374
"""
NEEDY_LOCK = """\
jinja2==3.1.6 \\
    --hash=sha256:0137fb05990d35f1275a587e9aee6d56da821fc83491a0fb838183be43f66d6d \\
    --hash=sha256:85ece4451f492d0c13c5dd7c13a64681a86afae63a5f347908daf103ce6d2f67
"""
"""It needs another distribution, MarkupSafe."""


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    folder = tmp_path / "locks"
    folder.mkdir()
    (folder / "tiny.lock").write_text(TINY_LOCK)
    return folder


def test_an_environment_is_named_by_what_its_lock_says(locks: Path, tmp_path: Path):
    first = environment_folder("tiny", locks, tmp_path)
    (locks / "copy.lock").write_text(TINY_LOCK)
    assert environment_folder("copy", locks, tmp_path).name.split("-")[1] == first.name.split("-")[1]
    (locks / "tiny.lock").write_text(TINY_LOCK + "# another remark\n")
    assert environment_folder("tiny", locks, tmp_path) != first


@pytest.mark.covers("E-FR13")
def test_a_lock_without_a_hash_is_an_error_that_names_the_requirement(locks: Path, tmp_path: Path):
    (locks / "tiny.lock").write_text(TINY_LOCK + "colorama==0.4.6\npluggy==1.5.0 ; python_version > '3'\n")
    with pytest.raises(UserError) as caught:
        prepare_environment("tiny", locks, tmp_path / "envs")
    assert ["colorama==0.4.6" in mistake for mistake in caught.value.lines] == [True, False]
    assert len(caught.value.lines) == 2
    assert not (tmp_path / "envs").exists()


def test_an_unknown_environment_names_the_nearest(locks: Path, tmp_path: Path):
    with pytest.raises(UserError, match="Did you mean 'tiny'"):
        environment_folder("tinny", locks, tmp_path)


@pytest.mark.services
def test_a_half_built_environment_is_built_anew_and_a_whole_one_is_kept(locks: Path, tmp_path: Path):
    root = tmp_path / "envs"
    folder = environment_folder("tiny", locks, root)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("half of it")
    assert prepare_environment("tiny", locks, root) == folder
    done = subprocess.run([folder / "bin" / "python", "-c", "import iniconfig"], check=False)
    assert done.returncode == 0
    built_ns = (folder / ".complete").stat().st_mtime_ns
    (folder / "kept").touch()
    prepare_environment("tiny", locks, root)
    assert (folder / ".complete").stat().st_mtime_ns == built_ns
    assert (folder / "kept").exists()


@pytest.mark.services
def test_a_lock_may_leave_dependencies_out_and_register_what_another_distribution_stands_for(
    locks: Path, tmp_path: Path
):
    (locks / "tiny.lock").write_text("# pip: --no-deps\n# alias: jinja2-next==4.0+cpu\n" + NEEDY_LOCK)
    folder = prepare_environment("tiny", locks, tmp_path / "envs")
    question = (
        "from importlib.metadata import distributions as all; print(sorted((d.name, d.version) for d in all()))"
    )
    done = subprocess.run([folder / "bin" / "python", "-c", question], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == [("Jinja2", "3.1.6"), ("jinja2-next", "4.0+cpu")]


def prepare(locks: Path, root: Path) -> None:
    prepare_environment("tiny", locks, root)


@pytest.mark.services
def test_of_two_that_build_at_once_one_builds_and_both_have_it(locks: Path, tmp_path: Path):
    root = tmp_path / "envs"
    spawn = multiprocessing.get_context("spawn")
    builders = [spawn.Process(target=prepare, args=(locks, root)) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(120)
    assert [builder.exitcode for builder in builders] == [0, 0]
    log = environment_folder("tiny", locks, root).with_suffix(".log").read_text()
    assert log.count("+ iniconfig==2.0.0") == 1


@pytest.mark.services
def test_a_build_killed_by_9_leaves_no_lock_and_the_next_one_succeeds(locks: Path, tmp_path: Path):
    root = tmp_path / "envs"
    folder = environment_folder("tiny", locks, root)
    code = textwrap.dedent(f"""
        from pathlib import Path
        from seamark.services.runtimes.environments import prepare_environment
        prepare_environment("tiny", Path({str(locks)!r}), Path({str(root)!r}))
    """)
    builder = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    assert eventually((folder / "bin").exists, within_s=60)
    os.killpg(builder.pid, signal.SIGKILL)
    builder.wait()
    assert not (folder / ".complete").exists()
    assert prepare_environment("tiny", locks, root) == folder
    assert (folder / ".complete").exists()


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(("lost", "says"), [("bin/python", "no interpreter"), ("lib", "no packages")])
def test_a_damaged_environment_says_how_to_make_it_anew(locks: Path, tmp_path: Path, lost: str, says: str):
    folder = environment_folder("tiny", locks, tmp_path)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "lib" / "python3.11" / "site-packages" / "iniconfig").mkdir(parents=True)
    (folder / COMPLETE).write_text(TINY_LOCK)
    assert prepare_environment("tiny", locks, tmp_path) == folder
    (folder / lost).rename(tmp_path / "elsewhere")
    with pytest.raises(SiteError, match=f"it has {says}.*`rm -r .*tiny-.*`, and the next run builds it again"):
        prepare_environment("tiny", locks, tmp_path)


def test_a_load_that_cannot_import_says_how_to_make_its_environment_anew_and_another_does_not(tmp_path: Path):
    assert damage_hint(tmp_path, ["ConnectionRefusedError: no"]) == ""
    assert "`rm -r " in damage_hint(
        tmp_path, ["Traceback", "ImportError: libpq.so.5: cannot open shared object file"]
    )
