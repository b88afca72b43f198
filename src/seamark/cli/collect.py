"""bench collect: what can be said of the trials measured so far."""

import subprocess

import click

from seamark.cli.options import open_study, scenario_option
from seamark.errors import SiteError, UserError
from seamark.progress import progress


@click.command("collect")
@scenario_option
def command(scenario: str, site: str | None) -> int:
    """Derive metrics, summary and report from the trials that are there; measure nothing.

    \b
    Example:
      bench collect -c config/scenarios/quickstart.yaml
    """
    from seamark.analysis import write_summary
    from seamark.cli.submit import show_summary
    from seamark.report.pages import write_report
    from seamark.snake import command as words
    from seamark.snake import release

    study = open_study(scenario, site)
    name, folder = study.scenario.name, study.folder(study.scenario.name)
    done = [state.trial for state in progress(study.plan, folder).states if state.state not in ("planned", "running")]
    if not done:
        raise UserError(f"{name}: no trial is measured yet. `bench submit -c {scenario}` measures them.")
    release(study.root)
    targets = [str(folder.trial(trial).metrics.relative_to(study.root)) for trial in done]
    ran = subprocess.run(words(study, targets, ("--quiet", "all")), check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        raise SiteError(f"Snakemake ended with {ran.returncode}:\n{ran.stderr[-2000:]}")
    write_summary(study.plan, folder)
    write_report(folder.root, study.reports)
    from rich.console import Console

    show_summary(study, Console())
    return 0
