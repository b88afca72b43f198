"""Trace of a simulation without a scenario, for Perfetto. Apart from the simulation: it needs pyarrow."""

from pathlib import Path

from seamark.analysis.schedule.trace import write_schedule_trace
from seamark_simulate.trials.execution_file import SimulationFacts, execution_table
from seamark_simulate.trials.quick_simulation import MODES, QuickSimulation


def write_trace(run: QuickSimulation, path: Path) -> int:
    """Write the schedule of one policy as a trace, compressed if the name ends in `.gz`; return the number of its
    executions. Raises OSError (no space)."""
    schedule = run.schedule
    facts = SimulationFacts(
        gpus=schedule.gpus,
        cold_load=schedule.machine.cold_load,
        policy=run.policy,
        mode=MODES[run.arrivals],
        models=tuple(model.id for model in schedule.work.models),
    )
    return write_schedule_trace(execution_table(schedule, facts), path)
