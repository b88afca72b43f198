"""Deployments, trials and the plan that lists them. plan.json is a plan, trial.json that of one trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

from seamark.model.load_profile import LoadProfile
from seamark.model.results.values import OPTIONAL
from seamark.model.scenario import RESOURCE_SETTINGS, Comparing, Prediction, Restarts, Search, Slo
from seamark.model.service import External, Quality, Value

SCHEMA_VERSION: Final = 1
SERVICE = "service"
"""Factor of a workload that lists several services."""
PARTY = "@"
"""Separates the name of a party in ids of its trials, and of the members of a deployment."""
WHOLE_LASTS = ("warmup_s", "duration_s", "timeout_s")
"""Settings of a trial with parties that only say how long the longest of them is under load."""
RESOURCES = tuple(setting.name for setting in RESOURCE_SETTINGS)
"""Fields of a deployment that may be factors."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The server settings shared by some trials: one start of a server. `id` is a slug without `--`.

    With `restarts: each` every block of trials has a start of its own: a deployment with the `block` and the id
    `DEPLOYMENT.rN`. With `replicas: N` the tasks are divided among N starts, each with its `replica` and `.replicaN`
    at the end of its id. Ids of trials begin with its `name`, the id without both.

    Trials with parties have a server for each party: the `members`, deployments of their own with the id
    `DEPLOYMENT@PARTY`. `placement` is the policy that divides the machine among them. A member with `external` is a
    server that Seamark does not start. `container` is the image that the scenario names for the server.
    """

    id: str
    service: str
    settings: Mapping[str, Value]
    nodes: int
    gpus: int
    cpus_per_task: int
    mem_gb: int
    members: "tuple[Deployment, ...]" = field(default=(), metadata=OPTIONAL)
    placement: str | None = field(default=None, metadata=OPTIONAL)
    container: str | None = field(default=None, metadata=OPTIONAL)
    external: External | None = field(default=None, metadata=OPTIONAL)
    block: int | None = field(default=None, metadata=OPTIONAL)
    replica: int | None = field(default=None, metadata=OPTIONAL)

    @property
    def name(self) -> str:
        """The id of the server settings, which all its starts have in common."""
        head, mark, party = self.id.partition(PARTY)
        if self.replica is not None:
            head = head.removesuffix(replica_mark(self.replica))
        if self.block is not None:
            head = head.removesuffix(start_mark(self.block))
        return head + mark + party

    def started_for(self, block: int) -> "Deployment":
        """Return the start of this deployment, and of its members, for the trials of one block."""
        mark = start_mark(block)
        members = (
            replace(member, id=member.id.replace(PARTY, mark + PARTY, 1), block=block) for member in self.members
        )
        return replace(self, id=self.id + mark, members=tuple(members), block=block)

    @property
    def served(self) -> "tuple[Deployment, ...]":
        """The deployments with a server: the members, or this one."""
        return self.members or (self,)

    @property
    def whole(self) -> str:
        """The id of the deployment that a member belongs to; of another deployment its own."""
        return self.id.partition(PARTY)[0]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One treatment, measured once. `id` is `{deployment}--{workload}--r{repetition}` and names its folder.

    `settings` holds every setting of the service and of the load with its value; `changed` only those that
    differ from their defaults, which is what identity is made of. `config_hash` keys the raw samples. `block`
    (from 1) is the repetition's block, `position` (from 1) the trial's place among its deployment's trials. `group`
    is the name of the scenario's workload it belongs to: what it is compared within, never a part of identity.
    A trial with a `search` measures several loads, its probes, and keeps what the largest that meets its objectives
    left. `metrics` and `checks` are dotted paths of the user's own: like `slos`, no part of identity.
    A trial with `parties` puts several services under load at the same time: each party is a trial of its own, with
    the id `{deployment}--{workload}@{party}--r{repetition}`, and everything is measured of them. `beside` has the
    factors of such a trial that are no settings of the party. With `keep_busy` a party whose work runs out begins
    anew. `own` has the settings that only its service was given (`Workload.own`), each with the place of its level,
    from 0, among the levels of that service.
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
    metrics: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    checks: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    parties: "tuple[Trial, ...]" = field(default=(), metadata=OPTIONAL)
    beside: Mapping[str, Value] | None = field(default=None, metadata=OPTIONAL)
    keep_busy: bool = field(default=False, metadata=OPTIONAL)
    own: Mapping[str, int] | None = field(default=None, metadata=OPTIONAL)

    @property
    def party(self) -> str | None:
        """The name of the party that this trial is, None for a whole trial."""
        return party_of(self.id)

    @property
    def measured(self) -> "tuple[Trial, ...]":
        """The trials that have figures: the parties, or this one."""
        return self.parties or (self,)

    @property
    def tree(self) -> "tuple[Trial, ...]":
        """This trial, then its parties: all that have a folder."""
        return (self, *self.parties)

    def moved_to(self, start: Deployment) -> "Trial":
        """Return this trial, and its parties, as measured on that start. Nothing that names it changes."""
        members = {member.name: member.id for member in start.members}
        parties = (replace(party, deployment=members[party.deployment]) for party in self.parties)
        return replace(self, deployment=start.id, parties=tuple(parties))

    @cached_property
    def load(self) -> LoadProfile:
        """The settings of the load; others belong to the service."""
        return LoadProfile.of(self.settings)

    @property
    def treatment(self) -> str:
        """The trial's id without its repetition."""
        return self.id.rsplit("--r", 1)[0]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All deployments and trials of a scenario, in their order of execution.

    `factors` are the levels by role: `deployment`, `workload`, `policy`; in trial.json the trial's own, by `trial`.
    With `restarts: each` there is a deployment for every block, else one for all; with replicas several of each.
    `compare` is what the scenario declares to compare, `qualities` are the figures that its recipes declare,
    `prediction` what a model predicted of its trials; no trial.json has it.
    `digest` covers all other fields, in trial.json only: it distinguishes a whole file from a damaged one.
    """

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
    schema_version: Literal[1] = SCHEMA_VERSION
    compare: Comparing | None = field(default=None, metadata=OPTIONAL)
    digest: str | None = field(default=None, metadata=OPTIONAL)
    restarts: Restarts = field(default="once", metadata=OPTIONAL)
    qualities: Mapping[str, Quality] = field(default_factory=dict, metadata=OPTIONAL)
    prediction: Prediction | None = field(default=None, metadata=OPTIONAL)
    gres: str | None = field(default=None, metadata=OPTIONAL)
    ntasks: int | None = field(default=None, metadata=OPTIONAL)

    @property
    def measured(self) -> tuple[Trial, ...]:
        """All trials that have figures: of a trial with parties each of these."""
        return tuple(part for trial in self.trials for part in trial.measured)

    def by_treatment(self) -> dict[str, list[Trial]]:
        """Return the trials that have figures, by their treatment."""
        groups: dict[str, list[Trial]] = {}
        for trial in self.measured:
            groups.setdefault(trial.treatment, []).append(trial)
        return groups

    @property
    def served(self) -> tuple[Deployment, ...]:
        """All deployments with a server: members in place of the deployment that they belong to."""
        return tuple(member for deployment in self.deployments for member in deployment.served)

    @property
    def factors_without_p(self) -> tuple[str, ...]:
        """The factors whose levels have one server start each, so that time and level are confounded."""
        replicas = any(deployment.replica is not None for deployment in self.deployments)
        return () if self.restarts == "each" or replicas else tuple(self.factors.get("deployment") or ())

    @property
    def divided(self) -> bool:
        """Whether the trials of some server settings are divided among several starts."""
        return any(deployment.block is not None or deployment.replica is not None for deployment in self.deployments)

    @cached_property
    def starts(self) -> Mapping[str, Deployment]:
        """Each deployment and member by its id."""
        return {deployment.id: deployment for deployment in (*self.deployments, *self.served)}

    @property
    def names(self) -> Mapping[str, str]:
        """The name of each deployment and member, which all its starts have in common, by the id of a start."""
        return {key: deployment.name for key, deployment in self.starts.items()}

    @cached_property
    def with_folder(self) -> Mapping[str, Trial]:
        """Each trial, and each party of one, by its id."""
        return {node.id: node for trial in self.trials for node in trial.tree}

    @cached_property
    def of_starts(self) -> Mapping[str, tuple[Trial, ...]]:
        """The trials of each deployment, and the parties of each member, in the order of their positions."""
        groups: dict[str, list[Trial]] = {}
        for trial in self.with_folder.values():
            groups.setdefault(trial.deployment, []).append(trial)
        return {key: tuple(sorted(group, key=lambda trial: trial.position)) for key, group in groups.items()}

    def by_deployment(self) -> dict[str, list[Trial]]:
        """Return the trials of each deployment by its id, in the order of the plan."""
        trials: dict[str, list[Trial]] = {deployment.id: [] for deployment in self.deployments}
        for trial in self.trials:
            trials[trial.deployment].append(trial)
        return trials


def start_mark(block: int) -> str:
    """Return what the start of a deployment for one block adds to its id."""
    return f".r{block}"


def replica_mark(number: int) -> str:
    """Return what a replica of a deployment adds to its id."""
    return f".replica{number}"


def party_of(trial_id: str) -> str | None:
    """Return the name of the party in the id of a trial, None for a whole trial."""
    _, mark, rest = trial_id.partition(PARTY)
    return rest.rpartition("--r")[0] if mark else None


def whole_of(trial_id: str) -> str:
    """Return the id of the whole trial that a party's trial belongs to; of a whole trial its own."""
    head, mark, rest = trial_id.partition(PARTY)
    return f"{head}--r{rest.rpartition('--r')[2]}" if mark else trial_id


def settings_of(plan: Plan) -> Mapping[str, Mapping[str, Value]]:
    """Return all settings of each treatment, with the resources of its deployment, and its service where several are
    compared."""
    compared = any(SERVICE in levels for levels in plan.factors.values())
    values: dict[str, Mapping[str, Value]] = {}
    for trial in (*plan.trials, *plan.measured):
        if trial.treatment not in values:
            deployment = plan.starts.get(trial.deployment)
            resources = {name: getattr(deployment, name) for name in RESOURCES} if deployment else {}
            lasts = {name: None for name in WHOLE_LASTS if trial.parties}  # follows from the parties
            values[trial.treatment] = {
                **({SERVICE: trial.service} if compared else {}),
                **trial.settings,
                **(trial.beside or {}),
                **resources,
                **lasts,
            }
    return values


def levels_of(plan: Plan) -> Mapping[str, Mapping[str, Value]]:
    """Return the level of every factor for each treatment. A factor is a setting that varies within a workload."""
    values = settings_of(plan)
    groups: dict[str, dict[str, None]] = {}
    for trial in (*plan.trials, *plan.measured):
        groups.setdefault(trial.group, {})[trial.treatment] = None
    levels: dict[str, Mapping[str, Value]] = {}
    for members in groups.values():
        names = _varying([values[treatment] for treatment in members])
        if SERVICE in names:  # what each service has at one level follows from the service
            of_one = _by_level([values[treatment] for treatment in members], SERVICE)
            within = {name for alike in of_one for name in _varying(alike)}
            names = [name for name in names if name == SERVICE or name in within]
        levels |= {treatment: {name: values[treatment].get(name) for name in names} for treatment in members}
    return levels


def _by_level(treatments: Sequence[Mapping[str, Value]], name: str) -> list[list[Mapping[str, Value]]]:
    groups: dict[Value, list[Mapping[str, Value]]] = {}
    for values in treatments:
        groups.setdefault(values[name], []).append(values)
    return list(groups.values())


def _varying(treatments: Sequence[Mapping[str, Value]]) -> list[str]:
    names = dict.fromkeys(name for values in treatments for name in values)
    # with its type: True is not the level 1
    return [name for name in names if len({(type(values.get(name)), values.get(name)) for values in treatments}) > 1]
