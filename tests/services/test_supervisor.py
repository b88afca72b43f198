"""Life and end of a server under its supervisor, with real processes that are killed."""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from processes import eventually
from server_bench import HERE, TINY, Bench, kill, left_of, runs

from seamark.model.results.deployment_record import DeploymentRecord, TrialCounts
from seamark.model.service import Health, Setting
from seamark.model.site import Pinning
from seamark.services.ephemeral_server import ephemeral_server
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import acquire_lock, control_files_of
from seamark.storage.documents import read, read_json, write_json

pytestmark = pytest.mark.services


def test_server_and_supervisor_run_on_the_cores_of_the_server_and_the_answer_says_which(bench: Bench):
    cpu = min(os.sched_getaffinity(0))
    answer = bench.with_site(pinning=Pinning(server=str(cpu))).serve()
    assert answer["status"] == "ok"
    assert os.sched_getaffinity(answer["server_pid"]) == {cpu}
    assert eventually(lambda: os.sched_getaffinity(answer["keeper_pid"]) == {cpu})
    assert answer["pinning"] == {"client": [], "server": [cpu], "why": "as the site says"}


def test_a_core_that_is_not_there_fails_the_set_up_and_says_which_are(bench: Bench):
    answer = bench.with_site(pinning=Pinning(server="60000")).serve()
    assert (answer["status"], answer["category"]) == ("failed", "setup_failed")
    assert "pinning.server is '60000', but CPU 60000 cannot be used here" in answer["reason"]


@pytest.mark.covers("D1", "D4")
def test_a_server_reads_the_values_of_its_deployment_which_are_kept_without_secrets(bench: Bench):
    base = bench.root / "base.yaml"
    base.write_text("decode: {replicas: 1, name: x}\nauth: {api_key: null}\n")
    settings = tuple(
        Setting(name=name, type=kind, role="deployment", help="", goes_to=(path,))
        for name, kind, path in (("replicas", "int", "decode.replicas"), ("api_key", "str", "auth.api_key"))
    )
    copied = (("cp", "{values}", "{data}/seen.yaml"),)
    whole = bench.with_server(values=str(base), setup=copied).with_service(settings=settings)
    assert whole.serve(replicas=3, api_key="a-secret")["status"] == "ok"
    seen = yaml.safe_load((whole.data() / "seen.yaml").read_text())
    assert seen == {"decode": {"replicas": 3, "name": "x"}, "auth": {"api_key": "a-secret"}}
    kept = yaml.safe_load(whole.folder().values.read_text())
    assert kept == {**seen, "auth": {"api_key": "***"}}


def hidden_child(bench: Bench) -> tuple[Bench, Path]:
    file = bench.root / "hidden"
    return bench.with_server("--hidden-child", str(file)), file


@pytest.mark.covers("E-SVR01", "E-SVR04", "E-FR21")
def test_a_served_deployment_answers_and_says_where_and_how_long_it_took(bench: Bench):
    answer = bench.with_server(metrics_port="main").serve()
    assert answer["status"] == "ok"
    assert answer == read_json(bench.folder().endpoint)
    assert set(answer["phases"]) == {"setup_s", "stage_s", "start_s", "populate_s"}
    assert answer["facts"] == {"staged_bytes": 1, "populated": "ok"}
    assert answer["metrics_url"] == f"http://127.0.0.1:{answer['ports']['main']}/metrics"
    assert runs(answer["server_pid"])
    assert servers.alive(bench.folder())
    assert servers.why_ended(bench.folder()) is None


@pytest.mark.covers("E-SVR06", "E-FR21")
def test_teardown_leaves_no_process_and_no_data_and_records_the_life(bench: Bench, tmp_path: Path):
    bench, child = hidden_child(bench)
    bench.serve()
    assert bench.data().is_dir()
    loads = [tmp_path / "a.json", tmp_path / "b.json", tmp_path / "missing.json"]
    write_json(loads[0], {"status": "ok"})
    write_json(loads[1], {"status": "failed"})
    record = servers.teardown(bench.folder(), loads)
    assert record == read(bench.folder().record, DeploymentRecord)
    assert record.ended.why == "teardown"
    assert record.ended.returncode == -signal.SIGTERM
    assert record.trials == TrialCounts(n=3, ok=1)
    assert record.uptime_s > 0
    assert set(record.time_to_service_s) == {"setup", "stage", "start", "populate"}
    assert not runs(int(child.read_text()))
    assert left_of(bench) == []
    assert not bench.data().exists()
    assert not servers.alive(bench.folder())


@pytest.mark.covers("E-NFR04")
def test_a_killed_server_is_recorded_within_a_second_with_its_signal_and_last_lines(bench: Bench):
    pid = bench.serve()["server_pid"]
    kill(pid)
    assert eventually(lambda: not servers.alive(bench.folder()), within_s=1.0)
    ended = servers.why_ended(bench.folder())
    assert ended is not None
    assert ended.why == "crash"
    assert ended.returncode == -signal.SIGKILL
    assert "SIGKILL" in ended.reason
    assert ended.log_tail == ("tiny server begins",)
    assert eventually(lambda: left_of(bench) == [])


def test_a_killed_serve_leaves_no_server_beyond_the_lease(bench: Bench):
    """As when Snakemake and its job are killed by 9 while the server comes up."""
    bench = bench.with_site(lease_s=1.5).with_server("--delay-s", "60", health=Health(probe="http", timeout_s=60))
    bench.folders.append(bench.folder())
    serving = multiprocessing.get_context("fork").Process(target=bench.serve)
    serving.start()
    assert eventually(control_files_of(bench.folder()).ports.exists, within_s=20)
    assert left_of(bench)
    serving.kill()
    serving.join()
    assert eventually(lambda: left_of(bench) == [])
    assert bench.end()["why"] == "lease"
    assert not bench.folder().endpoint.exists()


@pytest.mark.covers("E-SVR06")
def test_a_serve_whose_run_was_killed_ends_its_server_at_once(bench: Bench):
    """As when Snakemake alone is killed by 9 while the server comes up: neither lease nor health time-out is near."""
    bench = bench.with_server("--delay-s", "60", health=Health(probe="http", timeout_s=60))
    bench.folders.append(bench.folder())
    context, served = multiprocessing.get_context("fork"), bench.root / "serve.pid"

    def serve() -> None:
        served.write_text(str(os.getpid()))
        bench.serve()

    def run() -> None:
        context.Process(target=serve).start()
        time.sleep(60)

    running = context.Process(target=run)
    running.start()
    assert eventually(control_files_of(bench.folder()).ports.exists, within_s=20)
    assert left_of(bench)
    running.kill()
    running.join()
    assert eventually(lambda: left_of(bench) == [] and not runs(int(served.read_text())), within_s=15)
    assert bench.end()["why"] == "interrupted"
    answer = read_json(bench.folder().endpoint)
    assert (answer["status"], answer["category"]) == ("failed", "interrupted")


def test_an_interrupted_serve_requests_a_stop(bench: Bench):
    bench = bench.with_server("--delay-s", "60", health=Health(probe="http", timeout_s=60))
    bench.folders.append(bench.folder())

    def serve() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests run in the background have it ignored
        bench.serve()

    serving = multiprocessing.get_context("fork").Process(target=serve)
    serving.start()
    assert eventually(control_files_of(bench.folder()).ports.exists, within_s=20)
    assert serving.pid is not None
    os.kill(serving.pid, signal.SIGINT)
    serving.join()
    assert eventually(lambda: left_of(bench) == [])
    assert bench.end()["why"] == "stop"


def test_a_stop_request_ends_the_server_and_why_is_kept(bench: Bench):
    bench.serve()
    assert servers.stop(bench.folder(), "evicted")
    assert bench.end()["why"] == "evicted"
    assert bench.end()["reason"] == "Another deployment took its place."
    assert left_of(bench) == []


def test_a_server_whose_endpoint_was_removed_ends(bench: Bench):
    bench.serve()
    bench.folder().endpoint.unlink()
    assert eventually(lambda: left_of(bench) == [])
    assert bench.end()["why"] == "endpoint-removed"


def test_sigterm_to_the_supervisor_ends_the_server_in_order(bench: Bench):
    answer = bench.serve()
    os.kill(answer["keeper_pid"], signal.SIGTERM)
    assert eventually(lambda: left_of(bench) == [])
    assert (bench.end()["why"], bench.end()["returncode"]) == ("sigterm", -signal.SIGTERM)


@pytest.mark.covers("E-SVR06")
def test_kill_9_of_the_supervisor_leaves_no_process_of_it(bench: Bench):
    bench, child = hidden_child(bench)
    answer = bench.serve()
    kill(answer["keeper_pid"])
    assert eventually(lambda: not servers.alive(bench.folder()), within_s=1.0)
    assert eventually(lambda: not runs(answer["server_pid"]) and not runs(int(child.read_text())), within_s=5.0)
    assert eventually(lambda: left_of(bench) == [])
    ended = servers.why_ended(bench.folder())
    assert ended is not None
    assert ended.why == "crash"


def test_kill_9_of_the_guard_ends_the_server_in_order(bench: Bench):
    answer = bench.serve()
    kill(int(Path(f"/proc/{answer['keeper_pid']}/stat").read_text().rpartition(")")[2].split()[1]))
    assert eventually(lambda: left_of(bench) == [])
    assert bench.end()["why"] == "crash"
    assert "guard was killed" in bench.end()["reason"]


def test_what_outlives_supervisor_and_guard_both_killed_is_swept(bench: Bench):
    child = bench.root / "child"
    script = f"{sys.executable} -c 'import time; time.sleep(600)' & echo $! > {child}; exec "
    server = bench.service.server
    assert server is not None
    wrapped = ("sh", "-c", script + ' "$@"', "sh", *server.command)
    bench = bench.with_service(server=replace(server, command=wrapped))
    answer = bench.serve()
    guard = int(Path(f"/proc/{answer['keeper_pid']}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(guard, signal.SIGSTOP)
    kill(answer["keeper_pid"])
    kill(guard)
    assert eventually(lambda: not runs(answer["server_pid"]))
    assert runs(int(child.read_text()))
    assert sorted(servers.sweep(bench.results)) == [bench.folder().endpoint]
    assert not runs(int(child.read_text()))


@pytest.mark.covers("E-SVR06")
def test_a_server_that_ignores_sigterm_is_killed_after_its_grace(bench: Bench):
    bench = bench.with_server("--deaf", stop_timeout_s=0.5)
    bench.serve()
    assert servers.stop(bench.folder())
    assert bench.end()["returncode"] == -signal.SIGKILL
    assert left_of(bench) == []


@pytest.mark.covers("E-SVR04")
def test_a_server_that_exits_at_once_is_reported_at_once_with_its_last_lines(bench: Bench):
    began_s = time.monotonic()
    answer = bench.with_server("--exit", "3", health=Health(probe="http", timeout_s=120)).serve()
    assert time.monotonic() - began_s < 60
    assert (answer["status"], answer["category"]) == ("failed", "server_never_healthy")
    assert "exit code 3" in answer["reason"]
    assert answer["log_tail"][-1] == "cannot open the frobnicator"
    assert read_json(bench.folder().endpoint) == answer
    assert servers.stop(bench.folder())
    assert left_of(bench) == []


@pytest.mark.covers("E-SVR04")
def test_a_server_that_never_listens_is_given_up_after_its_time(bench: Bench):
    answer = bench.with_server("--silent", health=Health(probe="tcp", timeout_s=0.6)).serve()
    assert (answer["status"], answer["category"]) == ("failed", "server_never_healthy")
    assert "0.6 s" in answer["reason"]
    assert servers.teardown(bench.folder(), []).ended.why == "failed"
    assert left_of(bench) == []


@pytest.mark.covers("E-SVR04")
@pytest.mark.parametrize("flags", [("--delay-s", "3"), ("--silent",)], ids=["cannot bind", "does not try"])
def test_a_foreign_server_on_our_port_is_an_error_and_no_benchmark_of_it(bench: Bench, flags: tuple[str, ...]):
    ports = control_files_of(bench.folder()).ports
    foreign: list[subprocess.Popen[bytes]] = []

    def occupy() -> None:
        eventually(ports.exists, within_s=30)
        script = HERE / "tiny_server.py"
        foreign.append(subprocess.Popen([sys.executable, script, str(read_json(ports)["main"])]))

    thread = threading.Thread(target=occupy)
    thread.start()
    try:
        answer = bench.with_server(*flags).serve()
    finally:
        thread.join()
        foreign[0].kill()
        foreign[0].wait()
    assert (answer["status"], answer["category"]) == ("failed", "port_taken")


def test_a_second_supervisor_of_a_deployment_changes_nothing(bench: Bench):
    first = bench.serve()
    began = bench.folder().endpoint.read_bytes()
    second = servers.spawn_supervisor(bench.spec(), control_files_of(bench.folder()))
    assert second.wait(30) == 3
    assert servers.alive(bench.folder())
    assert runs(first["server_pid"])
    assert bench.folder().endpoint.read_bytes() == began


def test_serving_again_replaces_the_server_and_its_data(bench: Bench):
    first = bench.serve()
    (bench.data() / "of the first").touch()
    second = bench.serve()
    assert second["status"] == "ok"
    assert not runs(first["server_pid"])
    assert runs(second["server_pid"])
    assert not (bench.data() / "of the first").exists()


def test_one_deployment_at_a_time_runs_on_a_node(bench: Bench):
    first = bench.serve("tiny-0001")
    second = bench.serve("tiny-0002")
    assert not runs(first["server_pid"])
    assert bench.end("tiny-0001")["why"] == "evicted"
    assert servers.alive(bench.folder("tiny-0002"))
    assert runs(second["server_pid"])


def test_another_batch_job_on_the_node_is_left_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    first = bench.serve("tiny-0001")
    monkeypatch.setenv("SLURM_JOB_ID", "2")
    bench.serve("tiny-0002")
    assert runs(first["server_pid"])


def test_stop_all_ends_every_server_of_a_root_of_results(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    bench.serve("tiny-0001")
    monkeypatch.setenv("SLURM_JOB_ID", "2")
    bench.serve("tiny-0002")
    assert servers.stop_all(bench.results) == 2
    assert left_of(bench) == []
    assert servers.stop_all(bench.results) == 0


def test_sweep_removes_what_is_stale_and_nothing_that_lives(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    bench.serve("tiny-0001")
    monkeypatch.setenv("SLURM_JOB_ID", "2")
    dead = bench.serve("tiny-0002")
    bench.folder("tiny-0002").warmup.write_text("{}")
    kill(dead["keeper_pid"])
    assert eventually(lambda: not servers.alive(bench.folder("tiny-0002")))
    removed = servers.sweep(bench.results)
    assert removed == [bench.folder("tiny-0002").endpoint, bench.folder("tiny-0002").warmup]
    assert bench.folder("tiny-0001").endpoint.exists()
    assert servers.alive(bench.folder("tiny-0001"))


def test_a_failed_stage_is_a_failed_set_up_with_its_last_lines(bench: Bench):
    answer = bench.serve(fail="stage")
    assert (answer["status"], answer["category"]) == ("failed", "setup_failed")
    assert "the disk of the stage is upside down" in answer["log_tail"]
    assert not servers.alive(bench.folder())


def test_a_failed_setup_command_is_a_failed_set_up(bench: Bench):
    answer = bench.with_server(setup=(("sh", "-c", "echo no such luck; exit 9"),)).serve()
    assert (answer["status"], answer["category"]) == ("failed", "setup_failed")
    assert answer["log_tail"] == ["no such luck"]
    assert "exit code 9" in answer["reason"]


def test_a_server_that_dies_while_it_is_filled_is_a_dead_server(bench: Bench):
    answer = bench.serve(fail="populate")
    assert (answer["status"], answer["category"]) == ("failed", "server_died")
    assert "exit code 5" in answer["reason"]


def test_a_template_with_an_unknown_name_is_a_failure_that_names_the_known_ones(bench: Bench):
    answer = bench.with_server("{prots[main]}").serve()
    assert answer["category"] == "setup_failed"
    assert "{prots[main]}" in answer["reason"]
    assert "{ports[main]}" in answer["reason"]


def test_a_data_folder_that_another_run_uses_is_not_emptied(bench: Bench):
    bench.data().mkdir(parents=True)
    precious = bench.data() / "precious"
    precious.touch()
    held = acquire_lock(bench.data().with_name(f".{bench.data().name}.lock"))
    assert held is not None
    with held:
        answer = bench.serve()
        assert servers.stop(bench.folder())
    assert answer["category"] == "setup_failed"
    assert "another run" in answer["reason"]
    assert precious.exists()


@pytest.mark.covers("E-MON01", "E-MON02", "E-FR09")
def test_a_supervised_server_has_telemetry_of_host_server_and_sampler(bench: Bench):
    bench.with_server(metrics_port="main").serve()
    telemetry = bench.folder().telemetry
    eventually(lambda: telemetry.exists() and "served_total" in telemetry.read_text(), within_s=20)
    servers.stop(bench.folder())
    rows = [line.split(",") for line in bench.folder().telemetry.read_text().splitlines()]
    assert rows[0] == ["at_unix_s", "source", "name", "value", "unit"]
    seen = {(source, name) for _, source, name, *_ in rows[1:]}
    assert {("host", "cpu_ratio"), ("server", "rss_bytes"), ("server", "cpu_ratio"), ("sampler", "cpu_s")} <= seen
    assert any(source == "service" and "served_total" in name for source, name in seen)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no groups of sessions")
@pytest.mark.parametrize("busy_waits", [True, False])
def test_only_a_server_that_spins_while_it_waits_gives_way_to_other_sessions_once_it_answers(
    bench: Bench, busy_waits: bool
):
    assert bench.service.server is not None
    told = ("sh", "-c", 'sleep 0.2; cat /proc/self/autogroup > "$0"; exec "$@"', "{data}/began")
    answer = bench.with_server(busy_waits=busy_waits, command=(*told, *bench.service.server.command)).serve()
    assert answer["status"] == "ok"
    assert (Path(answer["data"]) / "began").read_text().split()[-1] == "0"
    niceness = Path(f"/proc/{answer['server_pid']}/autogroup").read_text().split()[-1]
    assert niceness == ("10" if busy_waits else "0")
    assert Path("/proc/self/autogroup").read_text().split()[-1:] != ["10"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_a_server_that_refuses_root_runs_as_nobody_with_a_data_folder_of_its_own(bench: Bench):
    made = ("sh", "-c", "id -un > {data}/who; stat -c %U {data} > {data}/owner; echo {user} > {data}/told")
    command = ("{python}", "{study}/tiny_server.py", *TINY[2:])  # the tests may lie where only root may enter
    answer = bench.with_server(refuses_root=True, setup=(made,), command=command).serve()
    assert answer["status"] == "ok", answer
    assert {(bench.data() / name).read_text().strip() for name in ("who", "owner", "told")} == {"nobody"}
    assert Path(f"/proc/{answer['server_pid']}").stat().st_uid == 65534
    kill(answer["keeper_pid"])
    assert eventually(lambda: not runs(answer["server_pid"]))


def test_a_service_inside_the_client_has_a_supervisor_and_no_server(bench: Bench):
    bench = bench.with_service(server=None, driver="seamark.platform.isolated_main")
    answer = bench.serve()
    assert (answer["status"], answer["server_pid"], answer["ports"]) == ("ok", None, {})
    assert servers.alive(bench.folder())
    assert bench.data().is_dir()
    record = servers.teardown(bench.folder(), [])
    assert record.ended.why == "teardown"


def test_an_external_server_is_probed_and_never_ended(bench: Bench):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        bench = bench.with_server(health=Health(probe="tcp", timeout_s=5)).with_site(
            runtime="external", address=address
        )
        bench = bench.with_service(driver="seamark.platform.isolated_main")
        answer = bench.serve()
        assert (answer["status"], answer["server_pid"]) == ("ok", None)
        assert answer["ports"] == {"main": listening.getsockname()[1]}
        servers.stop(bench.folder())
        assert bench.end()["why"] == "stop"


def test_an_external_server_over_https_is_probed_and_watched_over_tls(bench: Bench, tls_front: Callable):
    with ephemeral_server("seamark.testservers.null") as port:
        front = tls_front(port)
        health = Health(probe="http", port="main", path="/health", timeout_s=20)
        bench = bench.with_server(health=health, metrics_port="main", metrics_path="/metrics")
        bench = bench.with_site(runtime="external", address=f"127.0.0.1:{front.port}")
        bench = bench.with_service(driver="seamark.platform.isolated_main")
        settings = {"tls": "verified", "tls_ca_file": str(front.certificate)}
        answer = bench.serve(**settings)
        assert answer["status"] == "ok", answer
        assert answer["metrics_url"] == f"https://127.0.0.1:{front.port}/metrics"
        assert eventually(lambda: front.heard(b"GET /metrics"))
        servers.stop(bench.folder())
    assert "null_requests_total" in bench.folder().telemetry.read_text()


def test_an_external_server_whose_certificate_is_not_believed_fails_at_once_with_the_remedy(
    bench: Bench, tls_front: Callable
):
    with ephemeral_server("seamark.testservers.null") as port:
        front = tls_front(port)
        health = Health(probe="http", port="main", path="/health", timeout_s=60)
        bench = bench.with_server(health=health).with_site(runtime="external", address=f"127.0.0.1:{front.port}")
        began_s = time.monotonic()
        answer = bench.with_service(driver="seamark.platform.isolated_main").serve(tls="verified")
    assert answer["category"] == "server_never_healthy"
    assert "failed verification (self-signed certificate)" in answer["reason"]
    assert "tls_ca_file" in answer["reason"]
    assert time.monotonic() - began_s < 30


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_of_results_does_not_keep_a_server_from_being_stopped(bench: Bench):
    bench.results.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", bench.results], check=False)
    if mounted.returncode != 0:
        pytest.skip("no mounts here")
    try:
        answer = bench.serve()
        assert answer["status"] == "ok"
        with contextlib.suppress(OSError), (bench.results / "fill").open("wb", buffering=0) as fill:
            while True:
                fill.write(b"x" * 4096)
        time.sleep(1.5)
        assert servers.alive(bench.folder())
        assert servers.stop(bench.folder())
        assert not runs(answer["server_pid"])
        ended = servers.why_ended(bench.folder())
        assert ended is not None
        assert "full" in ended.reason
    finally:
        subprocess.run(["umount", "-l", bench.results], check=True)
        bench.folders.clear()
