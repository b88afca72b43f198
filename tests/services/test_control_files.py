"""The signs between keeper and others when the keeper is on another node: only files then, and clocks that differ."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from seamark.dispatch.identity import boot_id
from seamark.services.supervisor.control_files import (
    ControlFiles,
    acquire_lock,
    control_files_of,
    is_alive,
    write_heartbeat,
)
from seamark.services.supervisor.deployment import alive, why_ended
from seamark.storage.paths import DeploymentFolder


@pytest.fixture
def control(tmp_path: Path) -> ControlFiles:
    control = control_files_of(DeploymentFolder(root=tmp_path))
    control.root.mkdir()
    return control


def beat_of_another_node(control: ControlFiles, age_s: float) -> None:
    beat = {"pid": 1, "node": "n2", "boot": "another", "allocation": None, "monotonic_ns": 5}
    control.heartbeat.write_text(json.dumps(beat))
    os.utime(control.heartbeat, (time.time() - age_s, time.time() - age_s))


@pytest.mark.parametrize(("age_s", "lives"), [(1, True), (-1, True), (3600, False)])
def test_a_keeper_on_another_node_lives_as_long_as_it_beats(control: ControlFiles, age_s: float, lives: bool):
    beat_of_another_node(control, age_s)
    assert is_alive(control) is lives


@pytest.mark.slow
@pytest.mark.parametrize("behind_s", [30, -30])
def test_a_node_whose_clock_is_wrong_is_watched_before_its_keeper_counts_as_gone(
    control: ControlFiles, behind_s: float
):
    beat_of_another_node(control, behind_s)
    later = threading.Timer(0.5, beat_of_another_node, (control, behind_s - 1))
    later.start()
    assert is_alive(control)
    later.join()
    assert not is_alive(control)


def test_a_keeper_of_this_node_that_is_gone_is_known_at_once_however_young_its_beat(
    control: ControlFiles, tmp_path: Path
):
    write_heartbeat(control, os.getpid())
    assert alive(DeploymentFolder(root=tmp_path))
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    write_heartbeat(control, gone)
    assert not alive(DeploymentFolder(root=tmp_path))
    ended = why_ended(DeploymentFolder(root=tmp_path))
    assert ended is not None
    assert ended["why"] == "crash"


def test_a_keeper_that_hangs_counts_as_gone(control: ControlFiles):
    write_heartbeat(control, os.getpid())
    beat = json.loads(control.heartbeat.read_text())
    control.heartbeat.write_text(json.dumps(beat | {"monotonic_ns": time.monotonic_ns() - int(61e9)}))
    assert not is_alive(control)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_heartbeat_is_none(control: ControlFiles, content: str):
    control.heartbeat.write_text(content)
    assert not is_alive(control)


def test_what_never_ran_is_neither_alive_nor_ended(tmp_path: Path):
    folder = DeploymentFolder(root=tmp_path / "never")
    assert not alive(folder)
    assert why_ended(folder) is None


def test_a_lock_is_held_by_one(tmp_path: Path):
    first = acquire_lock(tmp_path / "lock")
    assert first is not None
    assert acquire_lock(tmp_path / "lock") is None
    first.close()
    assert acquire_lock(tmp_path / "lock") is not None


def test_a_boot_is_the_same_for_all_processes_of_a_node():
    assert boot_id() == boot_id() != ""
