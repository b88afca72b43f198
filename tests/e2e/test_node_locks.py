"""Loads of a node that wait for each other: who waits says for whom, and another user can make nobody wait."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import eventually
from study_folder import BENCH, StudyFolder

pytestmark = pytest.mark.e2e
HOLD_ALL = """
import fcntl, os, sys, time
os.chdir(sys.argv[1])
os.setuid(65534)
held = []
for root, folders, names in os.walk("."):
    for name in names:
        try:
            held.append(open(os.path.join(root, name)))
            fcntl.flock(held[-1], fcntl.LOCK_EX)
        except OSError:
            pass
print(len(held), flush=True)
time.sleep(600)
"""


@pytest.fixture
def own(tmp_path: Path, study: StudyFolder) -> tuple[StudyFolder, Path]:
    """A study of one trial whose run has temporary folder and locks in a folder of its own."""
    study.write(repetitions=1, workload={"concurrency": 1})
    common = tmp_path / "common"
    common.mkdir()
    common.chmod(0o1777)
    environment = os.environ | {"TMPDIR": str(common), "SEAMARK_RUNTIME_DIR": str(common)}
    return StudyFolder(root=study.root, environment=environment), common


@pytest.mark.sweep
def test_a_run_that_waits_for_another_load_says_whose_it_is(own: tuple[StudyFolder, Path], tmp_path: Path) -> None:
    study, common = own
    (folder := common / f"seamark-{os.geteuid()}").mkdir(mode=0o700)
    with (folder / "load.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        json.dump({"pid": 7, "user": "ada", "study": "/studies/ada"}, held)
        held.flush()
        output = tmp_path / "output"
        with output.open("w") as file:
            run = subprocess.Popen(
                [*BENCH, "submit", "-c", "config/scenarios/try.yaml"],
                cwd=study.root,
                env=dict(study.environment or {}),
                stdout=file,
                stderr=file,
            )
        says = "waits for another load on its node: process 7 of ada, in the study /studies/ada"
        assert eventually(lambda: says in output.read_text(), within_s=60)
        status = study.bench("status", "-c", "config/scenarios/try.yaml", "--json")
        assert [state["detail"] for state in json.loads(status.stdout)["states"]] == [says]
    assert run.wait(60) == 0, output.read_text()
    assert not list(study.results.rglob("waiting.json"))


@pytest.mark.sweep
@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user: needs root")
def test_another_user_who_locks_and_links_what_they_can_delays_nothing_and_has_no_file_made(
    own: tuple[StudyFolder, Path], tmp_path: Path
) -> None:
    study, common = own
    for name in (f"seamark-{os.getuid()}.lock", "load.lock"):
        (common / name).touch()
    planted = tmp_path / "planted"
    for name in (f"seamark-{os.getuid()}-try.lock", "seamark-0-here-gpu-0.lock"):
        (common / name).symlink_to(planted)
    hostile = subprocess.Popen(
        [sys.executable, "-c", HOLD_ALL, str(common)], stdout=subprocess.PIPE, text=True, cwd="/"
    )
    try:
        assert hostile.stdout is not None
        assert int(hostile.stdout.readline()) >= 2
        done = study.measure(code=0)
        assert "waits" not in done.stdout
    finally:
        hostile.kill()
        hostile.wait()
    assert not planted.exists()
