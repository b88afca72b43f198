"""A real Slurm on this machine: munge, one controller and some nodes, as processes of this user in one folder.

Nothing is installed. Programs are those of a Slurm that is on the machine; else Debian's packages are unpacked, once,
into the cache folder.
"""

import getpass
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import slurm_accounting
import slurm_packages
from processes import running, until
from slurm_packages import NEEDED, places, plugins, program, unpacked

START_S = 30.0
DAEMONS = ("slurmctld", "slurmd", "slurmstepd")
CLIENTS = (
    "sacct",
    "sacctmgr",
    "salloc",
    "sbatch",
    "scancel",
    "scontrol",
    "sinfo",
    "squeue",
    "srun",
    "sshare",
    "sstat",
)

CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=1,bf_resolution=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
DefMemPerCPU=200
GresTypes=gpu
PropagateResourceLimits=NONE
ReturnToService=2
KillWait=2
SlurmdTimeout=300
{plugins}
"""
WITHOUT_ACCOUNTING = "AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\n"
STEPD = """\
#!{python} -ISs
# Without cgroups Slurm misses processes whose parent has ended: as a subreaper, slurmstepd gets them as its own.
import ctypes, os, sys
PR_SET_CHILD_SUBREAPER = 36
if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
    raise OSError(ctypes.get_errno(), "no subreaper")
os.execv("{link}", ["{link}", *sys.argv[1:]])
"""
NODE = (
    "NodeName=n{k} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} CoresPerSocket={cpus}"
    " RealMemory={memory_mb} {gres}State=UNKNOWN\n"
)
PARTITION = "PartitionName={name} Nodes=n[1-{nodes}] {more}MaxTime={hours}:00:00 DefaultTime=00:10:00 State=UP\n"


def why_no_slurm(*, accounting: bool = False) -> str | None:
    """Return why this machine can have no Slurm, None when it can."""
    try:
        for name in NEEDED:
            program(name)
        if accounting:
            for name in slurm_packages.ACCOUNTING_NEEDED:
                slurm_packages.accounting_program(name)
    except OSError as error:
        return f"no Slurm: {error}"
    return None


@contextmanager
def slurm(
    folder: Path,
    nodes: int,
    cpus: int,
    *,
    gpus: int = 0,
    memory_mb: int = 16_000,
    whole_nodes: bool = False,
    accounting: bool = False,
    more: str = "",
) -> Iterator[dict[str, str]]:
    """Run a Slurm of so many nodes of `cpus` each; give the environment in which its commands find it.

    Each node has `gpus` GPUs that are none. Partitions are `all`, `cpu` and, with GPUs, `gpu`; with `whole_nodes` a
    job gets all of a node. With `accounting` jobs need `slurm_accounting.ACCOUNT`, and the limits of `QOS` hold.
    `more` are further lines of slurm.conf; a later line wins.
    """
    told = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder}/bin:{places(unpacked())}"}
    if root := unpacked():
        told["LD_LIBRARY_PATH"] = f"{slurm_packages.libraries(root)}:{plugins(root)}"
    write_programs(folder, told)
    ports = _free_ports(nodes + 2)
    acct = slurm_accounting.conf_lines(folder, ports[-1]) if accounting else WITHOUT_ACCOUNTING
    write_conf(folder, ports, cpus, memory_mb, gpus, "OverSubscribe=EXCLUSIVE " if whole_nodes else "", acct + more)
    with ExitStack() as held:

        def start(command: list[str], name: str, environment: dict[str, str] = told) -> Path:
            log = folder / f"{name}.log"
            held.enter_context(running(command, log, environment))
            return log

        start_munge(folder, start)
        if accounting:
            slurm_accounting.start_database(folder, start, until)
            log = slurm_accounting.start_slurmdbd(folder, ports[-1], told, start)
            until(lambda: "normal" in _says(told, "sacctmgr", "-nP", "show", "qos", "format=name"), log)
            slurm_accounting.add_associations(lambda *words: _says(told, "sacctmgr", "-i", *words))
        (folder / "state").mkdir()
        log = start([f"{folder}/bin/slurmctld", "-D"], "slurmctld")
        until(lambda: _says(told, "scontrol", "ping").count("is UP"), log)
        for k in range(1, nodes + 1):
            held.enter_context(node(told, k))
        log = folder / "slurmd-n1.log"
        until(
            lambda: _says(told, "sinfo", "-hN", "-p", "all", "-t", "idle", "-o", "%N").split() == _names(nodes), log
        )
        yield told


@contextmanager
def node(told: dict[str, str], k: int) -> Iterator[None]:
    """Run the daemon of node `n{k}`: started with the cluster, and again by a test that has lost it."""
    folder = home(told)
    command = [f"{folder}/bin/slurmd", "-D", "-d", f"{folder}/bin/stepd", "-N", f"n{k}"]
    with running(command, folder / f"slurmd-n{k}.log", told):
        yield


@contextmanager
def allocation(told: dict[str, str], nodes: int, tasks: int) -> Iterator[str]:
    """Hold an allocation of so many nodes and tasks; give the number of its job."""
    command = ["salloc", "--no-shell", "--quiet", f"--nodes={nodes}", f"--ntasks={tasks}", "--job-name=seamark-test"]
    subprocess.run([program("salloc"), *command[1:]], env=told, check=True, timeout=START_S)
    job = _says(told, "squeue", "-h", "-n", "seamark-test", "-o", "%A").split()[-1]
    try:
        yield job
    finally:
        subprocess.run([program("scancel"), job], env=told, check=False, timeout=START_S)


def home(told: dict[str, str]) -> Path:
    """Return the folder of a running Slurm: its logs, and `slurmctld.pid`, `slurmd-n1.pid`."""
    return Path(told["SLURM_CONF"]).parent


def start_munge(folder: Path, start: Callable[[list[str], str], Path]) -> None:
    """Run munge with a key and a socket of its own."""
    munge = folder / "munge"
    munge.mkdir(mode=0o711)
    (munge / "key").write_bytes(os.urandom(128))
    (munge / "key").chmod(0o400)
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    words = [f"--{name}={munge / file}" for name, file in files.items()]
    log = start([program("munged"), "--foreground", "--force", *words], "munged")
    until((munge / "socket").exists, log)


def write_programs(folder: Path, told: dict[str, str]) -> None:
    """Write Slurm's commands as scripts that know this cluster: a job step forgets SLURM_CONF, and asks by PATH.

    Daemons are links: they ask their own name what they are, and packages call them `slurmctld-wlm`.
    """
    (folder / "bin").mkdir()
    for name in DAEMONS:
        (folder / "bin" / name).symlink_to(program(name))
    scripts = {"stepd": STEPD.format(python=sys.executable, link=folder / "bin" / "slurmstepd")}
    known = [f"{name}={told[name]}" for name in ("SLURM_CONF", "LD_LIBRARY_PATH") if name in told]
    for name in CLIENTS:
        scripts[name] = f'#!/bin/sh\nexec env {" ".join(known)} {program(name)} "$@"\n'
    for name, script in scripts.items():
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)


def write_conf(
    folder: Path, ports: list[int], cpus: int, memory_mb: int, gpus: int, partition: str, more: str
) -> None:
    """Write slurm.conf and what belongs to it. `ports` are the controller's, the nodes', and one for slurmdbd."""
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    root, nodes = unpacked(), len(ports) - 2
    where = f"PluginDir={plugins(root)}" if root else ""
    text = CONF.format(host=host, ctld_port=ports[0], user=user, folder=folder, plugins=where) + more + "\n"
    gres = f"Gres=gpu:a100:{gpus} " if gpus else ""
    for k in range(1, nodes + 1):
        text += NODE.format(k=k, host=host, port=ports[k], cpus=cpus, memory_mb=memory_mb, gres=gres)
    for name, hours in ({"all": 24, "cpu": 24} | ({"gpu": 12} if gpus else {})).items():
        default = "Default=YES " if name == "all" else ""
        text += PARTITION.format(name=name, nodes=nodes, more=default + partition, hours=hours)
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    (folder / "gres.conf").write_text(_fake_gpus(folder, nodes, gpus))


def _fake_gpus(folder: Path, nodes: int, gpus: int) -> str:
    """Return gres.conf for GPUs that are none: one link to a device that is there for each."""
    if not gpus:
        return ""
    devices = folder / "devices"
    devices.mkdir()
    for index in range(gpus):
        (devices / f"nvidia{index}").symlink_to("/dev/null")
    return f"NodeName=n[1-{nodes}] Name=gpu Type=a100 File={devices}/nvidia[0-{gpus - 1}]\n"


def _names(nodes: int) -> list[str]:
    return [f"n{k}" for k in range(1, nodes + 1)]


def _says(told: dict[str, str], name: str, *arguments: str) -> str:
    command = [program(name), *arguments]
    return subprocess.run(command, env=told, capture_output=True, text=True, check=False, timeout=START_S).stdout


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
