"""The MPS daemon of a deployment under a supervisor, and clients that are drained before their signal. The daemon is
a program of tests' own."""

import sys
from pathlib import Path

import pytest
from fake_gpus import install_control, nvml_of
from server_bench import Bench

from seamark.dispatch.placement import Place
from seamark.errors import SiteError
from seamark.model.parties import GpuSharing
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import control_files_of, read_heartbeat
from seamark.services.supervisor.mps_clients import clients, drain
from seamark.services.supervisor.mps_daemon import MEMBER, end_daemon, pipes_of, serve_daemon

pytestmark = pytest.mark.services


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", install_control(tmp_path / "bin"))
    monkeypatch.setenv("SEAMARK_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def share(tmp_path: Path) -> GpuSharing:
    """A share of GPU-a under a daemon that runs."""
    (tmp_path / "pipes" / "clients").mkdir(parents=True)
    (tmp_path / "pipes" / "daemon").touch()
    return GpuSharing(way="mps", devices=("GPU-a",), pipes=str(tmp_path / "pipes"))


@pytest.mark.usefixtures("control")
def test_a_daemon_runs_once_for_the_gpus_of_its_deployment_and_ends_with_it(bench: Bench) -> None:
    folder, whole = bench.folder("co"), bench.deployment("co")
    own = folder.member(MEMBER)
    bench.folders.append(own)
    pids = []
    for _ in range(2):
        serve_daemon(whole, ("GPU-a", "GPU-b"), bench.site, folder, bench.root / "envs")
        heartbeat = read_heartbeat(control_files_of(own))
        assert heartbeat is not None
        pids.append(heartbeat.pid)
    assert pids[0] == pids[1]
    pipes = Path(pipes_of(folder))
    assert (pipes / "daemon").read_text() == "GPU-a,GPU-b\n"
    (pipes / "clients").mkdir()
    (pipes / "clients" / "77").touch()
    assert clients(str(pipes)) == {77: 4242}
    end_daemon(folder)
    assert not servers.alive(own)
    assert not pipes.exists()
    assert "began\n" in own.server_log.read_text(), "its log is kept"


def test_a_machine_without_mps_is_said_to_be_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bench.root))
    with pytest.raises(SiteError):
        serve_daemon(bench.deployment("co"), ("GPU-a",), bench.site, bench.folder("co"), bench.root / "envs")


@pytest.mark.usefixtures("control")
def test_a_server_under_mps_has_its_contexts_closed_while_it_lives(
    bench: Bench, tmp_path: Path, share: GpuSharing
) -> None:
    pid = bench.serve(place=Place(gpus=(0,), share=share), gpus=1)["server_pid"]
    for client in (pid, 1):  # the other one is of another party
        (tmp_path / "pipes" / "clients" / str(client)).touch()
    servers.stop(bench.folder())
    assert (tmp_path / "terminated").read_text() == f"4242 {pid}\n"


@pytest.mark.usefixtures("control")
def test_a_party_at_work_on_its_gpu_is_waited_for(
    tmp_path: Path, share: GpuSharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml_of(tmp_path / "seen", {"GPU-a": {}}))
    busy = tmp_path / "seen" / "GPU-a.busy"
    busy.mkdir(parents=True)
    for folder in (busy, tmp_path / "pipes" / "clients"):
        for pid in (5, 6):
            (folder / str(pid)).touch()
    beats: list[bool] = []

    def heartbeat() -> None:
        beats.append((tmp_path / "terminated").exists())
        (busy / "5").unlink(missing_ok=True)

    drain(share, [5], heartbeat)
    assert beats == [False], "it ends with the work of its own process"
