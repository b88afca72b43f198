"""bench export tekton, llmd: a scenario as manifests of Tekton, its trials as reports of llm-d-benchmark."""

from pathlib import Path

import click

from seamark.cli.options import LANES, StudyOptions, output_option, scenario_option
from seamark.errors import Mistake, UserError
from seamark.model.plurals import counted


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


@click.command("llmd")
@scenario_option
@output_option("folder", "Folder. Default: llmd/<scenario>.", file_okay=False)
def llmd(where: StudyOptions, folder: Path | None) -> None:
    """Write measured trials as benchmark reports of llm-d-benchmark, a file for each.

    A report has the figures of the measured window. Trials that are invalid, simulated or without tokens have none.

    \b
    Examples:
      bench export llmd -c config/scenarios/llm_vllm_baseline.yaml -o reports
    """
    import yaml

    from seamark.analysis.metrics.samples import DamagedError
    from seamark.analysis.trial_view import TrialView
    from seamark.storage.documents import write_text
    from seamark_kubernetes.llmd.report import report_of, why_not

    study = where.open()
    name = study.scenario.name
    shown = folder or Path("llmd") / name
    left: dict[str, str] = {}
    reports: dict[str, str] = {}
    for trial in study.plan.measured:
        view = TrialView.of(trial, study.folder(name))
        try:
            if (why := why_not(view)) is None:
                reports[trial.id] = yaml.safe_dump(report_of(view, study.locks), sort_keys=False, allow_unicode=True)
        except DamagedError as damage:
            why = str(damage)
        if why is not None:
            left[trial.id] = why
    for trial_id, why in left.items():
        click.echo(f"Left out: {trial_id}: {why}", err=True)
    if not reports:
        text = f"{name}: no trial has a report. `bench submit -c {study.scenario_path}` measures them."
        raise UserError(Mistake(code="missing", path=name, text=text))
    for trial_id, text in reports.items():
        write_text(study.root / shown / f"{trial_id}.yaml", text)
    click.echo(f"{shown}: {counted(len(reports), 'report')}")
