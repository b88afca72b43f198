"""bench plan: trials, deployments and cost of a scenario, before anything runs."""

import json

import click

from seamark.cli.options import StudyOptions, json_option, lane_options, scenario_option
from seamark.errors import UserError
from seamark.planning.study import Study


@click.command("plan")
@scenario_option
@json_option
@lane_options
@click.option("--explain", is_flag=True, help="Show what each deployment waits for, waves, and most at once.")
@click.option("--write/--no-write", default=True, help="Write results/<scenario>/plan.json.")
def command(where: StudyOptions, as_json: bool, explain: bool, write: bool) -> None:
    """Show factors, trials, deployments, time, and the statistical power of the design.

    \b
    Examples:
      bench plan -c config/scenarios/llm_vllm_baseline.yaml --site meluxina
      bench plan -c config/scenarios/quickstart.yaml --json | jq .trials
      bench plan quickstart --order 'window: 4' --cpus auto --parallel 4 --explain
    """
    from seamark.planning.plan_checks import checked_by_plugins
    from seamark.planning.plan_order import explained
    from seamark.planning.plan_text import describe, duration, plan_facts
    from seamark.planning.study_paths import missing_here, require_paths
    from seamark.services.runtimes.environments import missing_environments
    from seamark.storage.codec import encode
    from seamark.trials.conflicts import conflicts, refusal
    from seamark.trials.trial_files import finite_lengths_s
    from seamark.workflow.lanes import order_planned, require_lanes, require_order

    study = where.open()
    study.require_drivers()
    require_paths(study)
    require_lanes(study) if {*where.lanes} - {"order"} else require_order(study)
    if missing := missing_here(study):
        raise UserError(*missing)
    checks = checked_by_plugins(study)
    if write:
        _write(study)
    unmade = missing_environments(study)
    measured_s = finite_lengths_s(study.plan, study.folder(study.scenario.name))
    planned = order_planned(study, measured_s) if explain or where.lanes else None
    if as_json:
        facts = plan_facts(study.plan, study.services, study.site, unmade=unmade, measured_s=measured_s)
        there = {} if planned is None else {"order": encode(planned)}
        there |= {"conflicts": encode(conflicts(study)), **{check.name: encode(check.facts) for check in checks}}
        click.echo(json.dumps(encode(facts) | there | {"plan": encode(study.plan)}, indent=1))
    else:
        click.echo(describe(study.plan, study.services, study.site, unmade, measured_s))
        if planned is not None:
            click.echo("\n".join(("", *explained(planned, duration))))
        for check in checks:
            if lines := [*check.lines, *(f"Note: {note}" for note in check.notes)]:
                click.echo("\n".join(("", check.title, *(f"  {line}" for line in lines))))
        if found := conflicts(study):
            click.echo("\n".join(("", *refusal(study, found))))


def _write(study: Study) -> None:
    """Write the plan and its trials, or note why not: a user without write access still sees the plan."""
    try:
        study.refresh_plan(study.scenario.name)
    except PermissionError as refused:
        from seamark.trials.permissions import owner

        folder = study.folder(study.scenario.name).root
        whose = f"{folder} is {owner(folder)}'s" if folder.exists() else str(refused)
        click.echo(f"Note: plan.json was not written; {whose}.", err=True)
