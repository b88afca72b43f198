"""bench retry: measures failed trials again."""

import click

from seamark.cli.options import StudyOptions, json_option, lane_options, scenario_among
from seamark.errors import UserError, did_you_mean
from seamark.model.trial import whole_of
from seamark.trials.progress import progress
from seamark.trials.trial_files import put_aside


@click.command("retry")
@scenario_among("trials")
@json_option
@lane_options
@click.argument("trials", metavar="[SCENARIO] [TRIAL]...", nargs=-1)
def command(where: StudyOptions, as_json: bool, trials: tuple[str, ...]) -> int:
    """Measure failed trials again, or only TRIALS, and missing ones. Earlier attempts are kept.

    \b
    Examples:
      bench retry quickstart
      bench retry quickstart s3-8c1f02--operation-get-1a2b3c--r1
    """
    from seamark.cli.submit import submit, the_next_run
    from seamark.trials.conflicts import require_no_conflicts
    from seamark.trials.permissions import require_ours
    from seamark.workflow.lanes import require_lanes

    study = where.open()
    require_lanes(study)
    study.require_datasets()
    folder = study.folder(study.scenario.name)
    known = [trial.id for trial in (*study.plan.trials, *study.plan.measured)]
    for name in trials:
        if name not in known:
            raise UserError(f"{name}: no such trial in {study.scenario.name}.{did_you_mean(name, known)}")
    now = progress(study.plan, folder)
    chosen = tuple(dict.fromkeys(map(whole_of, trials))) or tuple(state.trial for state in now.failed)
    if not chosen and now.done == len(now.states):
        click.echo(f"{study.scenario.name}: no failed trial.", err=True)
        return 0
    require_ours(study)
    require_no_conflicts(study, besides=chosen)

    with the_next_run(study):
        for name in chosen:
            put_aside(folder.trial(name))
        return submit(study, as_json=as_json)
