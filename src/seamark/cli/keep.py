"""bench keep: sets a measured run aside, so that the next one of the same scenario lies beside it."""

import click

from seamark.cli.options import StudyOptions, json_option, scenario_option
from seamark.cli.output import print_json
from seamark.config.yaml_source import shown
from seamark.errors import UserError
from seamark.model.plurals import counted


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
    from seamark.services.supervisor.deployment import alive
    from seamark.workflow.snakemake_cli import release, the_only_run

    study = where.open()
    with the_only_run(study.root):
        release(study.root)
        folder, page = study.folder(study.scenario.name), study.reports / study.scenario.name
        running = [server.id for server in study.plan.deployments if alive(folder.deployment(server.id))]
        if running:  # it writes into the folder that is moved
            raise UserError(
                f"bench keep: the server of {running[0]} still runs. Wait until it has ended, or use `bench stop`;"
                " nothing was moved."
            )
        missing = sum(not folder.trial(trial.id).load.exists() for trial in study.plan.trials)
        run = keep(study.results, study.scenario.name, name=name, commit=commit, page=page)
    trials = sum(1 for _ in run.trials())
    if as_json:
        print_json(run=run.name, folder=str(run.folder.root), trials=trials, not_measured=missing)
        return
    left = f"; {counted(missing, 'planned trial')} not measured" if missing else ""
    kept = shown(run.folder.root)
    click.echo(
        f"{kept}: {counted(trials, 'trial')}{left}. `bench submit -c {study.scenario_path}` measures the next run."
    )
