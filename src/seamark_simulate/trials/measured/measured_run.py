"""One measured run of the requests of two files: estimated first, then carried out on model servers;
the estimate beside the measurement."""

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seamark.errors import UserError
from seamark.report.numbers import aligned
from seamark_simulate.config.workflow_files import require_timestamps
from seamark_simulate.config.workloads.table import read_workload
from seamark_simulate.simulation.engine import simulate
from seamark_simulate.simulation.general_loop import run_in
from seamark_simulate.simulation.machine import ColdLoad, Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule import Schedule
from seamark_simulate.simulation.schedule_metrics import schedule_metrics
from seamark_simulate.simulation.workload import SOURCES, Arrivals, Requests, Workload, require_windows, workload_of
from seamark_simulate.simulation.world import COMPLETED
from seamark_simulate.trials.measured.model_servers import ModelServers
from seamark_simulate.trials.measured.real_world import NodeCalls, RealWorld
from seamark_simulate.trials.quick_simulation import MODES, QuickSimulation

FORM = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, kw_only=True)
class MeasuredSimulation(QuickSimulation):
    """A measured schedule, and the schedule that the estimates give on the same requests."""

    estimated: Schedule


@dataclass(frozen=True, kw_only=True)
class MeasuredWork:
    """The requests of a measured run, read and checked."""

    inputs: Requests
    work: Workload
    machine: Machine
    arrivals: Arrivals

    @property
    def models(self) -> tuple[str, ...]:
        """The ids of all models of the system."""
        return tuple(self.inputs.system.models)

    @property
    def used(self) -> tuple[str, ...]:
        """The ids of the models in use."""
        return tuple(self.work.models[number].id for number in sorted(set(self.work.model)))


def measured_work(
    system_path: Path | None, requests_path: Path, *, gpus: int, arrivals: Arrivals, cold_load: ColdLoad
) -> MeasuredWork:
    """Read the two files. Raises UserError for their mistakes, for a model that no window of the GPUs holds, and for
    tasks that are calls of no model."""
    inputs = read_workload(system_path, requests_path)
    if arrivals == "timestamps":
        require_timestamps(inputs, requests_path)
    work = workload_of(inputs.system, inputs.requests, arrivals)
    machine = Machine(gpus=gpus, cold_load=cold_load)
    require_windows(work, machine)
    if any(not work.models[number].fetched for number in set(work.model)):
        raise UserError(f"{requests_path}: its tasks are calls of no model, so there is nothing to measure.")
    return MeasuredWork(inputs=inputs, work=work, machine=machine, arrivals=arrivals)


def measured_simulation(
    asked: MeasuredWork,
    policy: str,
    servers: ModelServers,
    *,
    limit_s: float,
    call_limit_s: float,
    on_begin: Callable[[], object] = lambda: None,
    on_progress: Callable[[int, int], object] = lambda done, running: None,
) -> MeasuredSimulation:
    """Run requests on model servers under a policy; their servers are ended on return, and also when it is
    interrupted.

    Models are prepared, and estimates requested, before the clock begins; `on_begin` is called just before that.
    Raises UserError as `ModelServers.prepare`.
    """
    form, machine = POLICIES[policy], asked.machine
    try:
        used = [asked.inputs.system.models[name] for name in asked.used]
        servers.prepare(used, min(limit_s, call_limit_s))
        work = with_estimates(asked.work, servers, call_limit_s)
        estimated = simulate(replace(work, duration_s=work.estimate_s), machine, form.make, instants=form.instants)
        world = RealWorld(work, servers, limit_s=limit_s, call_limit_s=call_limit_s, on_progress=on_progress)
        on_begin()
        begin = time.strftime(FORM)
        world.begin()
        measured = run_in(world, work, machine, form.make, instants=form.instants, stopped=world.is_over)
    finally:
        _close(servers)
    return MeasuredSimulation(
        policy=policy,
        mode=MODES[asked.arrivals],
        begin=begin,
        estimated=estimated,
        schedule=measured,
        figures=schedule_metrics(measured),
        reasons=world.reasons,
        notes=asked.inputs.notes,
    )


def _close(servers: ModelServers) -> None:
    """End all servers, also when a signal comes meanwhile: the signals after the first are ignored."""
    try:
        servers.close()
    except BaseException:
        servers.close()
        raise


def with_estimates(work: Workload, servers: ModelServers, limit_s: float) -> Workload:
    """Return the work with the estimates of a server, where it gives any; all others stay those of the files.

    The first node without an estimate ends the asking: a server has them for all, or for none.
    """
    calls = NodeCalls(work)
    estimates_s: list[float] = []
    for node in range(work.nodes):
        estimate_s = servers.estimate_s(calls.of(node), limit_s)
        if estimate_s is None:
            return work
        estimates_s.append(estimate_s)
    source = bytearray([SOURCES.index("model_server")]) * work.nodes
    return replace(work, estimate_s=array("d", estimates_s), source=source)


MOST_ROWS = 40
"""More executions than this are shown by model."""
Row = Sequence[str]
HEAD: Row = ("request", "node", "model", "estimated s", "measured s", "ratio")


def beside_lines(run: MeasuredSimulation) -> list[str]:
    """Return the table: a row for each node, or for each model with the means of its nodes; then loads, switches and
    the makespan. Ratios are measured over estimated. Only nodes that did their work have a measured time."""
    estimated, measured = run.estimated.ran, run.schedule.ran
    of_nodes = len(measured.model) <= MOST_ROWS
    rows = list(_of_nodes(run.schedule) if of_nodes else _of_models(run.schedule))
    for name, expected, came in (
        ("first loads", estimated.is_cold, measured.is_first_load),
        ("switches", estimated.is_switch, measured.is_switch),
    ):
        times = estimated.fetch_s[expected].sum(), measured.fetch_s[came].sum()
        rows.append((name, f"{int(expected.sum())} and {int(came.sum())}", "", *_figures(*times)))
    failed = " (of what ran)" if run.failed else ""
    rows.append((f"makespan{failed}", "", "", *_figures(estimated.makespan_s, measured.makespan_s)))
    head = HEAD if of_nodes else ("executions", "number", *HEAD[2:])
    return ["Estimate beside measurement:", *(f"  {line}" for line in aligned((head, *rows), left=(0, 1, 2)))]


def _of_nodes(measured: Schedule) -> Iterator[Row]:
    work, nodes = measured.work, measured.node.tolist()
    for node, duration_s, outcome in zip(nodes, measured.duration_s.tolist(), measured.outcome, strict=True):
        request, name = work.name_of(node)
        model, estimate_s = work.models[work.model[node]].id, work.estimate_s[node]
        if outcome == COMPLETED:
            yield (request.id, name, model, *_figures(estimate_s, duration_s))
        else:
            yield (request.id, name, model, f"{estimate_s:,.2f}", outcome, "")


def _of_models(measured: Schedule) -> Iterator[Row]:
    estimate_s = np.asarray(measured.work.estimate_s, np.float64)[measured.node]
    for number, model in enumerate(measured.work.models):
        done = (measured.ran.model == number) & measured.ran.is_completed
        if count := int(done.sum()):
            means = estimate_s[done].mean(), measured.duration_s[done].mean()
            yield ("mean of", f"{count:,}", model.id, *_figures(*means))


def _figures(estimated_s: float, measured_s: float) -> tuple[str, str, str]:
    ratio = f"{measured_s / estimated_s:.2f}" if estimated_s > 0 else "-"
    return f"{estimated_s:,.2f}", f"{measured_s:,.2f}", ratio
