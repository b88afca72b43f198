"""Driver of the service `cluster`: one simulation of workflows on a GPU cluster, recorded as a trial."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Self

import numpy as np

from seamark.load.driver import Target, Task, TaskRecorder, Track
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.model.sample import EventKind, Failure
from seamark.model.service import Value
from seamark.patterns.trace_file import file_of
from seamark.storage.paths import TrialFolder
from seamark_simulate.config.machine_files import read_machine
from seamark_simulate.config.workflow_files import read_system, require_timestamps
from seamark_simulate.config.workloads.table import read_workload
from seamark_simulate.simulation.engine import Dispatch, Policy, View
from seamark_simulate.simulation.executions import Executions, executions_of
from seamark_simulate.simulation.generated_requests import SHAPES, GeneratedLoad, Shape, generated_requests
from seamark_simulate.simulation.machine import ColdLoad, Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule import Floats, Schedule
from seamark_simulate.simulation.schedule_metrics import metrics_of
from seamark_simulate.simulation.system import Requests, System
from seamark_simulate.simulation.virtual_world import run_policy
from seamark_simulate.simulation.workload import Arrivals, workload_of
from seamark_simulate.trials.execution_file import SimulationFacts, write_executions
from seamark_simulate.trials.quick_simulation import MODES

SECOND_NS = 1_000_000_000


class StoppedError(Exception):
    """The time limit, or the end of the run, in the middle of a simulation."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The settings of one trial; the recipe config/services/cluster.yaml describes them."""

    cluster_gpus: int
    machine_file: Path | None
    cold_load: ColdLoad
    policy: str
    system_file: Path | None
    requests_file: Path | None
    generated_requests: int
    generated_workflow: Shape | None
    generated_nodes: int
    arrivals_rps: float | None
    arrivals_burstiness: float | None
    arrivals: Arrivals
    draw: bool

    @classmethod
    def of(cls, target: Target) -> Self:
        """Return the settings of a target, which the recipe has checked."""
        of = target.settings
        return cls(
            cluster_gpus=int(of["cluster_gpus"] or 0),
            machine_file=None if of["machine"] is None else file_of(str(of["machine"])),
            cold_load="free" if of["cold_load"] == "free" else "charged",
            policy=str(of["policy"]),
            system_file=None if of["system_file"] is None else file_of(str(of["system_file"])),
            requests_file=None if of["requests_file"] is None else file_of(str(of["requests_file"])),
            generated_requests=int(of["generated_requests"] or 0),
            generated_workflow=next((shape for shape in SHAPES if shape == of["generated_workflow"]), None),
            generated_nodes=int(of["generated_nodes"] or GeneratedLoad.nodes),
            arrivals_rps=_real(of["arrivals_rps"]),
            arrivals_burstiness=_real(of["arrivals_burstiness"]),
            arrivals="timestamps" if of["arrivals"] == "timestamps" else "all-at-zero",
            draw=bool(of["draw"]),
        )

    def models(self) -> tuple[str, ...]:
        """Return the ids of all models, in the order of their file. Raises UserError."""
        if self.system_file is not None:
            return tuple(read_system(self.system_file).models)
        assert self.requests_file is not None, "the scenario was checked"
        return tuple(read_workload(None, self.requests_file).system.models)

    def machine(self) -> Machine:
        """Return the machine. Raises UserError for a wrong file."""
        if self.machine_file is not None:
            return read_machine(self.machine_file, self.cold_load)
        return Machine(gpus=self.cluster_gpus, cold_load=self.cold_load)

    def inputs(self, seed: int) -> tuple[System, Requests]:
        """Return system and requests: those of the files, or requests drawn by the seed. Raises UserError."""
        if self.requests_file is None:
            assert self.system_file is not None, "the scenario was checked"
            system = read_system(self.system_file)
            load = GeneratedLoad(
                count=self.generated_requests,
                rate_rps=self.arrivals_rps if self.arrivals == "timestamps" else None,
                burstiness=self.arrivals_burstiness,
                shape=self.generated_workflow,
                nodes=self.generated_nodes,
            )
            return generated_requests(system, load, seed)
        inputs = read_workload(self.system_file, self.requests_file).fitting(self.machine())
        system, requests = inputs.system, inputs.requests
        if self.arrivals == "timestamps":
            require_timestamps(requests, self.requests_file)
        return system, requests


class WorkflowCluster(Task):
    """One simulation. A sample is a request: due at its arrival, sent when its first node begins, its first part at
    the end of the first node, and its last at the end of the last one. Stages of events are the models."""

    unit = "request"
    kinds = ("request",)

    def __init__(self, target: Target) -> None:
        self._settings = ClusterSettings.of(target)
        self._keeps_events = target.load.keep_events
        if self._keeps_events:
            self.stages = self._settings.models()

    def run(self, recorder: TaskRecorder, stop: Event) -> None:
        """Simulate, write executions.parquet, and record requests and figures. Raises UserError for wrong files."""
        chosen, seed = self._settings, recorder.seed
        system, requests = chosen.inputs(seed)
        draw = np.random.default_rng(seed) if chosen.draw else None
        work = workload_of(system, requests.requests, chosen.arrivals, draw=draw)
        machine = chosen.machine()
        form = POLICIES[chosen.policy]
        try:
            schedule = run_policy(work, machine, _stoppable(form.make, stop), instants=form.instants, seed=seed)
        except StoppedError:
            return
        facts = SimulationFacts(
            gpus=machine.gpus,
            cold_load=machine.cold_load,
            policy=chosen.policy,
            mode=MODES[chosen.arrivals],
            models=tuple(model.id for model in work.models),
            seed=seed if chosen.draw or machine.may_fail else None,
            machine=machine.layout,
        )
        write_executions(TrialFolder(root=recorder.folder).executions, schedule, facts)
        ran = executions_of(schedule)
        _record_requests(recorder, ran)
        if self._keeps_events:
            _record_events(recorder, schedule, ran)
        for name, value in figures_of(metrics_of(ran)).items():
            recorder.quality(name, value)


def _stoppable(policy: Policy, stop: Event) -> Policy:
    """Return a policy that raises StoppedError once `stop` is set."""

    def make(view: View) -> Dispatch:
        dispatch = policy(view)

        def until_stopped() -> None:
            if stop.is_set():
                raise StoppedError
            dispatch()

        return until_stopped

    return make


def _record_requests(recorder: TaskRecorder, ran: Executions) -> None:
    """Record each request; one that did not complete failed at the end of its last execution, or at its arrival."""
    last_s = np.maximum(ran.completed_s(), ran.arrival_s)
    sent_s, first_s = np.minimum(ran.first_started_s(), last_s), np.minimum(ran.first_ended_s(), last_s)
    columns = map(_ns, (ran.arrival_s, sent_s, first_s, last_s))
    for index, (due, sent, first, last, done) in enumerate(zip(*columns, ran.is_complete.tolist(), strict=True)):
        failure = Failure.NONE if done else Failure.SERVER_ERROR
        recorder.sample(
            index, due_ns=due, sent_ns=sent, first_ns=first if done else None, last_ns=last, failure=failure
        )


def _record_events(recorder: TaskRecorder, schedule: Schedule, ran: Executions) -> None:
    """Record waiting, fetch and run of each execution, in the stage of its model, on a track of its first GPU."""
    tracks: dict[int, Track | None] = {}
    visits: Counter[tuple[int, int]] = Counter()
    numbers = (column.tolist() for column in (ran.request, ran.model, ran.gpu))
    times = map(_ns, (ran.ready_s, ran.taken_s, ran.start_s, ran.end_s))
    for request, model, gpu, ready, taken, start, end in zip(*numbers, *times, strict=True):
        track = tracks[gpu] if gpu in tracks else tracks.setdefault(gpu, recorder.track())
        if track is None:
            return
        visit = visits[request, model]
        visits[request, model] += 1
        spans: tuple[tuple[EventKind, int, int], ...] = (
            (EventKind.WAIT, ready, taken),
            (EventKind.PREPARE, taken, start),
            (EventKind.RUN, start, end),
        )
        for what, begin_ns, end_ns in spans:
            if end_ns > begin_ns or what == EventKind.RUN:
                track.add(request, model, what, begin_ns, end_ns, visit)


def figures_of(schedule: ScheduleMetrics) -> dict[str, float]:
    """Return the figures that a trial has as qualities of its recipe; without times where no request completed."""
    completion, waiting = schedule.completion, schedule.waiting
    times = (
        {} if completion is None else {"completion_mean_s": completion.mean_s, "completion_p99_s": completion.p99_s}
    )
    return {
        "makespan_s": schedule.makespan_s,
        **times,
        **({} if waiting is None else {"waiting_mean_s": waiting.mean_s}),
        "switches": schedule.switches,
        "switch_s": schedule.switch_s,
        "cold_loads": schedule.cold_loads,
        "use_ratio": sum(gpu.use_ratio for gpu in schedule.gpus) / len(schedule.gpus),
    }


def _real(value: Value) -> float | None:
    return None if value is None else float(value)


def _ns(column: Floats) -> list[int]:
    return [int(time_ns) for time_ns in np.rint(column * SECOND_NS).astype(np.int64).tolist()]
