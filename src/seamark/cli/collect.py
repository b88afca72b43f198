"""bench collect: what can be said of the trials measured so far."""

import click

from seamark.cli.options import open_study, scenario_option
from seamark.errors import UserError


@click.command("collect")
@scenario_option
def command(scenario: str, site: str | None) -> int:
    """Derive metrics, summary and report from the trials that are there; measure nothing.

    \b
    Example:
      bench collect -c config/scenarios/quickstart.yaml
    """
    from rich.console import Console

    from seamark.cli.submit import show_summary
    from seamark.derive import derive
    from seamark.snake import release

    study = open_study(scenario, site)
    release(study.root)
    if not derive(study):
        raise UserError(
            f"{study.scenario.name}: no trial is measured yet. `bench submit -c {scenario}` measures them."
        )
    show_summary(study, Console())
    return 0
