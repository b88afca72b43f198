"""plan.json, meta.json, and the documents of servers and environments: what was planned, where it ran."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Required, TypedDict

from seamark.model.results.values import Count, Moment, Number, Setting, Word
from seamark.model.server_identity import ServerRecord


class Machine(TypedDict, total=False):
    """What a node is."""

    cpu_model: Word
    cpus_logical: Count
    cpus_physical: Count
    memory_bytes: Count
    cpu: Mapping[str, Any] | None
    memory: Mapping[str, Any] | None
    clock: Mapping[str, Any] | None
    gpu: Mapping[str, Any] | None
    network: Mapping[str, Any] | None
    mounts: Mapping[str, Mapping[str, Any]] | None


class Node(TypedDict, total=False):
    """One node of a trial."""

    machine: Machine | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class Meta(TypedDict, total=False):
    """meta.json: where and with what a trial was measured."""

    trial_id: Word
    server_identity: ServerRecord | None
    timestamp: Moment
    host: Word
    node: Word
    seed: Count
    software: Mapping[str, Any] | None
    slurm: Mapping[str, Any] | None
    machine: Machine | None
    pinning: Mapping[str, Any] | None
    shards: list[Mapping[str, Any]] | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    nodes: Mapping[str, Node] | None
    nodes_unknown: Word


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A service's environment that was made: .environments/NAME-DIGEST.json."""

    schema_version: int = 1
    name: str = ""
    lock_digest: str = ""
    root: str
