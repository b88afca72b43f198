"""The scenario: one experiment as workloads, factors and repetitions, and leaves of structured settings that are
factors. Frozen; decoded in config/read.py."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seamark.model.results.values import OPTIONAL
from seamark.model.service import Setting, Value

Levels = tuple[Value, ...]
Searched = Literal["rate_rps", "concurrency"]
Restarts = Literal["each", "once"]
"""Whether every block of trials has a start of each server, or all blocks one."""
CapacityCheck = Literal["stop", "note", "off"]
"""Whether a server that does not fit the memory of its GPUs stops a plan, is a note, or is not looked for."""
NotifyEvent = Literal["end", "failure"]
Outcome = Literal["converged", "undecided", "all_pass", "none_pass", "budget_spent", "not_judged"]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of one deployment and its load. A tuple of several values is a deployment factor."""

    nodes: tuple[int, ...] = (1,)
    gpus: tuple[int, ...] = (0,)
    cpus_per_task: tuple[int, ...] = (1,)
    mem_gb: tuple[int, ...] = (1,)


@dataclass(frozen=True, kw_only=True)
class Slo:
    """A service-level objective: `metric` compared with `limit`, in the metric's own unit.

    Metrics that a single request can meet (`latency_s`, `ttft_s`) also define goodput.
    """

    metric: str
    op: Literal["<=", ">="]
    limit: float


@dataclass(frozen=True, kw_only=True)
class Search:
    """The searched setting, its range, its resolution and its budget.

    Levels lie `within` of each other from `from_level` to `to_level` (as a ratio: 0.05 is 5 %). No probe begins after
    `budget_s` seconds. `confirm` is the number of repeated probes of the result, with other seeds.
    """

    setting: Searched
    from_level: float
    to_level: float
    within: float = 0.05
    budget_s: float = 300.0
    confirm: int = 1

    @property
    def whole(self) -> bool:
        """Whether its levels are whole numbers."""
        return self.setting == "concurrency"

    def level(self, value: float) -> int | float:
        """Return a level as the setting has it: whole users, or a rate of four significant digits."""
        return round(value) if self.whole else float(f"{value:.4g}")


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One service under load: settings with one level are fixed, with several they are factors.

    `contents` has the SHA-256 of each file that a level names (a trace): another content is another measurement. With
    a `search` each treatment searches the level of one setting, whose only level here is the first one. `leaves` are
    the settings that leaves of its structures are (`filled`). With `parties` several services are under load
    at the same time: `leaves` are then the settings of all of them, as `PARTY.SETTING`.
    """

    name: str
    component: str
    service: str
    levels: Mapping[str, Levels]
    include: tuple[Mapping[str, Value], ...] = ()
    exclude: tuple[Mapping[str, Value], ...] = ()
    where: tuple[str, ...] = ()
    slos: tuple[Slo, ...] = ()
    search: Search | None = None
    contents: Mapping[str, str] = field(default_factory=dict)
    leaves: tuple[Setting, ...] = ()
    parties: "tuple[Party, ...]" = ()

    @property
    def loads(self) -> "Mapping[str, Workload]":
        """What is under load, by the beginning of the names of its settings: the parties, or the workload itself."""
        return {f"{party.name}.": party.workload for party in self.parties} or {"": self}


@dataclass(frozen=True, kw_only=True)
class Party:
    """One of several services that are under load at the same time, as a workload of its own. `gpus` are those of its
    server."""

    name: str
    workload: Workload
    gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class Artifacts:
    """Files that a run needs and does not create."""

    container: str | None = None
    dataset: str | None = None


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The seed of every random choice, and the author's notes."""

    seed: int = 0
    git_commit: str | None = None
    notes: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """What a scenario compares: the key `compare`.

    `baseline` has the level that the others of a factor are compared with, by default the first one. `metrics` are
    names of the table of metrics; empty: those that the component is known by. Two levels are equivalent if their
    ratio surely lies within `margin` of 1. `family` names the factors and metrics whose comparisons Holm's method is
    applied to; without a factor in it those of all factors, without a metric those of all `metrics`. Scores of the
    same items are equivalent if their means surely lie within `quality_margin` of each other; None: no margin is
    stated, and none are. `costs` are the metrics that quality is held against.
    """

    baseline: Mapping[str, Value] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    margin: float = 0.05
    family: tuple[str, ...] = ()
    quality_margin: float | None = field(default=None, metadata=OPTIONAL)
    costs: tuple[str, ...] = field(default=(), metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class PredictedLoad:
    """Figures of trials at one rate as a model predicted them: by metric, in the unit of an objective, the median and
    both ends of an interval. `met` is the share of simulated trials that met all objectives;
    `suspect` is `extrapolated` for a load outside of those of the model."""

    rate_rps: float
    met: float
    figures: Mapping[str, tuple[float, ...]]
    suspect: str | None = None


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a scenario's trials are held against: the key `prediction`, which `bench capacity --verify` writes.

    `interval` is the share of simulated trials in each interval. It changes no trial and no name.
    """

    loads: tuple[PredictedLoad, ...]
    interval: float = 0.9
    fit: str | None = None
    notes: str | None = None


@dataclass(frozen=True, kw_only=True)
class Notify:
    """A command that a run starts: at its `end`, and at its first `failure`, while it goes on."""

    command: tuple[str, ...]
    events: tuple[NotifyEvent, ...] = ("end",)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One experiment on one service or on several.

    `lines` has the place of each part ("workload.batch" -> "file.yaml:12: workload.batch"), for messages about site
    limits. `metrics` and `checks` are dotted paths of the user's own. `restarts` None: `each` where a deployment
    factor varies and starts are cheap against the load. `replicas` is the number of servers with equal settings that
    divide the tasks of an evaluation, for lanes to run side by side.
    """

    name: str
    path: Path
    workloads: tuple[Workload, ...]
    repetitions: int = 3
    max_retries: int = 0
    restarts: Restarts | None = None
    replicas: int = 1
    capacity_check: CapacityCheck = "stop"
    site: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    resources: Resources = field(default_factory=Resources)
    artifacts: Artifacts = field(default_factory=Artifacts)
    binds: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    metadata: Metadata = field(default_factory=Metadata)
    compare: Comparing | None = None
    prediction: Prediction | None = None
    notify: Notify | None = None
    lines: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


def why_no_p(names: tuple[str, ...]) -> str:
    """Return the sentence that explains why these factors have neither a p nor a smallest detectable effect."""
    has = f"each level of {names[0]}" if len(names) == 1 else f"each level of {', '.join(names[:-1])} and {names[-1]}"
    return (
        f"no p and no smallest effect: {has} is measured on one start of the server, and the trials of a start "
        "share its time and its place. A change of the machine over time, or between two starts, would look the same "
        "as an effect"
    )


FACTOR = "factor"
"""Key of the mapping that stands for a leaf in its structure: {"factor": "command.environment.THREADS"}."""


def placeholder(path: str) -> dict[str, str]:
    """Return what stands in a structure for the leaf of a dotted path."""
    return {FACTOR: path}


def is_placeholder(value: object) -> bool:
    """Return whether a value of a structure stands for a leaf that is a factor."""
    return isinstance(value, Mapping) and set(value) == {FACTOR}


def filled(settings: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return settings as a driver has them: each leaf at its place in its structure, and no longer by itself."""
    leaves = {name: value for name, value in settings.items() if "." in name}
    if not leaves:
        return settings
    whole = {name: value for name, value in settings.items() if name not in leaves}
    for root in dict.fromkeys(name.partition(".")[0] for name in leaves):
        if isinstance(text := whole.get(root), str):
            document = _filled(json.loads(text), leaves)
            whole[root] = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return whole


def _filled(value: Any, leaves: Mapping[str, Value]) -> Any:
    if is_placeholder(value):
        return leaves[value[FACTOR]]
    if isinstance(value, dict):
        return {key: _filled(child, leaves) for key, child in value.items()}
    return [_filled(child, leaves) for child in value] if isinstance(value, list) else value
