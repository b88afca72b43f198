"""bench stop: ends a run with its servers and jobs."""

from contextlib import suppress
from pathlib import Path

import click

from seamark.cli.options import StudyOptions, scenario_option
from seamark.errors import SiteError
from seamark.planning.study import require_study
from seamark.workflow.run_end import end_run
from seamark.workflow.snakemake_cli import require_our_run, runs_in


@click.command("stop")
@scenario_option
@click.option("--all", "every", is_flag=True, help="Stop persistent servers too.")
def command(where: StudyOptions, every: bool) -> int:
    """Stop the run of this study, its servers and its batch jobs. Measured trials are kept.

    Exit code 1 when a job or a server is left after a minute.

    \b
    Examples:
      bench stop
      bench stop --all --site meluxina
    """
    from seamark.services.persistent.instance import instances
    from seamark.workflow.run_inventory import unfinished_jobs

    require_study(Path.cwd())
    study = where.open_any()
    require_our_run(study.root)
    running = runs_in(Path.cwd())
    batch = []
    with suppress(SiteError):  # the batch system does not answer, which ending the jobs reports
        batch = unfinished_jobs(study)
    left = end_run(study, running)
    jobs = f", {len(batch)} batch job(s)" if batch else ""
    click.echo(f"Stopped {len(running)} run(s){jobs} and their servers. `bench submit` resumes.")
    for line in left:
        click.echo(line, err=True)
    stay = len(left)
    standing = [instance for instance in instances(study.results) if instance.is_live()]
    for instance in standing if every else ():
        stay += not instance.stop()
        click.echo(f"{instance.id}: stopped.")
    if standing and not every:
        names = ", ".join(instance.id for instance in standing)
        ends = "`bench stop --all` or `bench servers stop ID` ends them."
        click.echo(f"Still running: persistent server {names}. {ends}")
    return 1 if stay else 0
