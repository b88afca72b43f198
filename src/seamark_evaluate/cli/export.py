"""bench export evaluation: answers as a result tree, or in the files of lm-evaluation-harness."""

from pathlib import Path

import click

from seamark.cli.options import StudyOptions, output_option, scenario_option
from seamark.errors import UserError
from seamark.model.plurals import counted


@click.command("evaluation")
@scenario_option
@output_option("folder", required=True, file_okay=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["tree", "harness"]),
    default="tree",
    help="tree: MODEL/METHOD/TASK/. harness: files of lm-evaluation-harness.",
)
def command(where: StudyOptions, folder: Path, form: str) -> None:
    """Write the answers of an evaluation as MODEL/METHOD/TASK/, or in the files of lm-evaluation-harness.

    Trials with an unanswered question are left out. Files of an earlier export are replaced.

    \b
    Example:
      bench export evaluation -c config/scenarios/sparse_attention_local.yaml -o answers --format harness
    """
    from seamark_evaluate.evaluation.evaluated_trial import EvaluatedTrial
    from seamark_evaluate.evaluation.harness_files import write_harness_files
    from seamark_evaluate.evaluation.result_tree import folders_of, write_summary, write_tree

    study = where.open()
    name = study.scenario.name
    asked = [trial for trial in study.plan.trials if trial.settings.get("task")]
    if not asked:
        raise UserError(f"{name}: it asks no questions: no workload has a 'task'.")
    trials = [EvaluatedTrial.of(trial, study.folder(name)) for trial in asked]
    whole = [trial for trial in trials if trial.whole]
    if not whole:
        raise UserError(
            f"{name}: no trial has an answer to every question. `bench submit -c {study.scenario_path}` asks them."
        )
    if form == "harness":
        written = write_harness_files(trials, folder)
    else:
        written = write_tree(trials, folder)
        names = folders_of(asked)
        write_summary({str(names[trial.id]): trial for trial in trials}, folder)
    what = "file" if form == "harness" else "task"
    left = f", {counted(len(trials) - len(whole), 'trial')} left out" if len(whole) < len(trials) else ""
    click.echo(f"{folder}: {counted(len(written), what)} of {counted(len(whole), 'trial')}{left}")
