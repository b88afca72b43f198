"""YAML of a site from its facts, with a comment on each thing that a person should review. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from seamark.dispatch.slurm.site_facts import PartitionFacts, SiteFacts


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
        yield "\n# A job gets whole nodes" + _which(whole, facts) + ": resources are what a deployment uses."
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


def _which(whole: list[PartitionFacts], facts: SiteFacts) -> str:
    return "" if len(whole) == len(facts.partitions) else f" in {', '.join(each.name for each in whole)}"


def _partition(partition: PartitionFacts) -> dict[str, Any]:
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
