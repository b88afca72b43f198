"""bench stop: the end of a run and of what it started."""

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import psutil

from seamark.cli.options import open_study, scenario_option
from seamark.errors import SiteError
from seamark.servers.deployment import stop_all
from seamark.snake import require_our_run, runs_in

if TYPE_CHECKING:
    from seamark.study import Study

END_S = 5.0
"""What Snakemake gets to end in order. It would wait for its jobs; these end by themselves when it is gone."""
CANCEL_S = 30.0
"""The same where it has to cancel batch jobs first."""
JOBS_S = 60.0


@click.command("stop")
@scenario_option
@click.option("--all", "every", is_flag=True, help="Standing servers too.")
def command(scenario: str, site: str | None, every: bool) -> int:
    """End the run of this study, every server it started, and all its Slurm jobs. What is measured is kept.

    Standing servers stay, unless --all is given. Ends with 1 when a job or a standing server is still there after a
    minute.

    \b
    Examples:
      bench stop
      bench stop --all --site meluxina
    """
    from seamark.standing.instance import instances

    study = open_study(scenario, site)
    require_our_run(study.root)
    running = runs_in(Path.cwd())
    for process in running:
        process.send_signal(signal.SIGINT)
    _, left = psutil.wait_procs(running, timeout=CANCEL_S if study.site.partitions else END_S)
    for process in left:
        process.kill()
    ended, stay = _end_jobs(study)
    stop_all(study.results)
    jobs = f", {ended} Slurm job(s)" if ended else ""
    click.echo(f"Stopped {len(running)} run(s){jobs} and their servers. `bench submit` goes on from here.")
    standing = [each for each in instances(study.results) if each.living()]
    for instance in standing if every else ():
        stay += not instance.stop()
        click.echo(f"{instance.id}: stopped.")
    if standing and not every:
        names = ", ".join(each.id for each in standing)
        click.echo(f"Still there: standing {names}. `bench stop --all` or `bench servers stop ID` ends them.")
    return 1 if stay else 0


def _end_jobs(study: "Study") -> tuple[int, int]:
    """End the study's Slurm jobs; return how many there were, and how many are still there after a minute."""
    from seamark.components import jobs_of
    from seamark.slurm import queue

    try:
        jobs = jobs_of(study, standing=False)
        queue.cancel([job.number for job in jobs])
        limit_s = time.monotonic() + JOBS_S
        while (left := jobs_of(study, standing=False)) and time.monotonic() < limit_s:
            time.sleep(0.3)
    except SiteError as silent:
        click.echo(f"Slurm jobs were not looked for: {silent}", err=True)
        return 0, 0
    for job in left:
        click.echo(f"Job {job.number} ({job.name}) is still {job.state.lower()}.", err=True)
    return len(jobs), len(left)
