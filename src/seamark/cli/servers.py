"""bench servers: the services that can be measured."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from seamark.cli.options import json_option
from seamark.study import config_folder

if TYPE_CHECKING:
    from seamark.model.service import Service


@click.group("servers")
def command() -> None:
    """Look at services.

    \b
    Example:
      bench servers list
    """


@command.command("list")
@json_option
def listing(as_json: bool) -> None:
    """List every recipe: version, licence, how it is driven, and whether it was seen running.

    \b
    Examples:
      bench servers list
      bench servers list --json | jq '.services[].name'
    """
    from seamark.model.read import read_services

    services = read_services(config_folder(Path.cwd(), "services"))
    rows = [
        {
            "name": service.name,
            "component": service.component,
            "version": service.version,
            "licence": service.licence,
            "runs": "in the client" if service.server is None else "as a server",
            "environment": service.environment,
            "state": _state(service),
            "summary": service.summary,
        }
        for service in services.values()
    ]
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "services": rows}, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("service", "component", "version", "licence", "runs", "state"):
        table.add_column(column)
    for row in rows:
        keys = ("name", "component", "version", "licence", "runs", "state")
        table.add_row(*(str(row[key]) for key in keys))
    Console().print(table)


def _state(service: "Service") -> str:
    if service.not_run_here:
        return f"not run here: {service.not_run_here}"
    return "runs here, not in its container" if service.unseen(contained=True) else "runs here"
