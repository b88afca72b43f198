"""What is measured: deployments, trials and the plan that lists them. Made by plan.py, never changed."""

from collections.abc import Mapping
from dataclasses import dataclass

from seamark.model.scenario import Slo
from seamark.model.search import Search
from seamark.model.service import Value

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The server settings shared by some trials: one start of a server. `id` is a slug without `--`."""

    id: str
    service: str
    settings: Mapping[str, Value]
    nodes: int
    gpus: int
    cpus_per_task: int
    mem_gb: int


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One treatment, measured once. `id` is `{deployment}--{workload}--r{repetition}` and names its folder.

    `settings` holds every setting of the service and of the load with its value; `changed` only those that
    differ from their defaults, which is what identity is made of. `config_hash` keys the raw samples. `block`
    (from 1) is the repetition's block, `position` (from 1) the trial's place among its deployment's trials. `group`
    is the name of the scenario's workload it belongs to: what it is compared within, never a part of identity.
    A trial with a `search` measures several loads, its probes, and keeps what the largest that meets its objectives
    left. `metrics` are dotted paths of metrics of the user's own: like `slos`, no part of identity.
    """

    id: str
    trial_id: str
    deployment: str
    workload: str
    component: str
    service: str
    settings: Mapping[str, Value]
    changed: Mapping[str, Value]
    repetition: int
    block: int
    position: int
    seed: int
    config_hash: str
    group: str
    slos: tuple[Slo, ...] = ()
    search: Search | None = None
    metrics: tuple[str, ...] = ()

    @property
    def treatment(self) -> str:
        """The trial's id without its repetition."""
        return self.id.rsplit("--r", 1)[0]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All deployments and trials of a scenario, in the order in which they are to run."""

    scenario: str
    source: str
    seed: int
    repetitions: int
    max_retries: int
    factors: Mapping[str, Mapping[str, tuple[Value, ...]]]
    deployments: tuple[Deployment, ...]
    trials: tuple[Trial, ...]
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    container: str | None = None
    dataset: str | None = None
    binds: tuple[str, ...] = ()
    git_commit: str | None = None
    notes: str | None = None
    schema_version: int = SCHEMA_VERSION
