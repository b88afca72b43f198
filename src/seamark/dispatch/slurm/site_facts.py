"""Facts of a Slurm site from its login node: partitions, QoS, limits, accounts, container engines; and their YAML."""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from typing import Any

import yaml

from seamark.dispatch.slurm.commands import query
from seamark.errors import SiteError
from seamark.model.site import Partition

ENGINES = ("apptainer", "singularity")
SINFO = ("sinfo", "--noheader", "--exact", "--format=%R|%D|%c|%m|%G|%l|%h|%a")
PARTITIONS = ("scontrol", "--oneliner", "show", "partition")
CONFIG = ("scontrol", "show", "config")
QOS = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,maxwall,maxsubmitpu,maxjobspu")
ASSOCIATIONS = ("sacctmgr", "--noheader", "--parsable2", "show", "associations")

GPU = re.compile(r"^gpu(?::([^:(]+))?:(\d+)")
DURATION = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(?:(\d+):)?(\d+)$")
UNLIMITED = ("", "infinite", "unlimited", "n/a", "none")
ONE_USER = re.compile(r"^PartitionName=(\S+) .*\bExclusiveUser=YES\b", re.MULTILINE)
ENGINE = re.compile(r"^((?:apptainer|singularity)(?:/\S*)?)$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Output:
    """Output of Slurm's commands and of `module`, empty where one fails. `module_init` is None without modules."""

    partitions: str
    config: str
    rules: str = ""
    qos: str = ""
    associations: str = ""
    module_init: Path | None = None
    modules: str = ""
    has_apptainer: bool = False


def query_site(environment: Mapping[str, str] = os.environ) -> Output:
    """Query Slurm and the module system of this machine. Raises SiteError where Slurm does not answer."""
    if shutil.which("sinfo") is None:
        raise SiteError("no `sinfo` here: run this on a login node of the site, where `sinfo` lists its partitions.")
    partitions = query(*SINFO) or ""
    if not partitions.strip():
        raise SiteError("sinfo lists no partition: is Slurm up, and may you use it? Try `sinfo` itself.")
    init = _module_init(environment)
    return Output(
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
    """Return the file that defines the command `module` for a shell, None without one."""
    homes_of_shell = (query("bash", "-lc", 'printf "%s\\n" "$LMOD_PKG" "$MODULESHOME"') or "").splitlines()
    homes = [environment.get("LMOD_PKG"), environment.get("MODULESHOME"), *homes_of_shell]
    files = (Path(home) / "init" / "bash" for home in homes if home)
    return next((file for file in files if file.is_file()), None)


def _available(init: Path) -> str:
    """Return the modules of container engines, one a line; `module` prints on its error output."""
    script = '. "$1" || exit; shift; for engine in "$@"; do module -t avail "$engine" 2>&1; done; true'
    return query("bash", "-c", script, "seamark", str(init), *ENGINES) or ""


@dataclass(frozen=True, kw_only=True)
class PartitionFacts(Partition):
    """A partition by its most frequent kind of node; `mixed` when it has others too. With `whole_nodes` a node runs
    the jobs of one user only; without `own_jobs_share` one job only."""

    name: str
    whole_nodes: bool
    own_jobs_share: bool
    mixed: bool


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """Facts of a site. Times in seconds, None for no limit."""

    cluster: str
    partitions: Sequence[PartitionFacts]
    qos: Mapping[str, int | None]
    default_qos: str | None
    max_submit: int | None
    qos_max_submit: Mapping[str, int]
    accounts: Sequence[str]
    module_init: str | None
    engine_modules: Sequence[str]
    has_apptainer: bool


def site_facts(output: Output) -> SiteFacts:
    """Return the facts in the output. QoS are those that the user may request, of all accounts."""
    config = dict(_settings(output.config))
    associations = [line.split("|") for line in output.associations.splitlines() if line.count("|") == 3]
    allowed = {name for row in associations for name in row[1].split(",") if name}
    limits = {row[0]: row for row in (line.split("|") for line in output.qos.splitlines()) if len(row) == 4}
    named = [name for name in limits if name in allowed]
    most = [int(row[3]) for row in associations if row[3].isdigit()]
    return SiteFacts(
        cluster=config.get("ClusterName", "slurm"),
        partitions=tuple(_partitions(output, config.get("SelectType", ""))),
        qos={name: seconds(limits[name][1]) for name in named},
        default_qos=next((row[2] for row in associations if row[2]), None),
        max_submit=min(most, default=None),
        qos_max_submit={name: int(limits[name][2]) for name in named if limits[name][2].isdigit()},
        accounts=tuple(dict.fromkeys(row[0] for row in associations)),
        module_init=None if output.module_init is None else str(output.module_init),
        engine_modules=tuple(_engines(output.modules)),
        has_apptainer=output.has_apptainer,
    )


def seconds(text: str) -> int | None:
    """Return a duration as Slurm writes it (`1-00:00:00`, `12:00:00`, `30:00`, minutes), None for no limit."""
    if text.strip().lower() in UNLIMITED:
        return None
    match = DURATION.match(text.strip())
    if match is None:
        return None
    days, first, second, last = match.groups()
    if first is None:
        return int(last) * 60 if days is None else int(days) * 86400 + int(last) * 3600
    hours, minutes = (first, second) if second is not None else (0, first)
    if days is not None and second is None:
        hours, minutes, last = first, last, "0"
    return int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + int(last)


def _partitions(output: Output, select: str) -> Iterator[PartitionFacts]:
    rows: dict[str, list[list[str]]] = {}
    to_one_user = set(ONE_USER.findall(output.rules))
    for line in output.partitions.splitlines():
        row = [cell.strip() for cell in line.split("|")]
        if len(row) == 8 and row[7] == "up":
            rows.setdefault(row[0], []).append(row)
    for name, kinds in rows.items():
        most = max(kinds, key=lambda row: int(row[1]))
        gpus, gres = _gpus(most[4])
        to_one_job = most[6] == "EXCLUSIVE" or select.endswith("/linear")
        yield PartitionFacts(
            name=name,
            nodes=sum(int(row[1]) for row in kinds),
            cpus=int(most[2].rstrip("+")),
            mem_gb=max(int(most[3].rstrip("+")) // 1024, 1),
            gpus=gpus,
            gres=gres,
            time_limit_s=seconds(most[5]),
            whole_nodes=to_one_job or name in to_one_user,
            own_jobs_share=not to_one_job,
            mixed=len({tuple(row[2:5]) for row in kinds}) > 1,
        )


def _gpus(text: str) -> tuple[int, str]:
    """Return a node's number of GPUs and the name of their gres: with a type if there are several."""
    kinds = Counter[str]()
    for entry in text.split(","):
        if match := GPU.match(entry):
            kinds[match[1] or ""] += int(match[2])
    if not kinds:
        return 0, "gpu"
    kind, count = kinds.most_common(1)[0]
    return count, f"gpu:{kind}" if kind and len(kinds) > 1 else "gpu"


def _engines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if match := ENGINE.match(line.strip().removesuffix("(default)").rstrip("/")):
            yield match[1]


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            yield key.strip(), value.strip()


def site_text(name: str, facts: SiteFacts, on: str) -> str:
    """Return the text of config/sites/NAME.yaml. `on` is the date of the facts, for its first line."""
    return "\n".join(_lines(name, facts, on)) + "\n"


def _lines(name: str, facts: SiteFacts, on: str) -> Iterator[str]:
    contained = facts.has_apptainer or bool(facts.engine_modules)
    yield f"# The Slurm cluster '{facts.cluster}', as its own commands described it on {on}. Yours to correct."
    yield _entry("name", name)
    yield _entry("summary", f"Slurm cluster {facts.cluster}")
    yield "profile: slurm"
    yield f"runtime: {'apptainer' if contained else 'venv'}"
    yield from _modules(facts)
    yield from _needs(facts)
    whole = [partition for partition in facts.partitions if partition.whole_nodes]
    if whole:
        names = ", ".join(partition.name for partition in whole)
        where = "" if len(whole) == len(facts.partitions) else f" in {names}"
        yield f"\n# A job gets whole nodes{where}: resources are what a deployment uses."
        if shared := [partition.name for partition in whole if partition.own_jobs_share]:
            yield f"# In {', '.join(shared)} jobs of your own may share one, and would measure each other."
        yield "whole_nodes: true"
    yield "\n# By the kind of node that each has most of. Memory in GiB, times in seconds."
    yield "partitions:"
    for partition in facts.partitions:
        note = "  # has nodes of other kinds too" if partition.mixed else ""
        yield f"  {_flow({partition.name: _partition(partition)})[1:-1]}{note}"
    if facts.qos:
        default = f" Yours without one: {facts.default_qos}." if facts.default_qos else ""
        yield f"\n# QoS that you may ask for, and seconds of a job; null: what the partition allows.{default}"
        yield f"qos: {_flow(facts.qos)}"
    if facts.max_submit is not None or facts.qos_max_submit:
        yield "\n# How many jobs you may have waiting and running; a run submits no more."
    if facts.max_submit is not None:
        yield f"max_submit: {facts.max_submit}"
    if facts.qos_max_submit:
        yield f"qos_max_submit: {_flow(facts.qos_max_submit)}"
    yield "\n# A heartbeat crosses a shared file system, so a lease is long."
    yield "lease_s: 120.0"


def _modules(facts: SiteFacts) -> Iterator[str]:
    if facts.module_init is None:
        return
    yield "\n# Compute nodes may have other modules than this one: try `module avail` in a job."
    yield _entry("module_init", facts.module_init)
    if facts.engine_modules:
        yield f"modules: {_flow([facts.engine_modules[-1]])}"
        yield f"# Found: {', '.join(facts.engine_modules)}"
    else:
        yield "modules: []   # none is called apptainer or singularity"


def _needs(facts: SiteFacts) -> Iterator[str]:
    if facts.accounts:
        yield f"\n# Your accounts: {', '.join(facts.accounts)}. A scenario names one: `account: {facts.accounts[0]}`."
        yield "needs: [partition, account]"
    else:
        yield "\n# Accounting names no account of yours."
        yield "needs: [partition]"


def _partition(partition: PartitionFacts) -> dict[str, Any]:
    """Return the entry of a partition in the site's file, without what is its default."""
    names = ("nodes", "cpus", "mem_gb", "gpus", "gres", "time_limit_s")
    return {name: value for name in names if (value := getattr(partition, name)) != getattr(Partition, name, None)}


def _entry(key: str, value: str) -> str:
    return yaml.safe_dump({key: value}, width=1000).strip()


def _flow(value: Mapping[str, Any] | list[str]) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).strip()
