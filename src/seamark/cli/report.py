"""bench report: writes a scenario's report from its summary. What a terminal shows of it after other verbs."""

import click
from rich.console import Console

from seamark.cli.options import StudyOptions, scenario_option
from seamark.cli.output import said_beside
from seamark.config.yaml_source import shown
from seamark.errors import UserError
from seamark.planning.study import Study


@click.command("report")
@scenario_option
def command(where: StudyOptions) -> None:
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

    study = where.open()
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


def show_summary(study: Study, console: Console) -> None:
    """Print the answer, the summary table, why trials are not VALID, and the path of the report, where they exist."""
    from seamark.model.results.summary import Summary
    from seamark.report.headline import headline_of
    from seamark.report.terminal import summary_table, verdicts_text
    from seamark.storage.documents import read

    folder = study.folder(study.scenario.name)
    page = study.reports / study.scenario.name / "index.html"
    if folder.summary.exists():
        summary, score = read(folder.summary, Summary), None
        if study.plan.prediction is not None:  # what derives figures takes longer to import than a table to print
            from seamark.analysis.comparison.predicted import score_of

            score = score_of(study.plan, folder)
        headline = headline_of(study.plan, summary, score)
        console.print(headline.answer, style="bold", soft_wrap=True, markup=False, highlight=False)
        console.print(headline.certainty, soft_wrap=True, markup=False, highlight=False)
        console.print(summary_table(summary))
        if line := verdicts_text(summary):
            console.print(line, soft_wrap=True, markup=False, highlight=False)
    if page.exists():
        console.print(f"Report: {shown(page)}", soft_wrap=True, markup=False)
