"""What is read of a node, on made-up trees of hardware that is not here, and on this machine."""

import os
import sys
from pathlib import Path

import pytest
from made_node import add_process, make_node

from seamark.dispatch.identity import allocated_nodes, batch_job
from seamark.model.results.trial_meta import HugePages, Interface, Network, OtherUsers, Stripes
from seamark.telemetry.provenance.hardware import clock, gpus, memory, network, processors, turbo
from seamark.telemetry.provenance.machine import machine, moment, mounts, others


@pytest.mark.covers("E-FR08")
def test_processors_have_model_threads_clock_limits_and_numa_nodes(tmp_path: Path):
    seen = processors(make_node(tmp_path))
    assert seen.model == "AMD EPYC 7H12 64-Core Processor"
    assert (seen.sockets, seen.cores, seen.threads, seen.smt) == (2, 2, 4, "on")
    assert (seen.governor, seen.driver) == ("performance", "acpi-cpufreq")
    assert (seen.least_hz, seen.most_hz, seen.hardware_most_hz) == (1.5e9, 2.6e9, 3.3e9)
    assert seen.turbo is False
    assert seen.virtual is False
    assert [node.cpus for node in seen.numa_nodes] == ["0,2", "1,3", ""]
    assert seen.numa_nodes[0].memory_bytes == 263975560 * 1024
    assert seen.kernel_options == ("mitigations=off", "isolcpus=3"), "nothing else of the command line is kept"


def test_cpus_that_are_set_differently_are_said_to_be_mixed(tmp_path: Path):
    changes = {"sys/devices/system/cpu/cpu3/cpufreq/scaling_governor": "powersave"}
    assert processors(make_node(tmp_path, changes)).governor == "mixed: performance, powersave"


@pytest.mark.parametrize(
    ("name", "content", "on"),
    [
        ("intel_pstate/no_turbo", "0", True),
        ("intel_pstate/no_turbo", "1", False),
        ("cpufreq/boost", "1", True),
        ("cpufreq/boost", "", None),
        ("unrelated", "1", None),
    ],
)
def test_turbo_is_told_by_intels_switch_or_by_the_general_one(tmp_path: Path, name: str, content: str, on: bool):
    file = tmp_path / "sys/devices/system/cpu" / name
    file.parent.mkdir(parents=True)
    file.write_text(content)
    assert turbo(tmp_path) is on


@pytest.mark.covers("E-FR08")
def test_memory_has_its_pages(tmp_path: Path):
    seen = memory(make_node(tmp_path))
    assert seen.total_bytes == 527951120 * 1024
    assert seen.transparent_hugepages == "madvise"
    assert seen.hugepages == {"2048kB": HugePages(total=16, free=12)}
    assert (seen.numa_balancing, seen.swappiness) == (1, 10)


@pytest.mark.covers("E-FR08", "E-MLX05")
def test_an_infiniband_port_tells_state_rate_and_firmware(tmp_path: Path):
    seen = network(make_node(tmp_path))
    [port] = seen.infiniband
    assert (port.adapter, port.port, port.state, port.physical_state) == ("mlx5_0", 1, "ACTIVE", "LinkUp")
    assert (port.firmware, port.rate_bit_per_s) == ("20.31.1014", 200e9)
    assert seen.interfaces == (Interface(name="ib0", speed_bit_per_s=200e9, mtu_bytes=2044),)


def test_a_node_of_which_nothing_can_be_read_is_all_unknown_and_no_error(tmp_path: Path):
    seen = machine({"results": tmp_path}, tmp_path)
    assert seen.governor is seen.kernel is seen.memory_bytes is seen.cpu.cores is None
    assert seen.network == Network()
    assert seen.mounts["results"].type is None
    assert moment(tmp_path).load_average == ()


# Clock

TRACKING = "C0A80001,ntp.site,3,1700000000.5,0.000020,-0.000001,0.000015,-3.2,0.0,0.01,0.000400,0.000100,64.2,Normal"


def program(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program of that name first on PATH."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


@pytest.mark.covers("E-FR08")
def test_the_clock_has_its_source_and_what_chrony_knows_of_its_offset(tmp_path, monkeypatch):
    program(tmp_path, "chronyc", f'[ "$*" = "-c tracking" ] && echo {TRACKING}', monkeypatch)
    seen = clock(make_node(tmp_path))
    assert seen.source == "tsc"
    assert seen.available == ("tsc", "hpet", "acpi_pm")
    chrony = seen.chrony
    assert (chrony.server, chrony.stratum, chrony.leap) == ("ntp.site", 3, "Normal")
    assert chrony.offset_s == pytest.approx(-20e-6), "chrony says how slow the clock is"
    assert chrony.most_error_s == pytest.approx(20e-6 + 100e-6 + 200e-6)


@pytest.mark.parametrize("script", ["echo '506 Cannot talk to daemon'; exit 1", "echo nothing of use", "sleep 9"])
def test_a_chrony_that_does_not_answer_is_unknown(tmp_path, monkeypatch, script):
    monkeypatch.setattr("seamark.telemetry.provenance.hardware.CHRONY_WAIT_S", 0.2)
    program(tmp_path, "chronyc", script, monkeypatch)
    assert clock(make_node(tmp_path)).chrony is None


def test_the_kernel_of_this_machine_says_whether_its_clock_is_kept():
    state = clock().kernel
    assert isinstance(state.synchronised, bool)
    assert state.most_error_s >= state.estimated_error_s >= 0


# Mounts

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - xfs /dev/sda1 rw
30 22 0:41 / {folder}/with\\040space rw,noatime shared:9 - lustre 10.1.1.1@o2ib:/scratch rw,flock
31 22 0:42 / {folder}/with\\040space/deeper rw shared:9 - tmpfs tmpfs rw,size=1k
"""
GETSTRIPE = """\
stripe_count:  4 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1 pool: flash
"""


@pytest.mark.covers("E-MLX03", "E-FR08")
def test_a_path_has_the_deepest_mount_and_on_lustre_its_stripes(tmp_path, monkeypatch):
    folder = tmp_path / "with space"
    (folder / "deeper").mkdir(parents=True)
    program(tmp_path, "lfs", f"[ \"$1 $2\" = 'getstripe -d' ] && cat <<'E'\n{GETSTRIPE}E", monkeypatch)
    root = make_node(tmp_path / "root", {"proc/self/mountinfo": MOUNTS.format(folder=tmp_path)})
    seen = mounts({"results": folder / "not yet" / "there", "data": folder / "deeper", "other": Path("/etc")}, root)
    assert (seen["results"].type, seen["results"].options) == ("lustre", "rw,noatime,flock")
    assert seen["results"].source == "10.1.1.1@o2ib:/scratch"
    assert seen["results"].stripes == Stripes(count=4, size_bytes=1 << 20, pool="flash", components=1)
    assert (seen["data"].type, seen["data"].stripes) == ("tmpfs", None)
    assert seen["other"].type == "xfs"
    assert seen["results"].free_bytes > 0


def test_a_lustre_without_its_program_has_unknown_stripes(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    root = make_node(tmp_path / "root", {"proc/self/mountinfo": MOUNTS.format(folder=tmp_path)})
    (tmp_path / "with space").mkdir()
    seen = mounts({"results": tmp_path / "with space"}, root)
    assert (seen["results"].type, seen["results"].stripes) == ("lustre", None)


# Moments

OURS, THEIRS = 4242, 4343


@pytest.mark.covers("E-FR08")
def test_processes_of_other_users_are_counted_and_nobody_is_named(tmp_path):
    root = make_node(tmp_path)
    for pid, (uid, state, cpu_s) in enumerate(
        [(OURS, "R", 50), (0, "R", 50), (65534, "S", 50), (THEIRS, "R", 2.5), (THEIRS, "S", 1.5), (5000, "S", 0)], 100
    ):
        add_process(root, pid, uid, state, cpu_s)
    seen = others(OURS, root)
    assert seen == OtherUsers(users=2, processes=3, running=1, cpu_s=4.0)
    assert moment(root).load_average == (3.5, 2.25, 1.0)
    assert moment(root).cpu_frequency_hz == 2_599_998_000
    assert moment(root).swap_used_bytes == 6 * 1024


def test_where_the_kernel_hides_processes_their_number_is_unknown_and_not_zero(tmp_path):
    hiding = "23 22 0:20 / /proc rw,nosuid shared:2 - proc proc rw,hidepid=invisible\n"
    root = make_node(tmp_path, {"proc/self/mountinfo": hiding})
    add_process(root, 100, OURS)
    seen = others(OURS, root)
    assert seen.processes is None
    assert "hidepid" in seen.reason


def test_this_machine_says_what_it_is():
    seen, here = machine({"results": Path.cwd()}), moment()
    assert seen.cpu_model
    assert seen.cpus_logical == os.cpu_count()
    assert seen.memory_bytes > 1 << 28
    assert seen.kernel == os.uname().release
    assert seen.mounts["results"].type
    assert len(here.load_average) == 3
    assert here.processes > 1


# GPUs, at the boundary of NVIDIA's library

FAKE_NVML = """
class NVMLError(Exception): ...
class Memory:
    total = 40 * 2**30
def nvmlInit(): ...
def nvmlShutdown(): ...
def nvmlSystemGetDriverVersion(): return b"535.104.05"
def nvmlSystemGetCudaDriverVersion(): return 12020
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return "NVIDIA A100-SXM4-40GB"
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
def nvmlDeviceGetVbiosVersion(handle): return "92.00.36"
def nvmlDeviceGetMemoryInfo(handle): return Memory
def nvmlDeviceGetEnforcedPowerLimit(handle): return 400_000 if handle == 0 else 300_000
def nvmlDeviceGetPowerManagementDefaultLimit(handle): return 400_000
def nvmlDeviceGetClockInfo(handle, kind): return 1095
def nvmlDeviceGetMaxClockInfo(handle, kind): return {1: 1410, 2: 1215}[kind]
def nvmlDeviceGetApplicationsClock(handle, kind): raise NVMLError("not supported")
def nvmlDeviceGetEccMode(handle): return [1, 1]
def nvmlDeviceGetMigMode(handle): return [0, 1]
def nvmlDeviceGetPersistenceMode(handle): return 1
"""


@pytest.fixture
def nvml(tmp_path, monkeypatch):
    """Put this text in place of NVIDIA's library."""

    def put(text: str) -> None:
        (tmp_path / "pynvml.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    yield put
    sys.modules.pop("pynvml", None)


@pytest.mark.covers("E-FR08", "E-MON02")
def test_gpus_tell_names_clocks_power_cap_ecc_mig_driver_and_cuda(tmp_path, nvml):
    nvml(FAKE_NVML)
    seen = gpus(make_node(tmp_path, {"proc/driver/nvidia/version": "NVRM version"}))
    assert (seen.reason, seen.driver, seen.cuda) == (None, "535.104.05", "12.2")
    first, second = seen.devices
    assert (first.name, first.uuid) == ("NVIDIA A100-SXM4-40GB", "GPU-0")
    assert (first.power_cap_w, second.power_cap_w, first.default_power_cap_w) == (400, 300, 400)
    assert (first.sm_hz, first.most_sm_hz, first.most_memory_hz) == (1.095e9, 1.41e9, 1.215e9)
    assert (first.ecc, first.mig, first.persistence) == (True, False, True)
    assert first.set_sm_hz is first.throttled_by is None, "not known: not supported, not in the library"


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("def nvmlInit(): raise OSError('driver/library version mismatch')", "version mismatch"),
        (FAKE_NVML.replace('raise NVMLError("not supported")', "raise RuntimeError('lost')"), "lost"),
    ],
)
def test_a_broken_driver_is_a_fact_with_its_reason(tmp_path, nvml, library, reason):
    nvml(library)
    seen = gpus(make_node(tmp_path, {"proc/driver/nvidia/version": "NVRM version"}))
    assert reason in seen.reason
    assert seen.devices == ()


def test_without_a_driver_the_library_is_not_even_loaded(tmp_path, nvml):
    nvml("raise SystemExit('loaded')")
    assert gpus(make_node(tmp_path)).reason == "no NVIDIA driver"


# Slurm


@pytest.mark.covers("E-MR08")
def test_a_batch_job_is_named_with_its_array_step_and_restarts():
    told = {
        "SLURM_JOB_ID": "71",
        "SLURM_JOB_NODELIST": "mel[2041-2042]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_ARRAY_JOB_ID": "70",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_QOS": "default",
        "SLURM_CLUSTER_NAME": "mel",
        "SLURM_RESTART_COUNT": "2",
        "SLURM_JWT": "secret",
    }
    seen = batch_job(told)
    assert seen == {name.lower(): value for name, value in told.items() if name != "SLURM_JWT"}
    assert batch_job({"SLURM_JOB_ID": "1"})["slurm_restart_count"] == "0"
    assert batch_job({"SLURM_CONF": "/etc/slurm.conf"}) is None
    assert (allocated_nodes(told), allocated_nodes({}), allocated_nodes({"SLURM_NNODES": "4"})) == (2, 1, 1)
