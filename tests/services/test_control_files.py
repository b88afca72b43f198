"""Heartbeats and leases: on this node and another, with clocks that differ. The clock is an argument: none sleeps."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from seamark.dispatch.identity import boot_id
from seamark.services.supervisor.control_files import (
    ControlFiles,
    NodeClock,
    acquire_lock,
    control_files_of,
    is_alive,
    request_stop,
    touch,
    write_heartbeat,
)
from seamark.services.supervisor.deployment import alive, why_ended
from seamark.services.supervisor.events import EndedError
from seamark.services.supervisor.liveness import LivenessMonitor
from seamark.storage.paths import DeploymentFolder


@pytest.fixture
def control(tmp_path: Path) -> ControlFiles:
    control = control_files_of(DeploymentFolder(root=tmp_path))
    control.root.mkdir()
    return control


class FakeClock:
    """A clock that moves only by sleeping; `on_sleep` is called after each sleep."""

    def __init__(self) -> None:
        self.now_ns = time.monotonic_ns()
        self.on_sleep: Callable[[], object] = lambda: None

    def sleep(self, wait_s: float) -> None:
        self.now_ns += int(wait_s * 1e9)
        self.on_sleep()

    def clock(self) -> NodeClock:
        return NodeClock(monotonic_ns=lambda: self.now_ns, sleep=self.sleep)


@pytest.fixture
def fake() -> FakeClock:
    return FakeClock()


def heartbeat_of_another_node(control: ControlFiles, age_s: float) -> None:
    document = {"pid": 1, "node": "n2", "boot": "another", "allocation": None, "monotonic_ns": 5}
    control.heartbeat.write_text(json.dumps(document))
    os.utime(control.heartbeat, (time.time() - age_s, time.time() - age_s))


@pytest.mark.parametrize(("age_s", "lives"), [(1, True), (-1, True), (3600, False)])
def test_a_supervisor_on_another_node_lives_while_its_heartbeat_is_recent(
    control: ControlFiles, age_s: float, lives: bool
):
    heartbeat_of_another_node(control, age_s)
    assert is_alive(control) is lives


@pytest.mark.parametrize("behind_s", [30, -30])
def test_a_node_whose_clock_is_wrong_is_watched_before_its_supervisor_counts_as_dead(
    control: ControlFiles, fake: FakeClock, behind_s: float
):
    heartbeat_of_another_node(control, behind_s)
    began_ns = fake.now_ns
    fake.on_sleep = lambda: fake.now_ns > began_ns + 1e9 and heartbeat_of_another_node(control, behind_s - 1)
    assert is_alive(control, fake.clock())
    fake.on_sleep = lambda: None
    assert not is_alive(control, fake.clock())
    assert fake.now_ns - began_ns >= 4e9, "three intervals were waited for the second time"


class Server:
    """A liveness monitor of a server whose lease is 10 s, on a fake clock."""

    def __init__(self, root: Path, fake: FakeClock) -> None:
        self.folder = DeploymentFolder(root=root)
        self.control = control_files_of(self.folder)
        self.fake = fake
        touch(self.control.lease)
        self.liveness = LivenessMonitor(self.folder, 10.0, os.getppid(), fake.clock())

    def ends_within(self, wait_s: float) -> str | None:
        """Return why the server ends within some seconds, None when it does not."""
        for _ in range(int(wait_s)):
            self.fake.sleep(1.0)
            try:
                self.liveness.tick()
            except EndedError as ended:
                return ended.why
        return None


@pytest.fixture
def server(tmp_path: Path, fake: FakeClock) -> Server:
    return Server(tmp_path, fake)


def test_a_server_whose_lease_is_not_renewed_ends_when_it_runs_out_and_not_before(server: Server):
    for modified_s in range(1, 6):
        assert server.ends_within(9) is None
        os.utime(server.control.lease, (modified_s, modified_s))
    assert server.ends_within(12) == "lease"


def test_a_step_of_the_wall_clock_does_not_run_a_lease_out(server: Server):
    an_hour_ago = time.time() - 3600
    for step_s in range(3):
        os.utime(server.control.lease, (an_hour_ago + step_s, an_hour_ago + step_s))
        assert server.ends_within(9) is None


def test_a_supervisor_writes_a_heartbeat_every_second(server: Server, fake: FakeClock):
    assert server.ends_within(3) is None
    assert is_alive(server.control, fake.clock())
    fake.sleep(61)
    assert not is_alive(server.control, fake.clock()), "one that hangs counts as dead"
    touch(server.control.lease)
    assert server.ends_within(1) is None
    assert is_alive(server.control, fake.clock())


@pytest.mark.parametrize("why", ["stop", "evicted"])
def test_a_stop_request_ends_the_server_with_its_reason(server: Server, why: str):
    assert server.ends_within(1) is None
    request_stop(server.control, why)
    assert server.ends_within(1) == why


def test_a_removed_endpoint_ends_the_server_once_it_was_published(server: Server):
    assert server.ends_within(2) is None
    touch(server.control.published)
    assert server.ends_within(1) == "endpoint-removed"


def test_a_supervisor_of_this_node_that_is_gone_is_dead_at_once_however_young_its_heartbeat(
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
    assert ended.why == "crash"


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
