"""bench report: writes a scenario's report from its summary."""

import click

from seamark.cli.options import open_study, said_beside, scenario_option
from seamark.errors import UserError


@click.command("report")
@scenario_option
def command(scenario: str | None, site: str | None) -> None:
    """Write a scenario's report again. Metrics of an older version are derived again.

    \b
    Example:
      bench report -c config/scenarios/quickstart.yaml
    """
    from seamark.model.results.summary import Summary
    from seamark.report.page.render import write_report
    from seamark.storage.documents import read
    from seamark.workflow.derive import derive, has_older_figures
    from seamark.workflow.snakemake_cli import release

    study = open_study(scenario, site)
    folder = study.folder(study.scenario.name)
    if not folder.summary.exists():
        raise UserError(
            f"{study.scenario.name}: no summary yet. Run `bench submit -c {study.scenario_path}`, or `bench collect`."
        )
    why = None
    if has_older_figures(study):
        why = "Metrics of an older version are derived again from the samples."
    elif read(folder.summary, Summary).compare != study.plan.compare:
        why = "Levels are compared again, as the scenario's `compare` is another one now."
    if why is not None:
        release(study.root)
        click.echo(why)
        with said_beside() as say:
            derive(study, say)
    with said_beside() as say:
        page = write_report(folder.root, study.reports, say)
    click.echo(f"Report: {page}")
