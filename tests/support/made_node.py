"""Makes the files of a node that is not here: two sockets with hardware threads, huge pages, InfiniBand, a Lustre.

Names and forms are those of the kernel's documentation and of such nodes as sysfs shows them; not recorded here.
"""

from collections.abc import Mapping
from pathlib import Path

CPUINFO = """\
processor\t: {k}
model name\t: AMD EPYC 7H12 64-Core Processor
microcode\t: 0x830107a
flags\t\t: fpu sse2 avx2

"""
FILES: Mapping[str, str] = {
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 secret=x mitigations=off isolcpus=3",
    "proc/meminfo": "MemTotal:  527951120 kB\nMemAvailable: 400000000 kB\nSwapTotal: 8 kB\nSwapFree: 2 kB\n"
    "HugePages_Total:    16\n",
    "proc/loadavg": "3.50 2.25 1.00 4/812 12345",
    "proc/sys/kernel/osrelease": "4.18.0-477.el8.x86_64",
    "proc/sys/kernel/numa_balancing": "1",
    "proc/sys/vm/swappiness": "10",
    "proc/self/cgroup": "0::/slurm/job_7",
    "proc/self/mountinfo": "22 1 8:1 / / rw,relatime shared:1 - xfs /dev/sda1 rw,attr2\n"
    "23 22 0:20 / /proc rw,nosuid shared:2 - proc proc rw\n",
    "sys/devices/system/cpu/online": "0-3",
    "sys/devices/system/cpu/isolated": "",
    "sys/devices/system/cpu/smt/control": "on",
    "sys/devices/system/cpu/cpufreq/boost": "0",
    "sys/devices/system/cpu/cpuidle/current_driver": "acpi_idle",
    "sys/devices/system/node/node0/cpulist": "0,2",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:  263975560 kB\n",
    "sys/devices/system/node/node1/cpulist": "1,3",
    "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:  263975560 kB\n",
    "sys/devices/system/node/node10/cpulist": "",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "16",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "12",
    "sys/class/infiniband/mlx5_0/fw_ver": "20.31.1014",
    "sys/class/infiniband/mlx5_0/hca_type": "MT4123",
    "sys/class/infiniband/mlx5_0/board_id": "MT_0000000223",
    "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
    "sys/class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp",
    "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)",
    "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
    "sys/class/net/lo/operstate": "unknown",
    "sys/class/net/ib0/operstate": "up",
    "sys/class/net/ib0/mtu": "2044",
    "sys/class/net/ib0/speed": "200000",
    "sys/class/net/eth9/operstate": "down",
}


def make_node(root: Path, changes: Mapping[str, str] | None = None) -> Path:
    """Write the tree of such a node below `root`, with `changes` over it; return `root`."""
    files = dict(FILES) | {"proc/cpuinfo": "".join(CPUINFO.format(k=k) for k in range(4))}
    for k in range(4):
        cpu = f"sys/devices/system/cpu/cpu{k}"
        files |= {
            f"{cpu}/topology/physical_package_id": str(k % 2),
            f"{cpu}/topology/core_id": "0",
            f"{cpu}/cpufreq/scaling_governor": "performance",
            f"{cpu}/cpufreq/scaling_driver": "acpi-cpufreq",
            f"{cpu}/cpufreq/scaling_min_freq": "1500000",
            f"{cpu}/cpufreq/scaling_max_freq": "2600000",
            f"{cpu}/cpufreq/cpuinfo_max_freq": "3300000",
            f"{cpu}/cpufreq/scaling_cur_freq": "2599998",
        }
    for name, content in {**files, **(changes or {})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


def add_process(root: Path, pid: int, uid: int, state: str = "S", cpu_s: float = 0.0) -> None:
    """Write one process of `uid`; its name has a bracket and a space in it, as names may."""
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    folder.joinpath("status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    ticks = [str(round(cpu_s * 100)), "0"]
    folder.joinpath("stat").write_text(f"{pid} (a) b) {state} 1 {' '.join(['0'] * 9)} {' '.join(ticks)} 0 0 20\n")
