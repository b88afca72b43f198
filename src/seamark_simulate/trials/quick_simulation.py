"""A simulation of two files without a scenario: read, run under a policy, and what it leaves as text and
documents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from seamark.errors import UserError
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.report.numbers import ABSENT, aligned
from seamark_simulate.config.machine_files import require_speeds
from seamark_simulate.config.workflow_files import require_timestamps
from seamark_simulate.config.workloads.table import read_workload
from seamark_simulate.simulation.bounds import lower_bounds
from seamark_simulate.simulation.execution_log import ExecutionLog, execution_log, facts_of
from seamark_simulate.simulation.log_text import event_lines, header_lines
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule import Schedule
from seamark_simulate.simulation.schedule_metrics import schedule_metrics
from seamark_simulate.simulation.virtual_world import run_policy
from seamark_simulate.simulation.workload import Arrivals, Workload, draws_times, workload_of

EPOCH = "1970-01-01 00:00:00"
"""Zero of the virtual clock for requests without time stamps."""
MODES: dict[Arrivals, str] = {"all-at-zero": "offline", "timestamps": "online"}


@dataclass(frozen=True, kw_only=True)
class QuickSimulation:
    """One policy's schedule of the work in two files, and its figures.

    `begin` is the wall time at which the clock was zero. `reasons` are those of failed executions, in the order of
    starts; None: no model was called. `notes` say what of the files was left out.
    """

    policy: str
    mode: str
    begin: str
    schedule: Schedule
    figures: ScheduleMetrics
    reasons: Mapping[int, str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether not every node did its work."""
        return self.figures.outcomes is not None

    @property
    def log(self) -> ExecutionLog:
        """The execution log."""
        return execution_log(self.schedule, self.figures, mode=self.mode, policy=self.policy, reasons=self.reasons)

    @property
    def lines(self) -> Iterator[str]:
        """The log lines. The virtual clock begins at the earliest time stamp, so equal inputs give equal lines."""
        calls = self.reasons is not None
        header = header_lines(self.schedule, begin=self.begin, mode=self.mode, name=self.policy, calls=calls)
        return chain(header, event_lines(self.schedule))


def simulated_blocks(
    system_path: Path | None,
    requests_path: Path,
    policies: Sequence[str],
    machine: Machine,
    arrivals: Arrivals,
    seeds: Sequence[int] | None = None,
    *,
    draw_times: bool = True,
) -> Iterator[list[QuickSimulation]]:
    """Yield for each seed the runs of all policies, which see the same drawn times, unless not `draw_times`, and the
    same failures of GPUs. Raises UserError for mistakes in the files, for a model that no window of the GPUs holds,
    and for several seeds where nothing is drawn."""
    asked = read_workload(system_path, requests_path).fitting(machine)
    require_speeds("--machine", machine, asked.system)
    if arrivals == "timestamps":
        require_timestamps(asked, requests_path)
    if seeds is not None and len(seeds) > 1 and not (machine.may_fail or draws_times(asked.system, asked.requests)):
        raise UserError(
            "--blocks: no time is drawn, so all blocks would be the same. The requests give all node times, or their"
            " models have no deviation: remove times, or give 'inference_time_std'."
        )
    for seed in (None,) if seeds is None else seeds:
        draw = np.random.default_rng(seed) if seed is not None and draw_times else None
        work = workload_of(asked.system, asked.requests, arrivals, draw=draw)
        notes = [*asked.notes]
        if work.has_data and machine.layout is None:
            notes.append("Data on edges take no time: --gpus says nothing of the ways between GPUs. Use --machine.")
        yield [_run(work, machine, policy, MODES[arrivals], asked.begin, notes, seed or 0) for policy in policies]


def _run(
    work: Workload,
    machine: Machine,
    policy: str,
    mode: str,
    begin: str | None,
    notes: Sequence[str],
    seed: int,
) -> QuickSimulation:
    form = POLICIES[policy]
    schedule = run_policy(work, machine, form.make, instants=form.instants, seed=seed)
    return QuickSimulation(
        policy=policy,
        mode=mode,
        begin=begin or EPOCH,
        schedule=schedule,
        figures=schedule_metrics(schedule),
        notes=tuple(notes),
    )


def policy_table(runs: Sequence[QuickSimulation]) -> list[str]:
    """Return a table of several policies on the same work, and where all ran all of it the lower bound that none can
    be under."""
    rows = [["policy", "makespan s", "mean s", "P99 s", "switches", "switch s", "use %"]]
    for run in runs:
        figures, times = run.figures, run.figures.completion
        use = sum(gpu.use_ratio for gpu in figures.gpus) / len(figures.gpus)
        spread = [ABSENT, ABSENT] if times is None else [f"{time_s:,.2f}" for time_s in (times.mean_s, times.p99_s)]
        switches = f"{figures.switches:,}", f"{figures.switch_s:,.2f}"
        rows.append([run.policy, f"{figures.makespan_s:,.2f}", *spread, *switches, f"{100 * use:.1f}"])
    lines = aligned(rows)
    if not any(run.figures.outcomes and run.figures.outcomes.incomplete_requests for run in runs):
        bounds = lower_bounds(runs[0].schedule.work, runs[0].schedule.machine)
        lines.append(f"No schedule is shorter than {bounds.best_s:,.2f} s, without any load or switch of a model.")
    for run in runs:
        if (outcomes := run.figures.outcomes) is not None:
            counts = "".join(f"{count} {name}, " for name, count in outcomes.executions.items())
            lines.append(
                f"{run.policy}: {counts}{outcomes.not_run} nodes never run,"
                f" {outcomes.incomplete_requests} of {run.figures.requests} requests not completed."
            )
    return lines


def write_trace(run: QuickSimulation, path: Path) -> int:
    """Write the schedule of one policy as a trace for Perfetto, compressed if the name ends in `.gz`; return the
    number of its executions. Raises OSError (no space)."""
    from seamark.analysis.schedule.trace import write_schedule_trace  # imports pyarrow
    from seamark_simulate.trials.execution_file import execution_table

    facts = facts_of(run.schedule, policy=run.policy, mode=run.mode)
    return write_schedule_trace(execution_table(run.schedule, facts), path)
