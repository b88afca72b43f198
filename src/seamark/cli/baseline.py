"""bench baseline: workflows on simulated GPUs under the baseline policy, with its fixed log and files."""

from pathlib import Path

import click

from seamark.cli.options import simulation_options
from seamark.errors import UserError

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
def command(gpus: int, calls: str, mode: str, system: Path, requests: Path, cold_load: str) -> None:
    """Run workflow requests on simulated GPUs under the baseline policy, and print its log and metrics.

    Writes baseline_scheduler.log and baseline_execution_log.json into the working folder. Both files of inputs may be
    YAML or JSON.

    \b
    Example:
      bench baseline --gpus 4 --simulate false --mode offline --config system_config.yaml --requests requests.yaml
    """
    from seamark.simulation.log_text import metrics_block
    from seamark.storage.paths import write, write_text
    from seamark.trials.simulation.quick_simulation import quick_simulations

    if calls == "true":
        raise UserError(
            "--simulate true: calls of real models are not built yet. Use '--simulate false' for estimated times."
        )
    [run] = quick_simulations(
        system,
        requests,
        ["baseline"],
        gpus=gpus,
        arrivals="all-at-zero" if mode == "offline" else "timestamps",
        cold_load="charged" if cold_load == "charged" else "free",
    )
    write(EXECUTION_LOG, run.log)
    lines = [*run.lines, *metrics_block(run.figures, EXECUTION_LOG.name)]
    write_text(LOG, "\n".join(lines) + "\n")
    click.echo("\n".join(lines))
