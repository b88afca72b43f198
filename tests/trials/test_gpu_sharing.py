"""How parties share GPUs: what each gets, and that it is proved. NVML, MPS daemon and children are of tests' own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fake_gpus import CHILD, install_control, nvml_of
from processes import environment_of

from seamark.dispatch.placement import Place
from seamark.errors import SiteError
from seamark.model.parties import GpuSharing
from seamark.model.results.deployment_record import Endpoint
from seamark.planning.study import Study
from seamark.platform.pinning import gpu_variables
from seamark.services.supervisor.mps_daemon import end_daemon, pipes_of
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.kept_place import KeptPlace
from seamark.trials.members import place_of, start_daemon

pytestmark = pytest.mark.covers("A1", "A3")
WHOLE: Mapping[str, Mapping[str, str]] = {"GPU-a": {}, "GPU-b": {}}
DIVIDED = {"GPU-a": {"MIG-1": "3g.20gb", "MIG-2": "1g.5gb"}, "GPU-b": {"MIG-3": "3g.20gb"}}


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Mapping[str, str]]], None]:
    """Install an NVML with the given GPUs; there are two whole ones at first."""
    monkeypatch.setenv("PATH", install_control(tmp_path / "bin"))
    monkeypatch.setenv("SEAMARK_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def installed(gpus: Mapping[str, Mapping[str, str]]) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", nvml_of(tmp_path / "seen", gpus))

    installed(WHOLE)
    return installed


@pytest.fixture
def compute(tmp_path: Path) -> Iterator[Callable[[Mapping[str, str]], int]]:
    """Start a child with some variables that computes on the device that it sees; return its process id."""
    with ExitStack() as held:

        def started(variables: Mapping[str, str]) -> int:
            environment = {**os.environ, "SEEN": str(tmp_path / "seen"), **variables}
            child = subprocess.Popen(["sh", "-c", CHILD], stdout=subprocess.PIPE, env=environment)
            held.enter_context(child)
            held.callback(child.kill)
            assert child.stdout is not None
            child.stdout.readline()
            return child.pid

        yield started


def share_of(way: Any, pipes: Path | None = None, threads: int | None = None) -> GpuSharing:
    """Return a share of GPU-a; with pipes, of the daemon that runs there."""
    if pipes:
        pipes.mkdir(exist_ok=True)
        (pipes / "daemon").touch()
    return GpuSharing(way=way, threads=threads, devices=("GPU-a",), pipes=str(pipes) if pipes else None)


def kept(share: GpuSharing, worker: int, looks: int = 1) -> list[tuple[str, str, int, str]]:
    """Return in what way a worker departs from a place with that share."""
    place = KeptPlace(Place(gpus=(0,), share=share), Endpoint(), every_s=0)
    for _ in range(looks):
        place.look((worker,))
    assert place.record().devices == share.devices
    return [(one.role, one.what, one.pid, one.asked) for one in place.record().departures]


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize("way", ["exclusive", "time_sliced"])
def test_a_party_that_computes_on_its_device_keeps_its_place(way: str, compute: Any) -> None:
    share = share_of(way)
    assert kept(share, compute(gpu_variables((0,), share))) == []


@pytest.mark.usefixtures("nvml")
def test_a_party_that_computes_elsewhere_or_nowhere_does_not(compute: Any) -> None:
    share, idle = share_of("time_sliced"), os.getpid()
    worker = compute(gpu_variables((0,), share) | {"CUDA_VISIBLE_DEVICES": "GPU-b"})
    assert kept(share, worker) == [("load", "gpus", worker, "GPU-a"), ("party", "gpus", worker, "GPU-a")]
    assert ("party", "gpus", "GPU-a") in [(role, what, asked) for role, what, _, asked in kept(share, idle)]


def test_without_nvml_nothing_is_proved(monkeypatch: pytest.MonkeyPatch, compute: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    share = share_of("exclusive")
    worker = compute(gpu_variables((0,), share))
    assert kept(share, worker) == [("party", "gpus", worker, "GPU-a")]


@pytest.mark.usefixtures("nvml")
def test_another_program_on_a_gpu_is_a_departure_only_where_the_party_has_it_alone(compute: Any) -> None:
    alone, beside = share_of("exclusive"), share_of("time_sliced")
    worker, other = (compute(gpu_variables((0,), alone)) for _ in range(2))
    assert [(role, what, pid) for role, what, pid, _ in kept(alone, worker, looks=2)] == [("machine", "gpus", other)]
    assert kept(alone, worker) == [], "one look may meet a process that begins or ends"
    assert kept(beside, worker, looks=2) == []


@pytest.mark.usefixtures("nvml")
def test_under_mps_a_process_is_a_client_of_the_daemon_with_its_threads(tmp_path: Path, compute: Any) -> None:
    share = share_of("mps", tmp_path / "pipes", threads=50)
    worker = compute(gpu_variables((0,), share))
    assert environment_of(worker)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert kept(share, worker) == []
    without = compute(gpu_variables((0,), share) | {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"})
    assert [(role, what, pid) for role, what, pid, _ in kept(share, without)] == [
        ("load", "mps", without),
        ("party", "mps", without),
    ]


def contexts(root: Path, gpus: int, sharing: object) -> list[DeploymentContext]:
    """Return the members of a study with two parties that request a GPU each."""
    party = {"service": "null", "duration_s": 1, "gpus": 1}
    workload = {"gpu_sharing": sharing, "parties": {"a": party, "b": party}}
    document = {"scenario": "try", "repetitions": 1, "resources": {"gpus": gpus}, "workload": workload}
    (root / "try.yaml").write_text(json.dumps(document))
    study = Study.at(root, scenario="try.yaml")
    [deployment] = study.plan.deployments
    return [DeploymentContext.of(study, "try", member.id) for member in deployment.members]


@pytest.mark.parametrize(
    ("sharing", "gpus", "there", "expected"),
    [
        ("exclusive", 2, WHOLE, [("GPU-a",), ("GPU-b",)]),
        ("time_sliced", 1, WHOLE, [("GPU-a",), ("GPU-a",)]),
        ({"mps": {"threads": 50}}, 1, WHOLE, [("GPU-a",), ("GPU-a",)]),
        ({"mig": "3g.20gb"}, 2, DIVIDED, [("MIG-1",), ("MIG-3",)]),
    ],
)
def test_each_party_has_the_devices_that_its_sharing_gives_it(
    nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sharing: Any, gpus: int, there: Any, expected: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    nvml(there)
    shares = [place.share for context in contexts(tmp_path, gpus, sharing) if (place := place_of(context))]
    assert [share.devices for share in shares if share] == expected
    pipes = {share.pipes for share in shares if share}
    assert (pipes != {None}) == ("mps" in sharing)
    assert len(pipes) == 1


@pytest.mark.usefixtures("nvml")
def test_parties_without_a_stated_sharing_have_gpus_by_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [place_of(context) for context in contexts(tmp_path, 2, None)] == [Place(gpus=(0,)), Place(gpus=(1,))]


@pytest.mark.parametrize(
    ("sharing", "there"),
    [
        ({"mig": "3g.20gb"}, WHOLE),
        ({"mig": "1g.5gb"}, DIVIDED),  # one slice for two parties
        ("exclusive", DIVIDED),
        ("exclusive", {}),
    ],
)
def test_devices_that_are_not_there_are_a_matter_of_the_machine(
    nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sharing: Any, there: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    nvml(there)
    with pytest.raises(SiteError):
        place_of(contexts(tmp_path, 2, sharing)[0])


@pytest.mark.services
@pytest.mark.usefixtures("nvml")
def test_a_member_under_mps_starts_the_daemon_for_the_gpus_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = contexts(tmp_path, 1, {"mps": {"threads": 50}})[0]
    folder = first.results.deployment(first.deployment.whole)
    try:
        start_daemon(first)
        assert (Path(pipes_of(folder)) / "daemon").read_text() == "GPU-a\n"
    finally:
        end_daemon(folder)
