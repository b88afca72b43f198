"""bench export: Slurm scripts, metrics for Prometheus, events for Perfetto, and what plugins export."""

from pathlib import Path

import click

from seamark.cli.options import (
    FiniteRange,
    StudyOptions,
    json_option,
    output_file,
    output_option,
    require_unread,
    scenario_among,
    scenario_option,
)
from seamark.cli.output import print_json
from seamark.errors import UserError, did_you_mean
from seamark.model.plugin import part, plugins
from seamark.model.plurals import counted


class Exports(click.Group):
    """The exports of the core and of plugins, which are imported only when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands, *(name for plugin in plugins() for name in plugin.exports)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        paths = [plugin.exports[cmd_name] for plugin in plugins() if cmd_name in plugin.exports]
        return part(paths[0]) if paths else super().get_command(ctx, cmd_name)


@click.group("export", cls=Exports)
def command() -> None:
    """Write Slurm scripts, metrics for Prometheus or events for Perfetto.

    \b
    Examples:
      bench export slurm -c config/scenarios/llm_vllm_baseline.yaml --site meluxina
      bench export prometheus -c config/scenarios/quickstart.yaml -o quickstart.prom
      bench export perfetto -c config/scenarios/quickstart.yaml TRIAL
    """


@command.command("slurm")
@scenario_option
@json_option
@output_option("folder", "Folder. Default: slurm/<scenario>.")
@click.option("--python", metavar="FILE", help="Interpreter of the jobs. Default: the study's, else python3.")
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    metavar="N",
    help="Array tasks at a time. Default: `jobs` of the site's profile.",
)
def slurm(where: StudyOptions, as_json: bool, folder: Path | None, python: str | None, at_once: int | None) -> None:
    """Write plain sbatch scripts that fill the same results folder, without Snakemake.

    Each deployment is a task of an array: it starts its server, measures the missing trials and ends.

    \b
    Examples:
      bench export slurm -c config/scenarios/llm_vllm_baseline.yaml --site meluxina
      bench export slurm -c config/scenarios/null.yaml --site meluxina -o slurm/null --at-once 4
    """
    from seamark.planning.plan_checks import checked_by_plugins
    from seamark.planning.study_paths import require_paths
    from seamark.workflow.export_slurm import export_slurm

    study = where.open()
    study.require_datasets()
    checked_by_plugins(study)
    require_paths(study)
    shown = folder or Path("slurm") / study.scenario.name
    export = export_slurm(study, study.root / shown, python=python, at_once=at_once)
    if as_json:
        jobs = [
            {
                "script": name,
                "deployments": [deployment.id for deployment in job.deployments],
                "time_min": job.time_min,
                "needs_min": job.needs_min,
            }
            for name, job in export.jobs.items()
        ]
        print_json(folder=str(export.folder), jobs=jobs, notes=export.notes)
        return
    for script, job in export.jobs.items():
        click.echo(f"{shown / script}: {job.summary()}")
    for note in export.notes:
        click.echo(f"Note: {note}")
    click.echo(
        f"Next: {shown}/submit.sh, here or in a copy of this study on the cluster; its last job writes the report."
    )
    click.echo(f"Then bench collect -c {study.scenario_path} --from HOST:STUDY/results imports the results.")


@command.command("prometheus")
@scenario_option
@output_option(
    "file",
    "One file for all trials; - for standard output. Default: files in the site's `metrics` folder.",
    dir_okay=False,
    allow_dash=True,
)
def prometheus(where: StudyOptions, file: Path | None) -> None:
    """Write the metrics of finished trials in Prometheus's text format, for its textfile collector.

    A site with `paths: {metrics: FOLDER}` gets a trial's files as soon as it is measured.

    \b
    Examples:
      bench export prometheus -c config/scenarios/quickstart.yaml -o quickstart.prom
      bench export prometheus -c config/scenarios/llm_vllm_baseline.yaml --site meluxina
    """
    from seamark.analysis.prometheus_text import text_of, write_figures
    from seamark.workflow.derive import measured_trials, write_expositions

    study = where.open()
    name = study.scenario.name
    if file is None and study.metrics is None:
        raise UserError(
            f"site '{study.site_name}': it names no folder for Prometheus. Name a file with -o,"
            " or `paths: {metrics: FOLDER}` in the site."
        )
    trials = [] if file is None else measured_trials(study)
    count = write_expositions(study, study.metrics) if file is None and study.metrics else len(trials)
    if count == 0:
        raise UserError(f"{name}: no trial is measured yet. `bench submit -c {study.scenario_path}` measures them.")
    if file is not None and str(file) == "-":
        click.echo(text_of(trials), nl=False)
        return
    if file is not None:
        require_unread(file, "--output", study.scenario_path, *study.folder(name).inputs())
        write_figures(file, trials)
    click.echo(f"{file or f'{study.metrics}/{name}'}: {counted(count, 'trial')}")


@command.command("perfetto")
@click.argument("trials", metavar="[SCENARIO] TRIAL", nargs=-1)
@scenario_among("trials")
@output_option("file", "Default: TRIAL.trace.json.gz. Without .gz not compressed.", dir_okay=False)
@click.option(
    "--from",
    "from_s",
    type=FiniteRange(min=0),
    default=0.0,
    show_default=False,
    metavar="S",
    help="Start of the part.",
)
@click.option("--to", "to_s", type=FiniteRange(min=0), metavar="S", help="End of the part.")
def perfetto(
    trials: tuple[str, ...], where: StudyOptions, file: Path | None, from_s: float, to_s: float | None
) -> None:
    """Write the events of a trial as a trace, for ui.perfetto.dev or chrome://tracing.

    A trial has events if its scenario sets `keep_events: true`; workflows on GPUs always have them. --from and --to
    are seconds from the start of the load.

    \b
    Examples:
      bench export perfetto -c config/scenarios/quickstart.yaml TRIAL
      bench export perfetto -c config/scenarios/quickstart.yaml TRIAL --from 10 --to 12 -o two-seconds.json
    """
    from seamark.analysis.metrics.samples import DamagedError
    from seamark.analysis.perfetto import write_perfetto
    from seamark.analysis.schedule.execution_rows import read_execution_table
    from seamark.analysis.schedule.trace import write_schedule_trace

    study = where.open()
    if len(trials) != 1:
        raise UserError(f"bench export perfetto: name one trial. `bench status -c {study.scenario_path}` lists them.")
    [trial_id] = trials
    known = {trial.id: [party.id for party in trial.measured] for trial in study.plan.trials}
    known |= {name: [name] for names in known.values() for name in names}
    if trial_id not in known:
        guess = did_you_mean(trial_id, known)
        listing = f"`bench status -c {study.scenario_path} --json` lists them"
        raise UserError(f"{trial_id}: no trial of {study.scenario.name}. {listing}.{guess}")
    if to_s is not None and to_s <= from_s:
        raise UserError(f"--to {to_s:g}: must be after --from ({from_s:g}).")
    folder = study.folder(study.scenario.name)
    folders = {name: folder.trial(name) for name in known[trial_id]}
    names = [name for name, files in folders.items() if files.events.exists() or files.executions.exists()]
    if not names:
        raise UserError(
            f"{trial_id}: it has no events. Set `keep_events: true` in the workload, for a service whose driver has"
            " stages, and measure it."
        )
    if file is not None and len(names) > 1:
        raise UserError(f"--output {file}: each party has a file of its own. Name one party: {', '.join(names)}.")
    part = "" if from_s == 0 and to_s is None else f".{from_s:g}-{'end' if to_s is None else f'{to_s:g}'}s"
    for name in names:
        target = file or Path(f"{name}{part}.trace.json.gz")
        if not target.name or target.name == "-" or (target.exists() and not target.is_file()):
            raise UserError(f"--output '{target}': is no file that can be written. Name one, such as trace.json.gz.")
        output_file(target, "--output", "trace.json.gz", study.scenario_path, *folder.inputs())
        events, executions = folders[name].events, folders[name].executions
        what = "execution" if executions.exists() else "event"
        try:
            if executions.exists():
                count = write_schedule_trace(read_execution_table(executions), target, from_s=from_s, to_s=to_s)
            else:
                count = write_perfetto(events, target, from_s=from_s, to_s=to_s)
        except DamagedError as damage:
            raise UserError(
                f"{executions}: {damage}. `bench retry {name} -c {study.scenario_path}` makes it again."
            ) from None
        except ValueError as damage:
            raise UserError(str(damage)) from None
        if not count:
            click.echo(f"{target}: no {what} between --from and --to.")
        else:
            click.echo(f"{target}: {counted(count, what)}. Open it at ui.perfetto.dev; nothing is uploaded.")
