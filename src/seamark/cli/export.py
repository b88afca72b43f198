"""bench export: a scenario in the form of another tool that runs it."""

import json
from pathlib import Path

import click

from seamark.cli.options import json_option, open_study, scenario_option


@click.group("export")
def command() -> None:
    """Write a scenario in the form of another tool that runs it.

    \b
    Example:
      bench export slurm -c config/scenarios/llm_vllm_baseline.yaml --site meluxina
    """


@command.command("slurm")
@scenario_option
@json_option
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Where to write them, below the study. Default: slurm/<scenario>.",
)
@click.option(
    "--python", metavar="FILE", help="Interpreter of the jobs. Default: the study's own, else python3 of their PATH."
)
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tasks of an array that run at the same time. Default: `jobs` of the site's profile.",
)
def slurm(
    scenario: str, site: str | None, as_json: bool, folder: Path | None, python: str | None, at_once: int | None
) -> None:
    """Write plain sbatch scripts that fill the same results folder, without Snakemake.

    Deployments of equal resources are the tasks of one array: each starts its server, measures its trials and ends.
    What is measured is not measured again, whoever measured it.

    \b
    Examples:
      bench export slurm -c config/scenarios/llm_vllm_baseline.yaml --site meluxina
      bench export slurm -c config/scenarios/null.yaml --site meluxina -o slurm/null --at-once 4
    """
    from seamark.export import export_slurm

    study = open_study(scenario, site)
    told = folder or Path("slurm") / study.scenario.name
    export = export_slurm(study, study.root / told, python=python, at_once=at_once)
    if as_json:
        click.echo(json.dumps(export.document(), indent=1))
        return
    for script, job in export.jobs.items():
        click.echo(f"{told / script}: {job.said()}")
    for note in export.notes:
        click.echo(f"Note: {note}")
    click.echo(
        f"Next: {told / 'submit.sh'}, here or in a copy of this study on the machine; its last job writes the report."
    )
    click.echo(f"From there, bench collect -c {scenario} --from HOST:STUDY/results brings the results here.")
