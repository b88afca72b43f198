"""The locks of a node: nobody but their user can hold them, and who waits is told for whom."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from seamark.errors import SiteError
from seamark.model.results.deployment_record import LockHolder
from seamark.services.supervisor.node_locks import RUNTIME_DIR, locked, node_folder, open_lock, try_lock

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes another user's files: needs root")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where folders of users are made, and a home."""
    monkeypatch.setenv(RUNTIME_DIR, str(tmp_path / "common"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "common").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path / "common"


def test_the_folder_is_the_users_alone_and_does_not_move_with_the_temporary_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = node_folder()
    assert (folder, folder.stat().st_mode & 0o777) == (place / f"seamark-{os.geteuid()}", 0o700)
    monkeypatch.setenv("TMPDIR", str(place / "elsewhere"))
    assert node_folder() == folder
    monkeypatch.delenv(RUNTIME_DIR)
    assert node_folder() == Path(f"/tmp/seamark-{os.geteuid()}")


def test_a_folder_of_ours_that_others_may_enter_is_closed(place: Path) -> None:
    (place / f"seamark-{os.geteuid()}").mkdir(mode=0o755)
    assert node_folder().stat().st_mode & 0o777 == 0o700


@as_root
def test_a_folder_that_another_user_has_made_blocks_nothing(place: Path) -> None:
    squat = place / f"seamark-{os.geteuid()}"
    squat.mkdir()
    os.chown(squat, OTHER, OTHER)
    folder = node_folder()
    assert folder.is_relative_to(Path.home() / ".cache/seamark/nodes")
    with locked("load.lock", LockHolder(), pytest.fail, pytest.fail):
        assert list(squat.iterdir()) == []


def test_a_link_in_the_folders_place_is_not_followed(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (place / f"seamark-{os.geteuid()}").symlink_to(target)
    assert node_folder().is_relative_to(Path.home())
    assert list(target.iterdir()) == []


def test_a_link_in_a_locks_place_makes_no_file_elsewhere(place: Path, tmp_path: Path) -> None:
    (node_folder() / "load.lock").symlink_to(tmp_path / "planted")
    with pytest.raises(OSError, match="symbolic link"):
        open_lock("load.lock")
    assert not (tmp_path / "planted").exists()


def test_where_no_folder_can_be_had_the_reasons_and_the_variable_are_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / f"seamark-{os.geteuid()}").touch()
    Path.home().joinpath(".cache").touch()
    with pytest.raises(SiteError, match=r"seamark-\d+: it is a link, or no folder; .*nodes.*SEAMARK_RUNTIME_DIR"):
        node_folder()


ADA = LockHolder(pid=7, user="ada", study="/s")


@pytest.mark.slow
def test_one_that_waits_hears_for_whom_after_two_seconds_and_not_before(place: Path) -> None:
    heard: list[tuple[float, LockHolder]] = []
    began_s = time.monotonic()
    release = threading.Timer(3.0, lambda: first.__exit__(None, None, None))
    first = locked("load.lock", ADA, pytest.fail, pytest.fail)
    first.__enter__()
    release.start()
    with locked(
        "load.lock", LockHolder(), lambda: None, lambda holder: heard.append((time.monotonic() - began_s, holder))
    ):
        waited_s = time.monotonic() - began_s
    assert waited_s >= 3.0
    assert heard[0][0] >= 2.0
    assert heard[0][1] == ADA


def test_a_lock_whose_file_was_removed_is_taken_on_the_new_file(place: Path) -> None:
    held = try_lock("load.lock")
    assert held is not None
    (node_folder() / "load.lock").unlink()
    other = try_lock("load.lock")
    assert other is not None, "the name is free"
    assert try_lock("load.lock") is None


def test_a_lock_that_is_shared_excludes_who_wants_it_alone_and_nobody_else(place: Path) -> None:
    first, second = try_lock("load.lock", shared=True), try_lock("load.lock", shared=True)
    assert first is not None
    assert second is not None
    assert try_lock("load.lock") is None
    first.close()
    assert try_lock("load.lock") is None
    second.close()
    alone = try_lock("load.lock")
    assert alone is not None
    assert try_lock("load.lock", shared=True) is None


@as_root
def test_another_user_can_neither_lock_nor_read_a_lock(place: Path) -> None:
    with open_lock("load.lock") as file:
        path = file.name if isinstance(file.name, str) else str(node_folder() / "load.lock")
    place.chmod(0o777)
    place.parent.chmod(0o755)
    program = f"import os; os.setuid({OTHER}); open({path!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "PermissionError" in done.stderr


def test_a_process_that_holds_a_lock_and_is_killed_holds_it_no_more(place: Path) -> None:
    held = try_lock("load.lock")
    assert held is not None
    with suppress(BlockingIOError), open_lock("load.lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        pytest.fail("two hold it")
    held.close()
    assert try_lock("load.lock") is not None
