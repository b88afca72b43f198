"""What Slurm and the module system of a login node answer, as text. Asks, and changes nothing."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from seamark.dispatch.slurm.commands import query
from seamark.errors import SiteError

ENGINES = ("apptainer", "singularity")
SINFO = ("sinfo", "--noheader", "--exact", "--format=%R|%D|%c|%m|%G|%l|%h|%a")
PARTITIONS = ("scontrol", "--oneliner", "show", "partition")
CONFIG = ("scontrol", "show", "config")
QOS = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,maxwall,maxsubmitpu,maxjobspu")
ASSOCIATIONS = ("sacctmgr", "--noheader", "--parsable2", "show", "associations")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What was printed, empty where a command is not there or refuses. `module_init` is None without modules."""

    partitions: str
    config: str
    rules: str = ""
    qos: str = ""
    associations: str = ""
    module_init: Path | None = None
    modules: str = ""
    has_apptainer: bool = False


def ask(environment: Mapping[str, str] = os.environ) -> Answers:
    """Ask this machine. Raises SiteError when it has no Slurm or that does not answer."""
    if shutil.which("sinfo") is None:
        raise SiteError("no `sinfo` here: run this on a login node of the site, where `sinfo` lists its partitions.")
    partitions = query(*SINFO) or ""
    if not partitions.strip():
        raise SiteError("sinfo lists no partition: is Slurm up, and may you use it? Try `sinfo` itself.")
    init = _module_init(environment)
    return Answers(
        partitions=partitions,
        config=(query(*CONFIG) or ""),
        rules=(query(*PARTITIONS) or ""),
        qos=(query(*QOS) or ""),
        associations=query(*ASSOCIATIONS, f"user={getuser()}", "format=account,qos,defaultqos,maxsubmit") or "",
        module_init=init,
        modules=_available(init) if init else "",
        has_apptainer=shutil.which("apptainer") is not None,
    )


def _module_init(environment: Mapping[str, str]) -> Path | None:
    """Return the file that brings the command `module` to a shell, None where there is none."""
    told = (query("bash", "-lc", 'printf "%s\\n" "$LMOD_PKG" "$MODULESHOME"') or "").splitlines()
    homes = [environment.get("LMOD_PKG"), environment.get("MODULESHOME"), *told]
    files = (Path(home) / "init" / "bash" for home in homes if home)
    return next((file for file in files if file.is_file()), None)


def _available(init: Path) -> str:
    """Return the modules of container engines, one a line; `module` prints on its error output."""
    asked = '. "$1" || exit; shift; for engine in "$@"; do module -t avail "$engine" 2>&1; done; true'
    return query("bash", "-c", asked, "seamark", str(init), *ENGINES) or ""
