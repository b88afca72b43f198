"""What each monitor sees, against what is known to be true: burnt CPU, held memory, written bytes."""

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering import answering

from seamark.telemetry.gpu import Gpus, chosen_gpus
from seamark.telemetry.host import Host
from seamark.telemetry.process import ProcessTree, listener, own_cgroup
from seamark.telemetry.prometheus import MOST_SERIES, Counters, Prometheus, parse, types_of, unit_of

MIB = 1024 * 1024


def values(readings: object) -> dict[str, float]:
    return {reading.name: reading.value for reading in readings}  # type: ignore[attr-defined]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose own child burns CPU, holds 60 MiB and has three threads."""
    code = textwrap.dedent("""
        import os, sys, threading, time
        if os.fork():
            os.wait()
        held = bytearray(os.urandom(1024)) * (60 * 1024)
        for _ in range(2):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        print("ready", flush=True)
        while True:
            sum(range(10000))
    """)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    os.killpg(process.pid, 9)
    process.communicate()


def test_the_process_that_listens_on_a_local_address_is_known():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listener("127.0.0.1", [port]) == listener("localhost", [port]) == os.getpid()
        assert listener("192.0.2.1", [port]) is None
    assert listener("127.0.0.1", [port]) is None


@pytest.mark.serial
def test_the_host_says_how_long_tasks_waited_and_how_much_a_hypervisor_took(tmp_path: Path):
    (tmp_path / "pressure").mkdir()
    pressure = tmp_path / "pressure" / "cpu"
    pressure.write_text("some avg10=9.00 avg60=9.00 avg300=9.00 total=1000000\nfull avg10=0.00 total=0\n")
    host, began_s = Host(tmp_path), time.monotonic()
    time.sleep(0.2)
    pressure.write_text("some avg10=9.00 avg60=9.00 avg300=9.00 total=1050000\nfull avg10=0.00 total=0\n")
    seen = values(host.read())
    waited_s = seen["cpu_pressure_ratio"] * (time.monotonic() - began_s)
    assert waited_s == pytest.approx(0.05, rel=0.2)
    assert 0 <= seen["cpu_steal_ratio"] <= seen["cpu_ratio"] <= 1
    assert seen["processors"] == os.cpu_count()
    assert seen["load_average"] >= 0
    assert "io_pressure_ratio" not in seen, "a kernel without it is no error"


@pytest.mark.serial
@pytest.mark.covers("E-MON02")
def test_a_process_tree_is_seen_as_one(child: subprocess.Popen[bytes]):
    tree = ProcessTree(child.pid)
    first = values(tree.read())
    assert "cpu_ratio" not in first
    assert first["rss_bytes"] > 60 * MIB
    assert first["threads"] == 4
    began_s, cpu_before_s = time.monotonic(), tree_cpu_s(child.pid)
    time.sleep(0.6)
    second = values(tree.read())
    burnt_s = tree_cpu_s(child.pid) - cpu_before_s
    expected = burnt_s / (time.monotonic() - began_s) / (os.cpu_count() or 1)
    assert second["cpu_ratio"] == pytest.approx(expected, abs=0.08)
    assert second["cpu_ratio"] > 0


def tree_cpu_s(pid: int) -> float:
    """The CPU of a process and its children by `ps`-like means of its own: the clock of the kernel's schedstat."""
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    return sum(int(Path(f"/proc/{one}/schedstat").read_text().split()[0]) for one in pids) / 1e9


@pytest.mark.serial
def test_the_cpu_of_a_child_that_has_ended_is_not_lost_and_not_counted_twice():
    code = textwrap.dedent("""
        import subprocess, sys
        sys.stdin.readline()
        subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.5: pass"])
        print("done", flush=True)
        sys.stdin.readline()
    """)
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    tree = ProcessTree(parent.pid)
    list(tree.read())
    began_s = time.monotonic()
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    parent.stdout.readline()
    ratio = values(tree.read())["cpu_ratio"]
    burnt_s = ratio * (time.monotonic() - began_s) * (os.cpu_count() or 1)
    parent.communicate(b"\n")
    assert 0.45 < burnt_s < 0.9


def test_bytes_written_to_disk_are_those_of_the_tree(tmp_path: Path):
    file = tmp_path / "written"
    code = textwrap.dedent(f"""
        import os, sys
        file = open({str(file)!r}, "wb")
        file.write(os.urandom(8 << 20))
        file.flush()
        os.fsync(file.fileno())
        print("done", flush=True)
        sys.stdin.read()
    """)
    writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    seen = values(ProcessTree(writer.pid).read())
    writer.communicate()
    assert 8 * MIB <= seen["write_bytes"] < 9 * MIB


def test_a_process_that_is_gone_gives_nothing():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert list(ProcessTree(gone.pid).read()) == []


def test_only_a_control_group_of_its_own_is_the_servers(tmp_path: Path):
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    for name, group in (("self", "/user/ours"), ("1", "/user/ours"), ("2", "/user/theirs"), ("3", "/user/bare")):
        (proc / name).mkdir(parents=True)
        (proc / name / "cgroup").write_text(f"4:memory:/other\n0::{group}\n")
    for group in ("ours", "theirs", "bare"):
        (groups / "user" / group).mkdir(parents=True)
        if group != "bare":
            (groups / "user" / group / "memory.current").write_text("5\n")
            (groups / "user" / group / "cpu.stat").write_text("usage_usec 7\n")
    found = [own_cgroup(pid, proc=proc, root=groups) for pid in (1, 2, 3)]
    assert found == [None, groups / "user" / "theirs", None]


@pytest.mark.covers("E-MON02")
def test_the_host_is_seen_in_ratios_of_the_machine_and_growing_counters():
    host = Host()
    time.sleep(0.2)
    first = values(host.read())
    assert 0 <= first["cpu_ratio"] <= 1
    assert 0 <= first["cpu_iowait_ratio"] <= 1
    assert first["ram_used_bytes"] > 10 * MIB
    time.sleep(0.1)
    second = values(host.read())
    counters = ("read_bytes", "write_bytes", "net_received_bytes", "net_sent_bytes")
    assert all(second[name] >= first[name] for name in counters if name in first)


EXPOSITION = r"""
# HELP http_requests_total The total number of HTTP requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000
msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE } 9.TXT\""} 1.458255915e9
metric_without_timestamp_and_labels 12.47
something_weird{problem="division by zero"} +Inf -3982045
nothing NaN
rpc_duration_seconds_bucket{le="+Inf"} 144320
half_a_line{without="an end
"""


def test_the_text_format_is_read_with_its_labels_as_they_were_printed():
    assert list(parse(EXPOSITION)) == [
        ('http_requests_total{method="post",code="200"}', 1027),
        ('http_requests_total{method="post",code="400"}', 3),
        (
            r'msdos_file_access_time_seconds{path="C:\\DIR\\FILE.TXT",error="Cannot find file:\n\"FILE } 9.TXT\""}',
            1.458255915e9,
        ),
        ("metric_without_timestamp_and_labels", 12.47),
        ('rpc_duration_seconds_bucket{le="+Inf"}', 144320),
    ]


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("process_cpu_seconds_total", "s"),
        ("latency_seconds_sum{le='1'}", "s"),
        ("latency_seconds_count", ""),
        ("resident_memory_bytes", "bytes"),
        ("requests_total", ""),
    ],
)
def test_a_metrics_unit_is_what_its_name_ends_in(name: str, unit: str):
    assert unit_of(name, {}) == unit


TYPED = """
# HELP nv_inference_request_success Number of successful inference requests
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="mlp"} 9
# TYPE nv_inference_request_duration_us counter
nv_inference_request_duration_us{model="mlp"} 900
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes 5
# TYPE wait_seconds histogram
wait_seconds_bucket{le="+Inf"} 4
wait_seconds_count 4
wait_seconds_sum 2
# TYPE size_bytes summary
size_bytes{quantile="0.5"} 7
size_bytes_sum 70
# TYPE turns counter
turns_total 3
# TYPE idle_workers_count gauge
idle_workers_count 2
# TYPE torn
"""


@pytest.mark.covers("E-MON02")
def test_what_its_type_line_calls_a_counter_is_marked_as_a_total_whatever_its_name():
    types = types_of(TYPED)
    assert {name.partition("{")[0]: unit_of(name, types) for name, _ in parse(TYPED)} == {
        "nv_inference_request_success": "total",
        "nv_inference_request_duration_us": "us total",
        "nv_gpu_memory_used_bytes": "bytes",
        "wait_seconds_bucket": "total",
        "wait_seconds_count": "total",
        "wait_seconds_sum": "s total",
        "size_bytes": "bytes",
        "size_bytes_sum": "bytes total",
        "turns_total": "total",
        "idle_workers_count": "",
    }


@pytest.fixture
def many_series() -> Iterator[str]:
    """A metrics endpoint with more series than are kept, buckets first."""

    lines = ["# TYPE wait histogram"]
    lines += [f'wait_bucket{{le="{n}"}} {n}' for n in range(MOST_SERIES)]
    body = "\n".join([*lines, *(f"gauge_{n} {n}" for n in range(9))]).encode()
    with answering(lambda request, _: (200 if request.path == "/metrics" else 404, body, {})) as port:
        yield f"http://127.0.0.1:{port}/metrics"


def test_too_many_series_lose_buckets_first_and_that_is_said_once(many_series: str):
    said: list[str] = []
    monitor = Prometheus(many_series, lambda event, **details: said.append(event), interval_s=0.0)
    for _ in range(2):
        readings = list(monitor.read())
        seen = [reading.name for reading in readings]
        assert len(seen) == MOST_SERIES
        assert {reading.unit for reading in readings if "_bucket" in reading.name} == {"total"}
        assert [name for name in seen if name.startswith("gauge")] == [f"gauge_{n}" for n in range(9)]
    assert said == ["series-dropped"]


@pytest.mark.covers("D8")
def test_counters_are_summed_over_labels_or_taken_with_them_under_the_names_that_are_given():
    body = b'done_total{outcome="ok"} 7\ndone_total{outcome="lost"} 2\nother 1\n'
    wanted = {"requests": "done_total", "good": 'done_total{outcome="ok"}', "none": "absent"}
    with answering(lambda request, _: (200, body, {})) as port:
        readings = list(Counters("replica-2", f"http://127.0.0.1:{port}/metrics", wanted, print).read())
    assert [(each.source, each.name, each.value, each.unit) for each in readings] == [
        ("replica-2", "replica_answers", 1.0, ""),
        ("replica-2", "requests", 9.0, "total"),
        ("replica-2", "good", 7.0, "total"),
    ]


def test_an_endpoint_that_does_not_answer_gives_nothing():
    assert list(Prometheus("http://127.0.0.1:9/metrics", print).read()) == []


FAKE_NVML = """
class NVMLError(Exception): ...
class Info:
    gpu, used = 75, 5 * 2**30
def nvmlInit(): ...
def nvmlDeviceGetHandleByIndex(index): return ("index", index)
def nvmlDeviceGetHandleByUUID(uuid): return ("uuid", uuid)
def nvmlDeviceGetUtilizationRates(handle): return Info
def nvmlDeviceGetMemoryInfo(handle): return Info
def nvmlDeviceGetPowerUsage(handle): return 250_000
def nvmlDeviceGetTotalEnergyConsumption(handle): raise NVMLError("not supported")
def nvmlDeviceGetTemperature(handle, sensor): return 40 + (handle == ("uuid", "GPU-b"))
def nvmlDeviceGetClockInfo(handle, kind): return 1500
"""


@pytest.mark.covers("E-MON02")
def test_gpus_are_those_that_were_chosen_and_what_one_cannot_tell_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "pynvml.py").write_text(FAKE_NVML)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-b")
    seen = {(reading.source, reading.name): (reading.value, reading.unit) for reading in Gpus(2, print).read()}
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert {source for source, _ in seen} == {"gpu0", "gpu1"}
    assert seen["gpu0", "util_ratio"] == (0.75, "ratio")
    assert seen["gpu0", "memory_used_bytes"] == (5 * 2**30, "bytes")
    assert seen["gpu0", "power_w"] == (250, "W")
    assert seen["gpu0", "clock_hz"] == (1.5e9, "Hz")
    assert seen["gpu1", "temperature_c"] == (41, "C")
    assert ("gpu0", "energy_j") not in seen


@pytest.mark.parametrize(
    ("listed", "count", "chosen"),
    [("0,1,2,3", 1, ("0",)), ("3,GPU-b", 2, ("3", "GPU-b")), ("5", 2, ("5",)), ("", 1, ()), (None, 2, ("0", "1"))],
)
def test_a_deployment_uses_the_first_gpus_of_those_that_it_may_see(
    monkeypatch: pytest.MonkeyPatch, listed: str | None, count: int, chosen: tuple[str, ...]
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert chosen_gpus(count) == chosen


def test_gpus_beyond_those_of_the_deployment_are_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pynvml.py").write_text(FAKE_NVML)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-b")
    seen = {reading.source for reading in Gpus(1, print).read()}
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert seen == {"gpu0"}


def test_a_machine_without_gpus_says_so_once_and_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pynvml.py").write_text("def nvmlInit(): raise OSError('libnvidia-ml.so.1 not found')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    said: list[str] = []
    gpus = Gpus(1, lambda event, **details: said.append(event))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    assert (list(gpus.read()), list(gpus.read()), said) == ([], [], ["no-gpu-telemetry"])
