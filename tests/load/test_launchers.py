"""Workers that run elsewhere: their connection, their clock, their files, their death. Slurm itself is played by a
script on PATH; other clocks and other file systems are namespaces of the kernel."""

import json
import os
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from clusters import loads_below

from seamark.config.read import Recipes, read_scenario, read_site
from seamark.errors import SiteError, UserError
from seamark.load.coordinator.command_launcher import launcher_of
from seamark.load.coordinator.handle import LoadError, WorkerLauncher
from seamark.load.workers.records import segment_state
from seamark.model.sample import Failure
from seamark.planning.plan import plan
from seamark.platform.ports import reachable_by
from seamark.platform.rendezvous import RendezvousListener

FAKE = Path(__file__).parents[1] / "cluster" / "fake_srun.py"
OPEN = {"pattern": "poisson", "rate_rps": 300.0, "concurrency": 8, "duration_s": 1.0}
HOUR_NS = 3600 * 10**9


def works(*command: str) -> bool:
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


OTHER_CLOCK = ["unshare", "--user", "--map-root-user", "--time", "--monotonic", "3600", "--fork"]
OTHER_FILES = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkerLauncher]:
    """Return a carrier over a stand-in for srun; its keywords put a task behind a command, as `t1=[...]`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "srun"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(FAKE))} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("FAKE_SRUN_SEEN", str(tmp_path / "seen.json"))

    def carrier(**before: list[str]) -> WorkerLauncher:
        monkeypatch.setenv("FAKE_SRUN", json.dumps({name[1:]: command for name, command in before.items()}))
        return launcher_of("srun")

    return carrier


def carried() -> list[psutil.Process]:
    """Return the worker processes that our loads have started elsewhere on this machine."""
    return loads_below(psutil.Process())


@pytest.mark.covers("E-FR25", "E-CLI01")
@pytest.mark.services
def test_tasks_of_a_step_send_the_same_schedule_as_one_worker(
    null_server: Callable, load: Callable, srun: Callable, tmp_path: Path
) -> None:
    port = null_server().port
    single, carried_by_four = load(port=port, **OPEN), load(port=port, **OPEN, shards=4, launcher=srun())
    assert carried_by_four.samples["due_ns"].tolist() == single.samples["due_ns"].tolist()
    assert (carried_by_four.samples["worker"] == carried_by_four.samples["index"] % 4).all()
    assert set(carried_by_four.failures()) == {Failure.NONE}
    for report in carried_by_four.outcome.reports:
        assert (report.ok, report.carrier, report.shared) == (True, "srun", True)
        assert report.host == socket.gethostname()
        assert abs(report.offset_ns) <= report.offset_error_ns, "it is the same clock"
        assert abs(report.offset_drift_ns) <= 2 * 10**7
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert {"--ntasks=4", "--jobid=7", "--kill-on-bad-exit=0"} <= set(seen["options"])
    assert not [name for name in seen["environment"] if name.startswith("SLURM_")]
    token = json.loads(seen["environment"]["SEAMARK_CARRIED"])["token"]
    assert not any(token in option for option in seen["options"]), "who lists processes must not read it"


@pytest.mark.covers("E-FR25")
@pytest.mark.services
@pytest.mark.skipif(not works(*OTHER_CLOCK), reason="this kernel gives no user and time namespaces")
def test_a_worker_whose_clock_is_an_hour_ahead_keeps_to_the_common_schedule(
    null_server: Callable, load: Callable, srun: Callable
) -> None:
    measured = load(port=null_server().port, **OPEN, shards=3, launcher=srun(t1=OTHER_CLOCK))
    reports = measured.outcome.reports
    assert [abs(report.offset_ns - ahead) < 10**9 for report, ahead in zip(reports, (0, HOUR_NS, 0), strict=True)]
    assert abs(reports[1].offset_ns - HOUR_NS) <= reports[1].offset_error_ns + 10**3
    assert 0 < reports[1].offset_error_ns < 10**9
    late_ms = (measured.sent["sent_ns"] - measured.sent["due_ns"]) / 1e6
    assert late_ms.min() >= 0
    assert late_ms.max() < 2000, "an offset that was not corrected would make this an hour"
    assert measured.outcome.scheduled == len(measured.samples)


@pytest.mark.covers("E-FR25")
@pytest.mark.services
@pytest.mark.skipif(not works(*OTHER_FILES), reason="this kernel gives no user and mount namespaces")
def test_a_worker_that_does_not_see_our_folder_sends_what_it_wrote(
    null_server: Callable, load: Callable, srun: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "parts").mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    hide = f'mount -t tmpfs none {shlex.quote(str(tmp_path / "parts"))} && exec "$@"'
    port = null_server().port
    apart = [*OTHER_FILES, "sh", "-c", hide, "sh"]
    measured = load(port=port, **OPEN, shards=2, launcher=srun(t1=apart))
    assert [report.shared for report in measured.outcome.reports] == [True, False]
    assert all(report.ok for report in measured.outcome.reports)
    assert [segment_state(path)[1] for path in measured.outcome.segments] == [True, True]
    assert measured.samples["due_ns"].tolist() == load(port=port, **OPEN).samples["due_ns"].tolist()
    assert list(own.iterdir()) == [], "nothing stays where it wrote"


@pytest.mark.covers("E-FR25", "E-CLI05")
@pytest.mark.services
def test_a_carried_worker_that_is_killed_is_counted_and_the_others_go_on(
    null_server: Callable, load: Callable, srun: Callable, running_s: Callable[[], float]
) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        if running_s() > 1.6 and not killed:
            victim = next(each for each in carried() if each.environ().get("SLURM_PROCID") == "1")
            killed.append(victim.pid)
            victim.kill()

    port = null_server("--delay-ms", 2).port
    measured = load(port=port, **OPEN | {"duration_s": 3.0}, shards=3, launcher=srun(), on_tick=kill_one)
    reports = measured.outcome.reports
    assert killed
    assert [report.ok for report in reports] == [True, False, True]
    assert (reports[1].pid, reports[1].sent) == (killed[0], None)
    assert "connection was closed" in reports[1].reason
    assert reports[1].scheduled > 200, "its part was due all the same"
    last_s = [measured.samples["last_ns"][measured.samples["worker"] == k].max() / 1e9 for k in range(3)]
    assert min(last_s[0], last_s[2]) > 2.5
    assert 0 < last_s[1] < 2.5, "what it had written before stays"


@pytest.mark.covers("E-FR25", "E-CLI05")
@pytest.mark.services
def test_a_carried_worker_whose_connection_closes_ends_itself_and_is_counted(
    null_server: Callable, load: Callable, srun: Callable, running_s: Callable[[], float]
) -> None:
    cut: list[psutil.Process] = []

    def cut_one() -> None:
        if running_s() > 1.8 and not cut:
            cut.append(next(each for each in carried() if each.environ().get("SLURM_PROCID") == "1"))
            theirs = {each.laddr for each in cut[0].net_connections("tcp")}
            ours = psutil.Process().net_connections("tcp")
            fd = next(each.fd for each in ours if each.raddr and each.raddr.port in {port for _, port in theirs})
            with socket.socket(fileno=os.dup(fd)) as connection:
                connection.shutdown(socket.SHUT_RDWR)

    port = null_server().port
    measured = load(port=port, **OPEN | {"duration_s": 3.0}, shards=2, launcher=srun(), on_tick=cut_one)
    assert [report.ok for report in measured.outcome.reports] == [True, False]
    assert "connection was closed" in measured.outcome.reports[1].reason
    _, alive = psutil.wait_procs(cut, timeout=5)
    assert not alive
    last_s = measured.samples["last_ns"][measured.samples["worker"] == 1].max() / 1e9
    assert last_s < 2.8, "it sent no more when nobody could hear of it"


@pytest.mark.services
def test_a_carried_load_that_is_ended_early_keeps_its_samples(
    null_server: Callable, load: Callable, srun: Callable, running_s: Callable[[], float]
) -> None:
    measured = load(
        port=null_server("--silent-every", 20).port,
        concurrency=4,
        shards=2,
        duration_s=60.0,
        timeout_s=60.0,
        launcher=srun(),
        on_tick=lambda: "enough" if running_s() > 1.0 else None,
    )
    assert measured.outcome.aborted == "enough"
    assert all(report.ok for report in measured.outcome.reports)
    assert measured.failures()[Failure.CANCELLED] == 4


@pytest.mark.services
def test_carried_workers_end_when_their_parent_is_killed(
    null_server: Callable, srun: Callable, tmp_path: Path
) -> None:
    srun()
    script = tmp_path / "parent.py"
    script.write_text(
        "from pathlib import Path\n"
        "from seamark.load.coordinator.command_launcher import launcher_of\n"
        "from seamark.load.coordinator.coordinator import LoadJob, run_load\n"
        "settings = {'duration_s': 60.0, 'concurrency': 2, 'shards': 2}\n"
        "job = LoadJob(driver='seamark.drivers.null:Null', workers='wire', settings=settings, seed=1,\n"
        f"              data=Path('.'), ports={{'main': {null_server().port}}})\n"
        f"run_load(job, None, Path({str(tmp_path)!r}) / 'parts', launcher=launcher_of('srun'))\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)])
    try:
        limit_s = time.monotonic() + 30
        while len(list((tmp_path / "parts").glob("*.samples"))) < 2 and time.monotonic() < limit_s:
            time.sleep(0.1)
        workers = carried()
        assert len(workers) == 2
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert not alive
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.services
@pytest.mark.parametrize(
    ("before", "says"),
    [
        (["false"], "srun ended before its tasks had come"),
        (["sh", "-c", "echo no such module >&2; exit 3"], "no such module"),
    ],
)
def test_a_worker_that_never_comes_stops_the_load_with_the_last_words_there(
    null_server: Callable, load: Callable, srun: Callable, before: list[str], says: str
) -> None:
    with pytest.raises(LoadError, match=says):
        load(port=null_server().port, shards=2, concurrency=2, launcher=srun(t0=before, t1=before))


@pytest.mark.services
def test_a_carried_worker_says_why_it_cannot_begin(null_server: Callable, load: Callable, srun: Callable) -> None:
    server = null_server("--delay-ms", 0)
    server.process.kill()
    server.process.wait()
    with pytest.raises(LoadError, match=r"worker \d: .*(refused|Connect)") as failed:
        load(port=server.port, shards=2, concurrency=2, launcher=srun())
    assert any("Traceback" in line or "Error" in line for line in failed.value.log_tail)


class Door:
    """A gate, and who was let in."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.let_in: list[tuple[dict[str, Any], bytes]] = []
        self.gate = RendezvousListener(
            self.selector, lambda _, about, rest: self.let_in.append((about, rest)), host="127.0.0.1"
        )

    def visited_by(self, *said: bytes) -> socket.socket:
        """Come to the gate and say that, piece by piece; return the candidate's connection."""
        candidate = socket.create_connection(("127.0.0.1", self.gate.port), timeout=5)
        self.on_readable()
        for piece in said:
            candidate.sendall(piece)
            self.on_readable()
        return candidate

    def on_readable(self) -> None:
        while ready := self.selector.select(0.05):
            for key, _ in ready:
                key.data()

    def closed(self, candidate: socket.socket) -> bool:
        candidate.settimeout(0.2)
        try:
            return candidate.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True


def test_a_gate_lets_in_who_knows_the_token_however_its_words_are_cut() -> None:
    door = Door()
    token = door.gate.token.encode()
    door.visited_by(token[:5], token[5:] + b"\nhel", b'lo {"worker": 3}\nread')
    assert door.let_in == [({"worker": 3}, b"read")]


@pytest.mark.parametrize(
    "said",
    [
        b"0" * 32 + b'\nhello {"worker": 0}\n',
        b"GET / HTTP/1.1\r\n\r\n",
        b"{token}x\nhello {}\n",
        b"{token}\nhello not json\n",
        b"{token}\nhello [1]\n",
        b"{token}\ngoodbye {}\n",
        b"{token}\nhello " + b"x" * 5000,
        b"\n",
    ],
)
def test_a_gate_drops_who_does_not(said: bytes) -> None:
    door = Door()
    candidate = door.visited_by(said.replace(b"{token}", door.gate.token.encode()))
    assert door.closed(candidate)
    assert door.let_in == []


def test_a_gate_that_is_closed_has_sent_everyone_away() -> None:
    door = Door()
    waiting = door.visited_by(door.gate.token[:4].encode())
    assert not door.closed(waiting)
    door.gate.close()
    assert door.closed(waiting)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", door.gate.port), timeout=1)


def test_workers_near_a_cluster_here_are_told_of_this_machine_alone() -> None:
    assert reachable_by("127.0.0.1") == ["127.0.0.1"]
    assert "127.0.0.1" not in reachable_by(None) or len(reachable_by(None)) == 1


WRONG: list[tuple[str, str | None, str]] = [
    ("dsak", None, "'dsak' is none of local, srun, dask, spark. Did you mean 'dask'?"),
    ("dask", None, "dask needs the address of its cluster, as tcp://HOST:8786."),
    ("dask", "host:8786", "'host:8786' is no address for dask. Give one as tcp://HOST:8786."),
    ("spark", "tcp://host:7077", "'tcp://host:7077' is no address for spark."),
    ("local", "tcp://host:1", "local takes no address. Remove 'tcp://host:1'."),
]


@pytest.mark.parametrize(("name", "address", "says"), WRONG)
def test_a_carrier_that_cannot_be_is_said_so(name: str, address: str | None, says: str) -> None:
    with pytest.raises(UserError) as wrong:
        launcher_of(name, address)
    assert says in str(wrong.value)


@pytest.mark.parametrize(("name", "address", "says"), WRONG)
def test_a_site_with_a_carrier_that_cannot_be_is_said_so_with_its_line(
    tmp_path: Path, name: str, address: str | None, says: str
) -> None:
    path = tmp_path / "here.yaml"
    named = f"carrier_address: '{address}'\n" if address else ""
    path.write_text(f"name: here\nsummary: x\ncarrier: {name}\n{named}")
    with pytest.raises(UserError) as wrong:
        read_site(path)
    assert says in str(wrong.value)
    assert f"here.yaml:{4 if address else 3}: " in str(wrong.value)


def test_who_carries_a_load_is_no_part_of_what_a_trial_is(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    services = Recipes(root / "config" / "services")
    scenario = tmp_path / "s.yaml"
    scenario.write_text("scenario: s\nworkload: {service: 'null', shards: [1, 4], concurrency: 4}\n")
    here = read_site(root / "config" / "sites" / "local.yaml")
    there = replace(here, carrier="dask", carrier_address="tcp://h:1")
    planned = [plan(read_scenario(scenario, services, site), services, site).trials for site in (here, there)]
    assert planned[0] == planned[1]


def test_a_site_may_name_a_carrier(tmp_path: Path) -> None:
    path = tmp_path / "here.yaml"
    path.write_text("name: here\nsummary: x\ncarrier: spark\ncarrier_address: local[4]\n")
    site = read_site(path)
    assert (site.carrier, site.carrier_address) == ("spark", "local[4]")


@pytest.mark.parametrize(
    ("name", "address", "python", "says"),
    [
        ("dask", "tcp://h:1", None, "the package 'distributed' is not installed here. Install seamark[dask]"),
        ("spark", "local[1]", None, "the package 'pyspark' is not installed here. Install seamark[spark]"),
        ("dask", "tcp://h:1", Path("/no/such/python"), "there is no interpreter /no/such/python"),
    ],
)
def test_what_a_machine_lacks_for_a_carrier_is_said_with_the_remedy(
    name: str, address: str, python: Path | None, says: str
) -> None:
    with pytest.raises(SiteError) as lacking:
        launcher_of(name, address, python)
    assert says in str(lacking.value)


def test_srun_needs_an_allocation(srun: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(SiteError, match="salloc"):
        launcher_of("srun")
    monkeypatch.setenv("PATH", "/nowhere")
    assert shutil.which("srun") is None
    with pytest.raises(SiteError, match="no srun on PATH"):
        launcher_of("srun")
