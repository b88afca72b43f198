"""bench baseline: workflows on simulated GPUs under the baseline policy, with its fixed log and files."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from seamark.cli.options import option, options, require_unread
from seamark_simulate.cli.measured import Inputs, MeasureOptions, measured, tell_failures

if TYPE_CHECKING:
    from seamark_simulate.simulation.workload import Arrivals

LOG = Path("baseline_scheduler.log")
EXECUTION_LOG = Path("baseline_execution_log.json")


@dataclass(frozen=True, kw_only=True)
class BaselineInputs(Inputs):
    """Inputs with the names and options of the baseline scheduler."""

    gpus: int = option(type=click.IntRange(1, 100_000), required=True, help="Number of GPUs.")
    system: Path = option("--config", default=Path("system_config.yaml"), help="Models and workflows.")
    requests: Path = option(default=Path("workflow_requests.yaml"), help="Requests to the workflows.")
    simulate: str = option(
        type=click.Choice(["true", "false"], case_sensitive=False),
        default="false",
        help="true: call real models. false: estimate their times.",
    )
    mode: Literal["offline", "online"] = option(
        default="offline", help="offline: all requests at time 0. online: at their time stamps."
    )


@click.command("baseline")
@options(BaselineInputs, "inputs")
@options(MeasureOptions, without=("servers",))
def command(inputs: BaselineInputs, asked: MeasureOptions) -> int:
    """Run workflow requests on simulated GPUs under the baseline policy, and print its log and metrics.

    Writes baseline_scheduler.log and baseline_execution_log.json. Inputs are YAML or JSON. With --simulate true
    models are downloaded, loaded and called on a server with the standalone API; exit code 1 if a node failed.

    \b
    Example:
      bench baseline --gpus 4 --simulate false --mode offline --config system_config.yaml --requests requests.yaml
    """
    from seamark.storage.documents import replacing, write_rows
    from seamark_simulate.simulation.log_text import metrics_block, outcome_lines, parts_of
    from seamark_simulate.simulation.machine import Machine
    from seamark_simulate.trials.quick_simulation import QuickSimulation, simulated_blocks

    asked.require(inputs.simulate == "true", "--simulate true")
    for written in (LOG, EXECUTION_LOG):
        require_unread(written, "bench baseline")
    arrivals: Arrivals = "all-at-zero" if inputs.mode == "offline" else "timestamps"
    run: QuickSimulation
    if inputs.simulate == "true":
        run = measured(inputs, "baseline", arrivals, asked)
    else:
        machine = Machine(gpus=inputs.gpus, cold_load=inputs.cold_load)
        [run] = next(simulated_blocks(inputs.system, inputs.requests, ["baseline"], machine, arrivals))
    for note in run.notes:
        click.echo(note, err=True)
    *block, last = [*outcome_lines(run.figures), *metrics_block(run.figures, EXECUTION_LOG.name)]
    for part in parts_of(chain(run.lines, block)):  # first: a disk that is full costs the log, not the figures
        click.echo(part)
    write_rows(EXECUTION_LOG, run.log, "executions")
    with replacing(LOG) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{part}\n" for part in parts_of(chain(run.lines, block, [last])))
    click.echo(last)
    return tell_failures(run)
