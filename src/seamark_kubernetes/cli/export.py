"""bench export tekton: a scenario as manifests of Tekton."""

from pathlib import Path

import click

from seamark.cli.options import LANES, StudyOptions, output_option, scenario_option


@click.command("tekton")
@scenario_option
@LANES["order"]
@output_option("folder", "Folder. Default: tekton/<scenario>.", file_okay=False)
@click.option("--image", metavar="NAME", help="Image of the containers. Default: seamark:<version>.")
def command(where: StudyOptions, folder: Path | None, image: str | None) -> None:
    """Write a scenario as manifests for Tekton that fill the same results folder.

    Each deployment is a task: its server is a sidecar, and the steps measure the missing trials. The file of the
    PipelineRun has the name of its order: matrix, sequential-4-barrier, sequential-unroll-picker.

    \b
    Examples:
      bench export tekton -c config/scenarios/quickstart.yaml -o out
      bench export tekton -c config/scenarios/llm_vllm_baseline.yaml --site local --order 'chained: 4' -o out
    """
    from seamark.planning.plan_checks import checked_by_plugins
    from seamark.workflow.lanes import require_order
    from seamark_kubernetes.pod.steps import STEPS
    from seamark_kubernetes.tekton.export import export_tekton

    study = where.open()
    study.require_datasets()
    study.require_drivers()
    require_order(study)
    checked_by_plugins(study)
    shown = folder or Path("tekton") / study.scenario.name
    export = export_tekton(study, study.root / shown, STEPS, image=image)
    for name in export.files:
        click.echo(shown / name)
    for note in export.notes:
        click.echo(f"Note: {note}")
    click.echo(f"Next: {shown}/README.md")
