"""A site's YAML from what was found of it, with a word on each thing that a person should look at. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from seamark.dispatch.slurm.site_facts import Found, FoundPartition


def site_text(name: str, found: Found, on: str) -> str:
    """Return the text of config/sites/NAME.yaml. `on` says when it was asked, for its first line."""
    return "\n".join(_lines(name, found, on)) + "\n"


def _lines(name: str, found: Found, on: str) -> Iterator[str]:
    contained = found.has_apptainer or bool(found.engine_modules)
    yield f"# The Slurm cluster '{found.cluster}', as its own commands described it on {on}. Yours to correct."
    yield _entry("name", name)
    yield _entry("summary", f"Slurm cluster {found.cluster}")
    yield "profile: slurm"
    yield f"runtime: {'apptainer' if contained else 'venv'}"
    yield from _modules(found)
    yield from _needs(found)
    whole = [partition for partition in found.partitions if partition.whole_nodes]
    if whole:
        yield "\n# A job gets whole nodes" + _which(whole, found) + ": resources are what a deployment uses."
        if shared := [partition.name for partition in whole if partition.own_jobs_share]:
            yield f"# In {', '.join(shared)} jobs of your own may share one, and would measure each other."
        yield "whole_nodes: true"
    yield "\n# By the kind of node that each has most of. Memory in GiB, times in seconds."
    yield "partitions:"
    for partition in found.partitions:
        note = "  # has nodes of other kinds too" if partition.mixed else ""
        yield f"  {_flow({partition.name: _partition(partition)})[1:-1]}{note}"
    if found.qos:
        default = f" Yours without one: {found.default_qos}." if found.default_qos else ""
        yield f"\n# QoS that you may ask for, and seconds of a job; null: what the partition allows.{default}"
        yield f"qos: {_flow(found.qos)}"
    if found.max_submit is not None or found.qos_max_submit:
        yield "\n# How many jobs you may have waiting and running; a run submits no more."
    if found.max_submit is not None:
        yield f"max_submit: {found.max_submit}"
    if found.qos_max_submit:
        yield f"qos_max_submit: {_flow(found.qos_max_submit)}"
    yield "\n# A heartbeat crosses a shared file system, so a lease is long."
    yield "lease_s: 120.0"


def _modules(found: Found) -> Iterator[str]:
    if found.module_init is None:
        return
    yield "\n# Compute nodes may have other modules than this one: try `module avail` in a job."
    yield _entry("module_init", found.module_init)
    if found.engine_modules:
        yield f"modules: {_flow([found.engine_modules[-1]])}"
        yield f"# Found: {', '.join(found.engine_modules)}"
    else:
        yield "modules: []   # none is called apptainer or singularity"


def _needs(found: Found) -> Iterator[str]:
    if found.accounts:
        yield f"\n# Your accounts: {', '.join(found.accounts)}. A scenario names one: `account: {found.accounts[0]}`."
        yield "needs: [partition, account]"
    else:
        yield "\n# Accounting names no account of yours."
        yield "needs: [partition]"


def _which(whole: list[FoundPartition], found: Found) -> str:
    return "" if len(whole) == len(found.partitions) else f" in {', '.join(each.name for each in whole)}"


def _partition(partition: FoundPartition) -> dict[str, Any]:
    facts: dict[str, Any] = {"nodes": partition.nodes, "cpus": partition.cpus, "mem_gb": partition.mem_gb}
    if partition.gpus:
        facts["gpus"] = partition.gpus
    if partition.gres != "gpu":
        facts["gres"] = partition.gres
    if partition.time_limit_s is not None:
        facts["time_limit_s"] = partition.time_limit_s
    return facts


def _entry(key: str, value: str) -> str:
    return yaml.safe_dump({key: value}, width=1000).strip()


def _flow(value: Mapping[str, Any] | list[str]) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).strip()
