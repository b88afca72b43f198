"""One node: what does not change on it while a trial runs, and all that is known of it as one document."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamark.dispatch.identity import node
from seamark.telemetry.provenance.clock import clock
from seamark.telemetry.provenance.cpu import processors
from seamark.telemetry.provenance.gpu import gpus
from seamark.telemetry.provenance.memory import memory
from seamark.telemetry.provenance.moment import moment
from seamark.telemetry.provenance.mounts import mounts
from seamark.telemetry.provenance.network import network
from seamark.telemetry.provenance.software import os_name
from seamark.telemetry.provenance.text import ROOT, text

Facts = dict[str, Any]


def machine(paths: Mapping[str, Path] | None = None, root: Path = ROOT) -> Facts:
    """Return what does not change while a trial runs. `paths` are those that it uses, by their role."""
    cpu, pages = processors(root), memory(root)
    return {
        "hostname": node(),
        "cpu_model": cpu["model"],
        "cpus_logical": cpu["threads"],
        "cpus_physical": cpu["cores"],
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "memory_bytes": pages["total_bytes"],
        "kernel": text(root / "proc/sys/kernel/osrelease"),
        "os": os_name(),
        "governor": cpu["governor"],
        "transparent_hugepages": pages["transparent_hugepages"],
        "cgroup": text(root / "proc/self/cgroup"),
        "cpu": cpu,
        "memory": pages,
        "clock": clock(root),
        "gpu": gpus(root),
        "network": network(root),
        "mounts": mounts(paths or {}, root),
    }


def described(paths: Mapping[str, Path], *, whole: bool = True) -> Facts:
    """Return this node as one document: its name, what changes, and, if `whole`, what does not."""
    facts: Facts = {"schema_version": 1, "node": node(), "moment": moment()}
    return facts | ({"machine": machine(paths)} if whole else {})
