"""The scenario: one experiment as workloads, factors and repetitions, and leaves of structured settings that are
factors. Frozen; decoded in config/read.py."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seamark.model.annotations import limited, limits_of
from seamark.model.service import External, Setting, Value

Levels = tuple[Value, ...]
Searched = Literal["rate_rps", "concurrency"]
Restarts = Literal["each", "once"]
"""Whether every block of trials has a start of each server, or all blocks one."""
CapacityCheck = Literal["stop", "note", "off"]
"""Whether a server that does not fit the memory of its GPUs stops a plan, is a note, or is not looked for."""
NotifyEvent = Literal["end", "failure"]
NO_COMMAND = "is empty. Write the command and its arguments, as a list."
Outcome = Literal["converged", "undecided", "all_pass", "none_pass", "budget_spent", "not_judged"]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of one deployment and its load. A tuple of several values is a deployment factor."""

    nodes: tuple[int, ...] = limited((1,), minimum=1, maximum=100_000, help="Nodes of a deployment.")
    gpus: tuple[int, ...] = limited((0,), minimum=0, maximum=1_000_000, help="GPUs over all nodes.")
    cpus_per_task: tuple[int, ...] = limited((1,), minimum=1, maximum=65_536, unit="CPUs", help="CPUs of a node.")
    mem_gb: tuple[int, ...] = limited((1,), minimum=1, maximum=1_000_000, unit="GB", help="Memory of a node.")


RESOURCE_SETTINGS = tuple(
    Setting(name=name, type="int", role="deployment", default=getattr(Resources, name)[0], **limits)
    for name, limits in limits_of(Resources).items()
)


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

    setting: Searched = limited(missing=": rate_rps or concurrency")
    from_level: float = limited(written="from", missing=": a load that the server surely bears")
    to_level: float = limited(written="to", missing=": the largest load that is tried")
    within: float = limited(0.05, minimum=0.001, maximum=1.0)
    budget_s: float = limited(300.0, minimum=1.0, maximum=604800.0)
    confirm: int = limited(1, minimum=0, maximum=10)

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
    at the same time: `leaves` are then the settings of all of them, as `PARTY.SETTING`. With `fresh_server` each
    treatment has a server that no other one was measured on. `own` are the settings that this service alone is given,
    where several are compared: its levels of these have no counterpart among the others.
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
    path: str = field(default="workload", compare=False)
    """Where it stands in the scenario, as in `Scenario.lines`."""
    fresh_server: bool = limited(False, help="Whether each treatment has a server of its own.")
    own: frozenset[str] = frozenset()

    @property
    def loads(self) -> "Mapping[str, Workload]":
        """What is under load, by the beginning of the names of its settings: the parties, or the workload itself."""
        return {f"{party.name}.": party.workload for party in self.parties} or {"": self}

    def every_level(self, name: str, default: Value = None) -> Levels:
        """Return the levels of a setting, by default the default alone, then those of included treatments."""
        own = self.levels.get(name, () if default is None else (default,))
        return (*own, *(entry[name] for entry in self.include if name in entry))


def compared_services(workload: Workload, workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Return the services of one written workload, of which the decoder makes a workload each; several are compared
    under one load."""
    return tuple(dict.fromkeys(other.service for other in workloads if other.path == workload.path))


def _image() -> Any:
    return limited(None, pattern=r".*\.sif", wrong="does not end in .sif: name an Apptainer image.")


@dataclass(frozen=True, kw_only=True)
class Party:
    """One of several services that are under load at the same time, as a workload of its own. `gpus` are those of its
    server, `container` is its image, and `external` is one that runs already."""

    name: str
    workload: Workload
    gpus: int = limited(0, minimum=0, unit="GPUs", help="GPUs of its server.")
    container: str | None = _image()
    external: External | None = limited(None, help="Its server, where that runs already.")


@dataclass(frozen=True, kw_only=True)
class Artifacts:
    """Files that a run needs and does not create."""

    container: str | None = _image()
    dataset: str | None = None


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The seed of every random choice, and the author's notes."""

    seed: int = limited(0, minimum=0, maximum=2**53 - 1)
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
    stated, and none are. `costs` are the metrics that quality is held against. With `carry_over` the order within
    blocks is balanced for predecessors, and their effect is tested.
    """

    baseline: Mapping[str, Value] = limited(
        default_factory=dict,
        help="Factor: the level that its others are compared with. Default: the first one.",
    )
    metrics: tuple[str, ...] = limited(
        (), help="Metrics, the first one answers the question: throughput, latency_ms.p99."
    )
    margin: float = limited(
        0.05,
        above=0,
        below=1,
        unit="(0.05 is 5 %)",
        help="Levels are equivalent if they are surely within this ratio of each other.",
    )
    family: tuple[str, ...] = limited((), help="Factors and metrics whose comparisons Holm's method is applied to.")
    quality_margin: float | None = limited(
        None,
        optional=True,
        above=0,
        unit="in units of the score",
        help="Scores of the same items are equivalent if their means are surely within this of each other, in units"
        " of the score. Default: no margin.",
    )
    costs: tuple[str, ...] = limited(
        (), optional=True, help="Metrics that quality is held against: ttft_ms.p50, energy.per_request_j."
    )
    carry_over: bool = limited(
        False,
        optional=True,
        help="Whether to balance the order within blocks for predecessors, and to test whether a result depends on"
        " what ran before it.",
    )


@dataclass(frozen=True, kw_only=True)
class PredictedLoad:
    """Figures of trials at one rate as a model predicted them: by metric, in the unit of an objective, the median and
    both ends of an interval. `met` is the share of simulated trials that met all objectives;
    `suspect` is `extrapolated` for a load outside of those of the model."""

    rate_rps: float
    met: float = limited(minimum=0, maximum=1)
    figures: Mapping[str, tuple[float, ...]]
    suspect: str | None = None


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a scenario's trials are held against: the key `prediction`, which `bench capacity --verify` writes.

    `interval` is the share of simulated trials in each interval. It changes no trial and no name.
    """

    loads: tuple[PredictedLoad, ...] = limited(empty="has no load. `bench capacity --verify` writes predictions.")
    interval: float = limited(0.9, above=0, below=1)
    fit: str | None = None
    notes: str | None = None


@dataclass(frozen=True, kw_only=True)
class Notify:
    """A command that a run starts: at its `end`, and at its first `failure`, while it goes on."""

    command: tuple[str, ...] = limited(empty=NO_COMMAND)
    events: tuple[NotifyEvent, ...] = limited(
        ("end",), empty="an empty list names no event. Write end, failure, or both."
    )


def _word() -> Any:
    return limited(None, pattern=r"\S+", wrong="is not a name: it is empty or holds a blank.")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One experiment on one service or on several.

    `lines` has the place of each part ("workload.batch" -> "file.yaml:12: workload.batch"), for messages about site
    limits. `metrics` and `checks` are dotted paths of the user's own. `restarts` None: `each` where a deployment
    factor varies and starts are cheap against the load. `replicas` is the number of servers with equal settings that
    divide the tasks of an evaluation, for lanes to run side by side. `order` is the one that deployments begin in, in
    one line (dispatch/order.py); no trial's identity has it.
    """

    name: str
    path: Path
    workloads: tuple[Workload, ...]
    repetitions: int = limited(3, minimum=1, maximum=10_000)
    max_retries: int = limited(0, minimum=0, maximum=100)
    restarts: Restarts | None = None
    replicas: int = limited(1, minimum=1, maximum=1000)
    order: str | None = None
    capacity_check: CapacityCheck = "stop"
    site: str | None = _word()
    partition: str | None = _word()
    account: str | None = _word()
    qos: str | None = _word()
    gres: str | None = limited(None, pattern=r"gpu(:[\w.-]+)?", wrong="is not 'gpu' or 'gpu:TYPE'.")
    ntasks: int | None = limited(None, minimum=1, maximum=100_000)
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
    """Return settings as a driver has them: each leaf at its place in its structure, and no longer by itself. A name
    with dots that is part of no structure stays, such as that of a pipeline's stage."""
    leaves = {name: value for name, value in settings.items() if "." in name}
    if not leaves:
        return settings
    whole = {name: value for name, value in settings.items() if name not in leaves}
    for root in dict.fromkeys(name.partition(".")[0] for name in leaves):
        if isinstance(text := whole.get(root), str):
            document = _filled(json.loads(text), leaves)
            whole[root] = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        else:
            whole |= {name: value for name, value in leaves.items() if name.partition(".")[0] == root}
    return whole


def _filled(value: Any, leaves: Mapping[str, Value]) -> Any:
    if is_placeholder(value):
        return leaves[value[FACTOR]]
    if isinstance(value, dict):
        return {key: _filled(child, leaves) for key, child in value.items()}
    return [_filled(child, leaves) for child in value] if isinstance(value, list) else value
