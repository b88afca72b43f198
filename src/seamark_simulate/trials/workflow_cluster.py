"""Driver of the service `cluster`: one simulation of workflows on a GPU cluster, recorded as a trial."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import cast

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
from seamark_simulate.simulation.execution_log import facts_of
from seamark_simulate.simulation.generated_requests import GeneratedLoad, Shape, generated_requests
from seamark_simulate.simulation.machine import ColdLoad, Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule import Executions, whole_ns
from seamark_simulate.simulation.schedule_metrics import metrics_of
from seamark_simulate.simulation.virtual_world import run_policy
from seamark_simulate.simulation.workload import Arrivals, Requests, workload_of
from seamark_simulate.trials.execution_file import write_executions
from seamark_simulate.trials.quick_simulation import MODES


class StoppedError(Exception):
    """The time limit, or the end of the run, in the middle of a simulation."""


@dataclass(frozen=True, kw_only=True)
class ClusterInputs:
    """What one trial simulates, by the settings of config/services/cluster.yaml, which the recipe has checked."""

    settings: Mapping[str, Value]

    @property
    def arrivals(self) -> Arrivals:
        """When requests arrive."""
        return "timestamps" if self.settings["arrivals"] == "timestamps" else "all-at-zero"

    def models(self) -> tuple[str, ...]:
        """Return the ids of all models, in the order of their file. Raises UserError."""
        if (system_file := self._file("system_file")) is not None:
            return tuple(read_system(system_file).models)
        requests_file = self._file("requests_file")
        assert requests_file is not None, "the scenario was checked"
        return tuple(read_workload(None, requests_file).system.models)

    def machine(self) -> Machine:
        """Return the machine. Raises UserError for a wrong file."""
        cold_load: ColdLoad = "free" if self.settings["cold_load"] == "free" else "charged"
        if (machine_file := self._file("machine")) is not None:
            return read_machine(machine_file, cold_load)
        return Machine(gpus=int(self.settings["cluster_gpus"] or 0), cold_load=cold_load)

    def requests(self, seed: int) -> Requests:
        """Return the requests of the files, or those drawn by the seed. Raises UserError."""
        of, system_file, requests_file = self.settings, self._file("system_file"), self._file("requests_file")
        if requests_file is None:
            assert system_file is not None, "the scenario was checked"
            load = GeneratedLoad(
                count=int(of["generated_requests"] or 0),
                rate_rps=_real(of["arrivals_rps"]) if self.arrivals == "timestamps" else None,
                burstiness=_real(of["arrivals_burstiness"]),
                shape=cast(Shape | None, of["generated_workflow"]),
                nodes=int(of["generated_nodes"] or GeneratedLoad.nodes),
            )
            return generated_requests(read_system(system_file), load, seed)
        requests = read_workload(system_file, requests_file).fitting(self.machine())
        if self.arrivals == "timestamps":
            require_timestamps(requests, requests_file)
        return requests

    def _file(self, name: str) -> Path | None:
        path = self.settings[name]
        return None if path is None else file_of(str(path))


class WorkflowCluster(Task):
    """One simulation. A sample is a request: due at its arrival, sent when its first node begins, its first part at
    the end of the first node, and its last at the end of the last one. Stages of events are the models."""

    unit = "request"
    kinds = ("request",)

    def __init__(self, target: Target) -> None:
        self._inputs = ClusterInputs(settings=target.settings)
        self._keeps_events = target.load.keep_events
        if self._keeps_events:
            self.stages = self._inputs.models()

    def run(self, recorder: TaskRecorder, stop: Event) -> None:
        """Simulate, write executions.parquet, and record requests and figures. Raises UserError for wrong files."""
        inputs, seed = self._inputs, recorder.seed
        policy, draws = str(inputs.settings["policy"]), bool(inputs.settings["draw"])
        asked = inputs.requests(seed)
        draw = np.random.default_rng(seed) if draws else None
        work = workload_of(asked.system, asked.requests, inputs.arrivals, draw=draw)
        machine = inputs.machine()
        form = POLICIES[policy]
        try:
            schedule = run_policy(work, machine, _stoppable(form.make, stop), instants=form.instants, seed=seed)
        except StoppedError:
            return
        drawn = seed if draws or machine.may_fail else None
        facts = facts_of(schedule, policy=policy, mode=MODES[inputs.arrivals], seed=drawn)
        write_executions(TrialFolder(root=recorder.folder).executions, schedule, facts)
        ran = schedule.ran
        _record_requests(recorder, ran)
        if self._keeps_events:
            _record_events(recorder, ran)
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
    columns = map(whole_ns, (ran.arrival_s, sent_s, first_s, last_s))
    for index, (due, sent, first, last, done) in enumerate(zip(*columns, ran.is_complete.tolist(), strict=True)):
        failure = Failure.NONE if done else Failure.SERVER_ERROR
        recorder.sample(
            index, due_ns=due, sent_ns=sent, first_ns=first if done else None, last_ns=last, failure=failure
        )


def _record_events(recorder: TaskRecorder, ran: Executions) -> None:
    """Record waiting, fetch and run of each execution, in the stage of its model, on a track of its first GPU."""
    tracks: dict[int, Track | None] = {}
    visits: Counter[tuple[int, int]] = Counter()
    numbers = (column.tolist() for column in (ran.request, ran.model, ran.gpu))
    times = map(whole_ns, (ran.ready_s, ran.taken_s, ran.start_s, ran.end_s))
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
