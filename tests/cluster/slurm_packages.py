"""Where the programs of a Slurm for tests come from: the machine's own, else Debian's packages, unpacked."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from once import alone

CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
SYSTEM = f"{os.environ.get('PATH', '')}:/usr/sbin"
DOWNLOAD_S = 300.0

SLURM = ("munge", "libmunge2", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins")
SLURM_LIBRARIES = ("libhwloc15", "liblua5.1-0")
NEEDED = ("munged", "slurmctld", "slurmd", "slurmstepd", "srun", "salloc")
ACCOUNTING = ("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server-core")
ACCOUNTING_LIBRARIES = ("libmariadb3", "libaio1", "libnuma1", "liburing2")
ACCOUNTING_NEEDED = ("slurmdbd", "mariadbd")


@cache
def unpacked() -> Path | None:
    """Return where Slurm's packages lie unpacked, None where Slurm is installed. Raises OSError where neither is."""
    return None if _all_of(NEEDED) else unpacked_packages("slurm", (*SLURM, *SLURM_LIBRARIES))


@cache
def unpacked_accounting() -> Path | None:
    """Return where slurmdbd and MariaDB lie unpacked, None where they are installed; OSError where neither is."""
    return None if _all_of(ACCOUNTING_NEEDED) else unpacked_packages("slurmdbd", (*ACCOUNTING, *ACCOUNTING_LIBRARIES))


def places(*roots: Path | None) -> str:
    """Return the folders in which the programs of these unpacked packages lie, as PATH has them."""
    return ":".join([f"{root}/usr/{folder}" for root in roots if root for folder in ("sbin", "bin")] + [SYSTEM])


def program(name: str) -> str:
    """Return the path of one of Slurm's programs. Raises OSError where it is not there."""
    return _found(name, places(unpacked()))


def accounting_program(name: str) -> str:
    """Return the path of one of the programs of accounting. Raises OSError where it is not there."""
    return _found(name, places(unpacked_accounting()))


def libraries(root: Path) -> Path:
    """Return the folder of the libraries of unpacked packages."""
    return next(root.glob("usr/lib/*/slurm-wlm")).parent


def plugins(root: Path) -> Path:
    """Return the folder of Slurm's plugins of unpacked packages."""
    return libraries(root) / "slurm-wlm"


def _all_of(names: tuple[str, ...]) -> bool:
    return all(_there(name, SYSTEM) for name in names)


def _found(name: str, where: str) -> str:
    if found := _there(name, where):
        return found
    raise OSError(f"there is no {name} in {where}")


def _there(name: str, where: str) -> str | None:
    return shutil.which(name, path=where) or shutil.which(f"{name}-wlm", path=where)


def unpacked_packages(name: str, packages: tuple[str, ...]) -> Path:
    """Return where Debian packages lie unpacked, in the user's cache. Raises OSError where they cannot be had."""
    root = CACHE / "cluster" / name
    with alone(root):
        if not root.is_dir():
            _unpack(root, packages)
    return root


def _unpack(root: Path, packages: tuple[str, ...]) -> None:
    unfinished = root.with_name(f".{root.name}.{os.getpid()}")
    folder = unfinished / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        get = ["apt-get", "download", *packages]
        subprocess.run(get, cwd=folder, check=True, capture_output=True, timeout=DOWNLOAD_S)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, unfinished], check=True, capture_output=True)
        shutil.rmtree(folder)
        unfinished.rename(root)
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        raise OSError(f"Debian's packages of Slurm cannot be had: {said[-1] if said else error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
