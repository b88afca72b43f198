"""The driver of pipelines: a request is a query, sent into the graph and waited for."""

import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import time
from typing import TypeVar

from seamark.errors import UserError
from seamark.load.driver import Body, Call, Hooks, Reply, Target, TaskFailure
from seamark.model.sample import UNTIMED, WITHOUT_EVENTS, Failure
from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.drivers.needs import lacking_of
from seamark_pipelines.flow.flow import Flow, setup_failure
from seamark_pipelines.flow.schedulers import Generated
from seamark_pipelines.flow.source_names import BEFORE, MODULES, SLOW_TO_IMPORT, get_component, open_names
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.flow.virtual_clock import INSERTED, LATE, VirtualClock
from seamark_pipelines.model.graph import FASTER, FASTER_STAGE, PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.capture import match_of

LOG, DRAWING = "log.jsonl", "flow.md"
Made = TypeVar("Made")
USUAL = Reply()
TIMED_OUT = Reply(units=0, failure=Failure.TIMEOUT)


class Log:
    """What happens to the pipeline outside of its queries, line by line; written when it is prepared and at its
    end."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._lines: list[str] = []

    def add(self, event: str, **facts: object) -> None:
        """Add a line with the time."""
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        self._lines.append(json.dumps({"at": at, "event": event, **facts}) + "\n")

    def write(self) -> None:
        """Append the lines to the file."""
        if self._lines:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(self._lines)
            self._lines.clear()


class Pipeline(Call):
    """One pipeline of a file. In a load it is built and prepared when the driver is made; elsewhere, as in a plan, no
    stage is imported. Kinds are the splits of its data."""

    clock: VirtualClock | None = None

    def __init__(self, target: Target) -> None:
        model = model_of(target.settings)
        self.stages = tuple(name_of(spec) for spec in model.stages)
        self.unit, self.kinds, self.body_count = "query", ("train",), 1
        self._splits = {"train": 1}
        self._counts = self._started = False
        self._numbers = count()
        self._generated: Generated | None = None
        if target.files is not None:
            self._build(model, target, target.files)

    def _build(self, model: PipelineModel, target: Target, files: Path) -> None:
        files.mkdir(exist_ok=True)
        self.log = Log(files)
        self.log.add("load generator built")
        self.log.add("logging built")
        open_names(Path.cwd())
        self.log.add("pipeline built", pipeline=model.name)
        (files / DRAWING).write_text(drawing(model), encoding="utf-8")
        self._stages = {spec.id: self._built(spec.id, model) for spec in model.stages}
        named = [stage.counts for stage in self._stages.values() if stage.counts]
        if named:
            self.unit, self._counts = "token" if "token" in named else named[0], True
        for stage in self._stages.values():
            stage.stages, stage.folder, stage.counting = self._stages, files, stage.counts == self.unit
        self.clock = clock_of(model, target)
        for stage in self._stages.values():
            self.log.add("stage preparing", stage=stage.name)
            with_failure(stage.name, stage.prepare)
            self.log.add("stage prepared", stage=stage.name)
        self._flow = Flow(model, self._stages, target.events, timeout_s=target.load.timeout_s, clock=self.clock)
        self._flow.start()
        dataset = model.stage(model.dataset_stage_id)
        self._splits = with_failure(dataset.name, lambda: self._splits_of(dataset.id))
        self.kinds = tuple(self._splits)
        self.body_count = sum(self._splits.values())
        self.log.add("prepared", pipeline=model.name, splits=self._splits)
        self.log.write()
        self._generated = self._generator(model, target)

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return the batches of one epoch, split after split."""
        return [
            Body(content=(split, batch), kind=kind)
            for kind, (split, batches) in enumerate(self._splits.items())
            for batch in range(batches)
        ]

    def session(self) -> "Users":
        """Return a user of the pipeline."""
        return Users(self)

    def failure(self, error: Exception) -> Failure:
        """Return the category of an exception outside of stages."""
        return Failure.DRIVER

    def ended(self) -> None:
        """End all stages after the load."""
        self._flow.stop()
        facts: dict[str, object] = {} if self.clock is None else dict(self.clock.pauses)
        if self._generated is not None:
            facts["lateness"] = "unknown"  # queries are due when the scheduler has put them
        self.log.add("test ended", **facts)
        self.log.write()

    def send(self, body: Body, index: int) -> Reply:
        """Send a query and wait for its end. Raises TaskFailure once the pipeline has ended."""
        if not self._started:
            self._started = True
            self.log.add("test started")
        began_ns = None
        if self._generated is not None:
            query, began_ns = self._generated.next()
            query.query_id = index
        else:
            assert self.body_count
            split, batch = body.content
            epoch = index // self.body_count + 1
            query = Query(split=split, batch=batch, query_submitted_timestamp=time(), epoch=epoch, query_id=index)
        ticket = self._flow.call(query, index)
        if self._generated is not None:
            self._generated.ended()
        if ticket.error is not None:
            failed = (
                TIMED_OUT if ticket.error == "timeout" else Reply(units=0, failure=Failure.DRIVER, error=ticket.error)
            )
            return failed if began_ns is None else replace(failed, began_ns=began_ns)
        if not self._counts and ticket.first_ns is None and began_ns is None:
            return USUAL
        return Reply(units=ticket.units if self._counts else 1, first_ns=ticket.first_ns, began_ns=began_ns)

    def next_index(self) -> int:
        """Return the number of the next query where the load does not say it."""
        return next(self._numbers)

    def _generator(self, model: PipelineModel, target: Target) -> Generated | None:
        """Return what generates queries beside the load, where the scheduler does; None for a load by a pattern."""
        component = target.settings.get("scheduler")
        if component is None or not target.load.closed:
            return None
        loadgen = model.loadgen
        most = target.load.requests or loadgen.max_queries

        def made() -> Generated:
            scheduler = get_component(str(component))(most, loadgen.timeout, dict(loadgen.config), dict(self._splits))
            return Generated(scheduler, loadgen.queue_depth)

        return with_failure(str(component), made)

    def _built(self, id: int, model: PipelineModel) -> Stage:
        spec = model.stage(id)
        try:
            stage: Stage = get_component(spec.component)(spec, model)
        except Exception as error:
            traceback.print_exc()
            raise setup_failure(spec.name, error) from None
        if not callable(getattr(stage, "run", None)):
            raise TaskFailure("setup_failed", f"the stage '{spec.name}': '{spec.component}' has no method 'run'")
        self.log.add("stage built", stage=spec.name)
        return stage

    def _splits_of(self, id: int) -> dict[str, int]:
        found = {str(name): int(batches) for name, batches in self._stages[id].get_dataset_splits().items()}
        if not sum(found.values()):
            raise ValueError("its data have no batch")
        return {name: batches for name, batches in found.items() if batches}


class Users:
    """A user: sends queries one after another."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def call(self, body: Body) -> Reply:
        """Send a query and wait for its end."""
        return self._pipeline.send(body, self._pipeline.next_index())

    def call_traced(self, body: Body, query: int) -> Reply:
        """As `call`, with the number under which the query's events are recorded."""
        return self._pipeline.send(body, query)

    def close(self) -> None:
        """Do nothing: the pipeline ends with the load."""


def name_of(stage: StageModel) -> str:
    """Return the name under which the events of a stage are recorded."""
    return stage.slug + (WITHOUT_EVENTS if stage.disable_logs else "" if stage.timed else UNTIMED)


def model_of(settings: Mapping[str, object]) -> PipelineModel:
    """Return the pipeline that a trial's settings name, with those of its stages. Raises TaskFailure."""
    try:
        file = read_pipelines(Path(str(settings["graph"])))
    except UserError as error:
        raise TaskFailure("setup_failed", str(error)) from None
    name = settings.get("pipeline")
    model = file.pipeline(None if name is None else str(name))
    if model is None:
        raise TaskFailure("setup_failed", f"{settings['graph']} has no pipeline '{name}'")
    return model.with_settings(settings).expanded  # type: ignore[arg-type]


def clock_of(model: PipelineModel, target: Target) -> VirtualClock | None:
    """Return the clock by which the stage `faster_stage` is faster, None without. Raises TaskFailure for a stage that
    is not there, and for a load that does not go by one clock."""
    percent, name = target.settings.get(FASTER) or 0, target.settings.get(FASTER_STAGE)
    if name is None:
        return None  # a baseline of 0 % goes by such a clock too
    stage = model.named(str(name))
    generates = target.settings.get("scheduler") is not None and target.load.closed
    if stage is None or target.workers > 1 or generates:
        raise TaskFailure("setup_failed", f"{FASTER}: there is no stage '{name}', or the load has other clocks")
    return VirtualClock(model.copies(stage), float(percent) / 100)


def lacking(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield what the stages of a trial name and this machine does not have."""
    for text in lacking_of(model_of(settings)):
        yield "graph", text


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Return which share of the answers is right, where a stage has kept them and right ones are known; and how long
    a stage's virtual speed-up paused the others."""
    if target.files is None:
        return {}
    ended = (target.files / LOG).read_text(encoding="utf-8").splitlines()[-1] if target.settings.get(FASTER) else "{}"
    pauses = {name: value for name, value in json.loads(ended).items() if name in (INSERTED, LATE)}
    return match_of(target.files) | pauses


def preload(settings: Mapping[str, object]) -> Iterator[str]:
    """Yield the modules of the families that a trial's stages are of, and what these import later."""
    families: dict[str, None] = {}
    with suppress(TaskFailure):  # the load says it
        families = dict.fromkeys(spec.component.rpartition(".")[0] for spec in model_of(settings).stages)
    for family in families:
        if family in SLOW_TO_IMPORT:
            yield from (BEFORE, MODULES[family], *SLOW_TO_IMPORT[family])


HOOKS = Hooks(lacking=lacking, quality=quality)


def with_failure(stage: str, work: Callable[[], Made]) -> Made:
    """Return what a function of a stage returns. Raises TaskFailure if it fails."""
    try:
        return work()
    except Exception as error:
        traceback.print_exc()
        raise setup_failure(stage, error) from None


def drawing(model: PipelineModel) -> str:
    """Return the graph as a Mermaid flow chart, in Markdown."""
    lines = [f"# {model.name}", "", "```mermaid", "flowchart LR", '  load(["load generator"])']
    for stage in model.stages:
        name = stage.name.replace('"', "'")
        lines.append(f'  {stage.id}["{name}<br>{stage.component}"]')
    lines += [f"  load -->|at most {model.loadgen.queue_depth} wait| {id}" for id in model.inputs]
    for stage in model.stages:
        lines += [f"  {stage.id} --> {output}" for output in stage.outputs]
    lines += [f"  {id} --> load" for id in model.outputs]
    return "\n".join([*lines, "```", ""])
