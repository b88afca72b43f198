"""A pipeline as frozen nouns: its stages, how they are connected, and the load that goes through it.

The names of fields are those that stages written for the original benchmark read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seamark.model.service import Value

MAX_QUERIES, QUEUE_DEPTH, TIMEOUT_S, RATE_RPS = 100, 10, 3600.0, 3.0
SINGLE, FIRST_SUBMITTED, MERGE = "SingleQueuePolicy", "FirstSubmittedPolicy", "MergePolicy"
POLICIES = (SINGLE, FIRST_SUBMITTED, MERGE)
ENTRY = -1
"""Id by which the load generator stands in the queues of stages: the source of queries, and where they end."""
SERVED = "stages.llm_server."
"""Stages whose `concurrency` is how many queries they work on at a time."""
STAGES = "stages"
"""Settings of stages in a scenario begin with this: `stages.1.config.batch_size`."""
FASTER, FASTER_STAGE = "faster", "faster_stage"
"""Settings of a virtual speed-up: by how many percent, and of which stage."""


@dataclass(frozen=True, kw_only=True)
class LoadGen:
    """How queries are generated. `config` is that of the scheduler; `timeout` ends the sending, in seconds."""

    component: str = "loadgen.OfflineLoadScheduler"
    queue_depth: int = QUEUE_DEPTH
    max_queries: int = MAX_QUERIES
    timeout: float = TIMEOUT_S
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StageModel:
    """One stage: `component` is the dotted path of its class, `outputs` are ids of the stages after it.

    `polling_policy` is one of POLICIES, or the dotted path of one. `max_in_flight` is how many queries it works on at
    a time, each in a thread. `disable_logs` takes it out of events and logs, `timed: false` out of the region that a
    standard times; with `copy` it gets a deep copy of each query's contents. It stands `repeat`
    times in a row.
    """

    id: int
    name: str
    slug: str
    component: str
    outputs: tuple[int, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    polling_policy: str = SINGLE
    disable_logs: bool = False
    max_input_queue_depth: int | None = None
    max_in_flight: int = 1
    timed: bool = True
    copy: bool = False
    repeat: int = 1

    @property
    def policy(self) -> str:
        """The policy's name, without its module."""
        return self.polling_policy.rpartition(".")[2]


@dataclass(frozen=True, kw_only=True)
class PipelineModel:
    """One pipeline: queries enter at `inputs`, and their answers leave at `outputs`; all are ids of stages.

    `max_in_flight` limits the queries between the entry queue and the end; `serialize_queries` is a limit of one.
    """

    name: str
    slug: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dataset_stage_id: int
    loadgen: LoadGen
    stages: tuple[StageModel, ...]
    serialize_queries: bool = False
    max_in_flight: int | None = None

    def stage(self, id: int) -> StageModel:
        """Return the stage with this id. Raises StopIteration without one."""
        return next(stage for stage in self.stages if stage.id == id)

    def named(self, name: str) -> StageModel | None:
        """Return the stage with this name, slug or id; None without one."""
        return next((stage for stage in self.stages if name in (stage.name, stage.slug, str(stage.id))), None)

    def copies(self, stage: StageModel) -> frozenset[int]:
        """Return the ids of a stage and of its copies in an `expanded` pipeline."""
        return frozenset(other.id for other in self.stages if other.slug.partition("-")[0] == stage.slug)

    @property
    def limit(self) -> int | None:
        """Most queries in the graph at a time; None: no limit."""
        return 1 if self.serialize_queries else self.max_in_flight

    @property
    def sources(self) -> dict[int, tuple[int, ...]]:
        """Ids of the stages whose output each stage takes, with ENTRY for those that queries enter."""
        entry = dict.fromkeys(self.inputs, (ENTRY,))
        return {
            stage.id: entry.get(stage.id, ())
            + tuple(before.id for before in self.stages if stage.id in before.outputs)
            for stage in self.stages
        }

    @property
    def branches(self) -> bool:
        """Whether a query may have several copies at a time."""
        merges = any(stage.policy == MERGE for stage in self.stages)
        return merges or len(self.inputs) > 1 or any(len(self.all_outputs(stage)) > 1 for stage in self.stages)

    def all_outputs(self, stage: StageModel) -> tuple[int, ...]:
        """Return the ids that a stage sends to, ENTRY among them where its output is an answer."""
        return (*((ENTRY,) if stage.id in self.outputs else ()), *stage.outputs)

    def reachable(self, ids: Iterable[int]) -> set[int]:
        """Return the ids of the stages that are reached from some, these included."""
        after = {stage.id: stage.outputs for stage in self.stages}
        seen: set[int] = set()
        left = list(ids)
        while left:
            if (id := left.pop()) not in seen:
                seen.add(id)
                left += [following for following in after.get(id, ()) if following in after]
        return seen

    def cycles(self) -> list[tuple[StageModel, ...]]:
        """Return the stages of each cycle together: those that reach each other."""
        reached = {stage.id: self.reachable(stage.outputs) for stage in self.stages}
        groups: dict[frozenset[int], None] = {}
        for stage in self.stages:
            if stage.id in reached[stage.id]:
                groups[frozenset(id for id in reached[stage.id] if stage.id in reached[id])] = None
        return [tuple(stage for stage in self.stages if stage.id in group) for group in groups]

    @property
    def expanded(self) -> "PipelineModel":
        """The pipeline with each stage as often as its `repeat` says: copies follow it, under new ids and slugs."""
        free = 1 + max(stage.id for stage in self.stages)
        last: dict[int, int] = {}
        stages: list[StageModel] = []
        for stage in self.stages:
            ids = [stage.id, *range(free, free + stage.repeat - 1)]
            free += stage.repeat - 1
            last[stage.id] = ids[-1]
            for number, id in enumerate(ids):
                mark = f"-{number + 1}" if number else ""
                outputs = stage.outputs if id == ids[-1] else (ids[number + 1],)
                one = replace(stage, id=id, slug=f"{stage.slug}{mark}", outputs=outputs, repeat=1)
                stages.append(replace(one, polling_policy=SINGLE) if number else one)
        return replace(self, stages=tuple(stages), outputs=tuple(last[id] for id in self.outputs))

    def with_settings(self, settings: Mapping[str, Value]) -> "PipelineModel":
        """Return the pipeline with what a scenario sets: `serialize_queries`, and of stages `stages.ID.KEY` or
        `stages.ID.config.KEY...`."""
        serialize = settings.get("serialize_queries")
        stages = []
        for stage in self.stages:
            begin = f"{STAGES}.{stage.id}."
            own = {name.removeprefix(begin): value for name, value in settings.items() if name.startswith(begin)}
            plain = {name: value for name, value in own.items() if name != "config" and "." not in name}
            config = dict(stage.config)
            for name, value in own.items():
                if name.startswith("config."):
                    _put(config, name.split(".")[1:], value)
            changed = replace(stage, **plain, config=config) if own else stage  # type: ignore[arg-type]
            if stage.component.startswith(SERVED) and "concurrency" in config and "max_in_flight" not in plain:
                changed = replace(changed, max_in_flight=max(stage.max_in_flight, int(config["concurrency"])))
            stages.append(changed)
        serialized = self.serialize_queries if serialize is None else bool(serialize)
        return replace(self, stages=tuple(stages), serialize_queries=serialized)


def _put(config: dict[str, Any], path: list[str], value: Value) -> None:
    """Set a value at a path of keys, in copies of the mappings on the way."""
    name, *rest = path
    if not rest:
        config[name] = value
        return
    inner = dict(config[name]) if isinstance(config.get(name), Mapping) else {}
    _put(inner, rest, value)
    config[name] = inner


@dataclass(frozen=True, kw_only=True)
class PipelineFile:
    """A configuration file: its pipelines run side by side. `listeners` are the samplers that it asks for, `unread`
    the keys that nothing reads, with their places, `notes` what was decided where the file says nothing."""

    name: str
    slug: str
    pipelines: tuple[PipelineModel, ...]
    listeners: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def pipeline(self, name: str | None) -> PipelineModel | None:
        """Return the pipeline of that name or slug, the only one for None; None if there is none such."""
        if name is None:
            return self.pipelines[0] if len(self.pipelines) == 1 else None
        return next((pipeline for pipeline in self.pipelines if name in (pipeline.name, pipeline.slug)), None)
