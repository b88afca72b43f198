"""A stage: the class that stages extend, with the names that stages of the original benchmark use.

A stage has no clock and no queue: the flow calls `run` for one query after another.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import local
from time import monotonic_ns
from typing import Any, ClassVar, Protocol, TypeVar

from seamark.load.driver import Track
from seamark.model.sample import EventKind
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query, Ticket

Method = TypeVar("Method", bound=Callable[..., Any])


class Output(Protocol):
    """The queue of the next stage."""

    def put(self, query: Query) -> None: ...


class Running(local):
    """What this thread works on: the query's ticket, the track and number of its stage, and the clock of its run."""

    ticket: Ticket | None = None
    track: Track | None = None
    number: int = 0
    now_ns: Callable[[], int] = monotonic_ns


RUNNING = Running()


class Stage:
    """One step of a pipeline. This class itself hands queries on as they are.

    A subclass overrides `run`, and what it needs of `prepare`, `pre_run`, `post_run` and `get_dataset_splits`.
    `counts` names the unit that the stage counts by `count`, such as token or item; None: it counts nothing.
    """

    counts: ClassVar[str | None] = None

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        self.id = stage_config.id
        self.name = stage_config.name
        self.parent_name = pipeline_config.name
        self.disable_logs = stage_config.disable_logs
        self.extra_config: dict[str, Any] = dict(stage_config.config)
        self.output_queues: dict[int, Output] = {}
        self.stages: Mapping[int, Stage] = {}
        self.folder: Path | None = None
        """Folder for files that are kept with the results of the trial; None where nothing is kept."""
        self.counting = True
        self._stage_config = stage_config

    def prepare(self) -> None:
        """Load what the stage needs, before the clock starts."""

    def pre_run(self) -> None:
        """Prepare in the thread that runs the stage."""

    def run(self, query: Query) -> dict[int, Query]:
        """Work on a query; return what goes to which stage, by its id. `self.output_queues` has all ids."""
        return dict.fromkeys(self.output_queues, query)

    def post_run(self) -> None:
        """Clean up, in the thread that ran the stage."""

    def get_dataset_splits(self) -> dict[str, int]:
        """Return the number of batches of each split of the data."""
        return {"train": 1}

    def dispatch_call(self, id: int, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of another stage of this pipeline, such as that which has the model."""
        return getattr(self.stages[id], method)(*arguments, **named)

    def count(self, units: int) -> None:
        """Count units of the query that this thread works on, in the stage's `counts`."""
        if self.counting and RUNNING.ticket is not None:
            RUNNING.ticket.units += units

    def first_token(self) -> None:
        """Note that the first token of the query's answer is there now."""
        ticket, now_ns = RUNNING.ticket, RUNNING.now_ns()
        if ticket is not None:
            ticket.first_ns = ticket.first_ns or now_ns
            if RUNNING.track is not None:
                RUNNING.track.add(ticket.index, RUNNING.number, EventKind.FIRST_UNIT, now_ns, now_ns)


def log_phase(method: Method) -> Method:
    """Return a method as it is: the flow records when each phase of a stage begins and ends."""
    return method


def log_phase_single(parent_name: str, name: str, phase: str, start: str) -> None:
    """Do nothing: the flow records when each phase of a stage begins and ends."""


def log_first_token(stage: Stage, event: str) -> None:
    """Note the first token of an answer, at the event 'end'."""
    if event == "end":
        stage.first_token()


def log_generated_tokens(stage: Stage, n_tokens: int) -> None:
    """Count generated tokens."""
    stage.count(n_tokens)
