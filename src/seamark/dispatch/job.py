"""Nouns of dispatch: a job's resources, its specification, its state in the queue, and the nodes it runs on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of one batch job. None: the batch system's default."""

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_per_task: int | None = None
    mem_gb: int | None = None
    time_min: int | None = None


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job to submit: it runs `command` in `folder`, with its output in `logs` as NAME_ID.out and NAME_ID.err.

    `options` are further options of the batch system, handed on as they are.
    """

    command: Sequence[str]
    name: str
    logs: Path
    folder: Path
    resources: Resources
    options: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of this user that has not ended. `nodes` is empty until it runs; `reason` is that of a pending one."""

    id: str
    name: str
    state: str
    nodes: str
    folder: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of an allocation: its name, the address at which others reach it, and whether this process is on it."""

    name: str
    host: str
    here: bool
