"""bench collect: metrics, summary and report of the trials measured so far."""

from typing import TYPE_CHECKING

import click

from seamark.cli.options import StudyOptions, scenario_option
from seamark.cli.output import said_beside, terminal
from seamark.cli.report import show_summary
from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.planning.study import Study

if TYPE_CHECKING:
    from seamark.housekeeping.import_results import Prefer


@click.command("collect")
@scenario_option
@click.option(
    "--from", "source", metavar="[USER@HOST:]FOLDER", help="First import trials from this results folder, by rsync."
)
@click.option(
    "--prefer",
    type=click.Choice(["here", "there"]),
    help="Which measurement of a trial to use if both exist. Default: refuse.",
)
def command(where: StudyOptions, source: str | None, prefer: "Prefer | None") -> int:
    """Derive metrics, summary and report from the measured trials; measure nothing.

    With --from, finished trials of another results folder or machine are imported first; trials finished here stay.

    \b
    Examples:
      bench collect -c config/scenarios/quickstart.yaml
      bench collect -c config/scenarios/null.yaml --from me@login.example.org:my-study/results
    """
    from seamark.workflow.derive import derive
    from seamark.workflow.snakemake_cli import release

    if prefer and not source:
        raise UserError(f"bench collect --prefer {prefer}: it needs --from, which imports other trials.")
    study = where.open()
    release(study.root)
    if source:
        _import(study, source, prefer)
    with said_beside() as say:
        tried = derive(study, say)
    if not tried:
        raise UserError(
            f"{study.scenario.name}: no trial is measured yet. `bench submit -c {study.scenario_path}` measures them."
        )
    show_summary(study, terminal())
    return 0


def _import(study: Study, source: str, prefer: "Prefer | None") -> None:
    """Import the finished trials of `source`, and print how many."""
    from seamark.housekeeping.import_results import fetch, forget, merge, take_calibrations
    from seamark.storage.paths import ScenarioFolder

    name = study.scenario.name
    copy = fetch(source, name, study.results)
    merged = merge(study.plan, ScenarioFolder(root=copy / name), study.folder(name), source, prefer)
    take_calibrations(copy, study.results)
    forget(copy)
    click.echo(f"{source}: {counted(len(merged.taken), 'trial')} imported, {len(merged.kept)} existed here.")
    for machine, count in merged.places.items():
        click.echo(f"  {counted(count, 'trial')} measured on {machine}")
    if merged.unfinished:
        click.echo(
            f"{len(merged.unfinished)} are unfinished there or have another configuration, and were not imported."
        )
