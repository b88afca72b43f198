"""bench keep: sets a measured run aside, so that the next one of the same scenario lies beside it."""

import click

from seamark.cli.options import StudyOptions, json_option, scenario_option
from seamark.cli.output import print_json
from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.planning.study import Study


@click.command("keep")
@scenario_option
@click.option("--name", metavar="RUN", help="Name. Default: time of its first load, and --commit.")
@click.option("--commit", metavar="COMMIT", help="Commit of the measured service. Default: the study's.")
@json_option
def command(where: StudyOptions, name: str | None, commit: str | None, as_json: bool) -> None:
    """Move the measured run of a scenario to results/history/SCENARIO/RUN, with its samples and its report.

    `bench submit` then measures all of it again, and `bench history` compares the runs.

    \b
    Examples:
      bench submit -c config/scenarios/null.yaml && bench keep -c config/scenarios/null.yaml
      bench keep -c config/scenarios/null.yaml --name nightly-12 --commit 35083c6
    """
    from seamark.history.runs import keep
    from seamark.workflow.snakemake_cli import release, the_only_run

    study = where.open()
    with the_only_run(study.root):
        release(study.root)
        _require_no_server(study)
        planned = [trial.id for trial in study.plan.trials]
        folder = study.folder(study.scenario.name)
        missing = sum(not folder.trial(trial).load.exists() for trial in planned)
        run = keep(
            study.results,
            study.scenario.name,
            name=name,
            commit=commit,
            page=study.reports / study.scenario.name,
        )
    trials = sum(1 for _ in run.trials())
    shown = run.folder.root.relative_to(study.root) if run.folder.root.is_relative_to(study.root) else run.folder.root
    if as_json:
        print_json(run=run.name, folder=str(run.folder.root), trials=trials, not_measured=missing)
        return
    left = f"; {counted(missing, 'planned trial')} not measured" if missing else ""
    click.echo(
        f"{shown}: {counted(trials, 'trial')}{left}. `bench submit -c {study.scenario_path}` measures the next run."
    )


def _require_no_server(study: Study) -> None:
    """Raise UserError while a server of the scenario runs: it writes into the folder that is moved."""
    from seamark.services.supervisor.deployment import alive

    folder = study.folder(study.scenario.name)
    running = [each.id for each in study.plan.deployments if alive(folder.deployment(each.id))]
    if running:
        raise UserError(
            f"bench keep: the server of {running[0]} still runs. Wait until it has ended, or use `bench stop`;"
            " nothing was moved."
        )
