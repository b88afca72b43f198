"""bench baseline: workflows on simulated GPUs under the baseline policy, with its fixed log and files."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seamark.cli.measured import measure_options, measured, require_measure, tell_failures
from seamark.cli.options import require_unread, simulation_options

if TYPE_CHECKING:
    from seamark.simulation.machine import ColdLoad
    from seamark.simulation.workload import Arrivals
    from seamark.trials.simulation.measured.measured_run import MeasuredSimulation

LOG = Path("baseline_scheduler.log")
EXECUTION_LOG = Path("baseline_execution_log.json")


@click.command("baseline")
@simulation_options(own_requests=True)
@click.option(
    "--simulate",
    "calls",
    type=click.Choice(["true", "false"], case_sensitive=False),
    default="false",
    show_default=True,
    help="true: call real models. false: estimate their times.",
)
@click.option(
    "--mode",
    type=click.Choice(["offline", "online"]),
    default="offline",
    show_default=True,
    help="offline: all requests at time 0. online: at their time stamps.",
)
@measure_options(own_servers=False)
def command(
    gpus: int, calls: str, mode: str, system: Path, requests: Path, cold_load: str, **asked: str | None
) -> int:
    """Run workflow requests on simulated GPUs under the baseline policy, and print its log and metrics.

    Writes baseline_scheduler.log and baseline_execution_log.json. Inputs are YAML or JSON. With --simulate true
    models are downloaded, loaded and called on a server with the standalone API; exit code 1 if a node failed.

    \b
    Example:
      bench baseline --gpus 4 --simulate false --mode offline --config system_config.yaml --requests requests.yaml
    """
    from seamark.simulation.log_text import metrics_block, outcome_lines, parts_of
    from seamark.storage.documents import replacing, write_rows
    from seamark.trials.simulation.quick_simulation import QuickSimulation, quick_simulations

    require_measure(calls == "true", "--simulate true", **asked)
    for written in (LOG, EXECUTION_LOG):
        require_unread(written, "bench baseline")
    arrivals: Arrivals = "all-at-zero" if mode == "offline" else "timestamps"
    cold: ColdLoad = "charged" if cold_load == "charged" else "free"
    run: QuickSimulation | MeasuredSimulation
    if calls == "true":
        run = measured(
            system,
            requests,
            "baseline",
            gpus=gpus,
            arrivals=arrivals,
            cold_load=cold,
            model_server=asked["model_server"],
            limit=asked["limit"],
            call_limit=asked["call_limit"],
        )
    else:
        [run] = quick_simulations(system, requests, ["baseline"], gpus=gpus, arrivals=arrivals, cold_load=cold)
    for note in run.notes:
        click.echo(note, err=True)
    *block, last = [*outcome_lines(run.figures), *metrics_block(run.figures, EXECUTION_LOG.name)]
    for part in parts_of(chain(run.lines, block)):  # first: a disk that is full costs the log, not the figures
        click.echo(part)
    write_rows(EXECUTION_LOG, run.log, "executions")
    with replacing(LOG) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{part}\n" for part in parts_of(chain(run.lines, block, [last])))
    click.echo(last)
    if isinstance(run, QuickSimulation):
        return 0
    tell_failures(run)
    return 1 if run.failed else 0
