"""A real Slurm on this machine: munge, one controller and some nodes, as processes of this user in one folder.

Nothing is installed. Programs are those of a Slurm that is on the machine; else Debian's packages are unpacked, once,
into the cache folder.
"""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
PACKAGES = ("munge", "libmunge2", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins")
LIBRARY_PACKAGES = ("libhwloc15", "liblua5.1-0")
NEEDED = ("munged", "slurmctld", "slurmd", "slurmstepd", "srun", "salloc")
SYSTEM = f"{os.environ.get('PATH', '')}:/usr/sbin"
DOWNLOAD_S = 300.0
START_S = 30.0

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
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=2
SlurmdTimeout=300
{plugins}
"""
NODE = "NodeName=n{k} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} State=UNKNOWN\n"
PARTITION = "PartitionName=all Nodes=n[1-{nodes}] Default=YES MaxTime=60 State=UP\n"


@cache
def unpacked() -> Path | None:
    """Return where Debian's packages lie unpacked, None where Slurm is installed. Raises OSError where neither is."""
    if all(_found(name, SYSTEM) for name in NEEDED):
        return None
    root = CACHE / "cluster" / "slurm"
    if root.is_dir():
        return root
    unfinished = root.with_name(f".slurm.{os.getpid()}")
    packages = unfinished / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    try:
        get = ["apt-get", "download", *PACKAGES, *LIBRARY_PACKAGES]
        subprocess.run(get, cwd=packages, check=True, capture_output=True, timeout=DOWNLOAD_S)
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, unfinished], check=True, capture_output=True)
        shutil.rmtree(packages)
        unfinished.rename(root)
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        raise OSError(f"Debian's packages of Slurm cannot be had: {said[-1] if said else error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return root


def places() -> str:
    """Return the folders in which Slurm's programs lie, as PATH has them."""
    root = unpacked()
    return SYSTEM if root is None else f"{root}/usr/sbin:{root}/usr/bin:{SYSTEM}"


def program(name: str) -> str:
    """Return the path of one of Slurm's programs. Raises OSError where it is not there."""
    found = _found(name, places())
    if found is None:
        raise OSError(f"there is no {name} in {places()}")
    return found


def why_no_slurm() -> str | None:
    """Return why this machine can have no Slurm, None when it can."""
    try:
        for name in NEEDED:
            program(name)
    except OSError as error:
        return f"no Slurm: {error}"
    return None


@contextmanager
def slurm(folder: Path, nodes: int, cpus: int) -> Iterator[dict[str, str]]:
    """Run a Slurm of so many nodes of `cpus` each; give the environment in which its commands find it."""
    told = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": places()}
    if root := unpacked():
        told["LD_LIBRARY_PATH"] = f"{_libraries(root)}:{_plugins(root)}"
    munge = folder / "munge"
    munge.mkdir(mode=0o711)
    (folder / "state").mkdir()
    (munge / "key").write_bytes(os.urandom(128))
    (munge / "key").chmod(0o400)
    write_conf(folder, nodes, cpus)
    with ExitStack() as held:

        def start(name: str, *arguments: str) -> Path:
            log = folder / f"{name}{'-'.join(arguments[-1:])[-3:]}.log"
            held.enter_context(_running([program(name), *arguments], log, told))
            return log

        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        log = start(
            "munged", "--foreground", "--force", *(f"--{name}={munge / file}" for name, file in files.items())
        )
        _until((munge / "socket").exists, log)
        log = start("slurmctld", "-D")
        _until(lambda: _says(told, "scontrol", "ping").count("is UP"), log)
        for k in range(1, nodes + 1):
            log = start("slurmd", "-D", "-d", program("slurmstepd"), "-N", f"n{k}")
        _until(lambda: _says(told, "sinfo", "-hN", "-t", "idle", "-o", "%N").split() == _names(nodes), log)
        yield told


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


def write_conf(folder: Path, nodes: int, cpus: int) -> None:
    """Write slurm.conf, with ports that are free now."""
    ports = _free_ports(nodes + 1)
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    root = unpacked()
    plugins = f"PluginDir={_plugins(root)}" if root else ""
    text = CONF.format(host=host, ctld_port=ports[0], user=user, folder=folder, plugins=plugins)
    text += "".join(NODE.format(k=k, host=host, port=ports[k], cpus=cpus) for k in range(1, nodes + 1))
    (folder / "slurm.conf").write_text(text + PARTITION.format(nodes=nodes))
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")


@contextmanager
def _running(command: list[str], log: Path, told: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=told)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _found(name: str, where: str) -> str | None:
    return shutil.which(name, path=where) or shutil.which(f"{name}-wlm", path=where)


def _libraries(root: Path) -> Path:
    return next(root.glob("usr/lib/*/slurm-wlm")).parent


def _plugins(root: Path) -> Path:
    return _libraries(root) / "slurm-wlm"


def _names(nodes: int) -> list[str]:
    return [f"n{k}" for k in range(1, nodes + 1)]


def _says(told: dict[str, str], name: str, *arguments: str) -> str:
    command = [program(name), *arguments]
    return subprocess.run(command, env=told, capture_output=True, text=True, check=False, timeout=START_S).stdout


def _until(there: Callable[[], object], log: Path) -> None:
    limit_s = time.monotonic() + START_S
    while not there():
        assert time.monotonic() < limit_s, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
