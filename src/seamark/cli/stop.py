"""bench stop: the end of a run and of what it started."""

import signal
from pathlib import Path

import click
import psutil

from seamark.cli.options import open_study, scenario_option
from seamark.servers.deployment import stop_all
from seamark.snake import runs_in


@click.command("stop")
@scenario_option
def command(scenario: str, site: str | None) -> None:
    """End the run of this study and every server it started. What is measured is kept.

    \b
    Example:
      bench stop
    """
    study = open_study(scenario, site)
    running = runs_in(Path.cwd())
    for process in running:
        process.send_signal(signal.SIGINT)
    _, left = psutil.wait_procs(running, timeout=30)
    for process in left:
        process.kill()
    stop_all(study.results)
    click.echo(f"Stopped {len(running)} run(s) and their servers. `bench submit` goes on from here.")
