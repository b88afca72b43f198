"""bench doctor: whether this machine can measure."""

import json

import click
from rich.console import Console
from rich.table import Table

from seamark.cli.options import json_option, open_study, scenario_option

STYLE = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command("doctor")
@scenario_option
@json_option
def command(scenario: str, site: str | None, as_json: bool) -> int:
    """Check the machine and the site: what is missing, what will make numbers worse, and the remedy.

    \b
    Examples:
      bench doctor
      bench doctor --site meluxina
    """
    from seamark.doctor import examine

    findings = examine(open_study(scenario, site))
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "findings": [vars(finding) for finding in findings]}, indent=1))
    else:
        table = Table("", "", "seen", "remedy", box=None, pad_edge=False)
        for finding in findings:
            table.add_row(f"[{STYLE[finding.level]}]{finding.level}[/]", finding.what, finding.seen, finding.remedy)
        Console().print(table)
    return 3 if any(finding.level == "problem" for finding in findings) else 0
