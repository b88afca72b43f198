"""bench logs: collects the logs of a scenario's servers, loads and jobs in one archive."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from seamark.cli.options import json_option, moment, names_argument, output_file, site_option
from seamark.cli.output import print_json
from seamark.errors import UserError, did_you_mean
from seamark.planning.study import results_of, scenario_name

if TYPE_CHECKING:
    from seamark.housekeeping.logs import LogFile


@click.group("logs")
def command() -> None:
    """Collect logs.

    \b
    Example:
      bench logs get quickstart
    """


@command.command("get")
@names_argument("SCENARIO|ID", most=1, needed="a scenario or a persistent server")
@click.option("--component", "components", multiple=True, help="Only server, load, supervisor, serve, run, ...")
@click.option("--since", metavar="TIME", help="Start: 2026-01-31T12:00, or 2h for two hours ago.")
@click.option("--until", metavar="TIME", help="End, in the same forms.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Archive. Default: SCENARIO-logs.tar.gz.")
@site_option
@json_option
def get(
    names: tuple[str, ...],
    components: tuple[str, ...],
    since: str | None,
    until: str | None,
    output: Path | None,
    site: str,
    as_json: bool,
) -> int:
    """Collect the logs of a scenario or a persistent server in one archive: JSON lines, a file per component.

    Each line has its time, or that of the lines above or the file (`at_from: file`), and its trial: of a server's log
    the one that was under load. Exit code 1 when no line is found.

    \b
    Examples:
      bench logs get quickstart
      bench logs get quickstart --component server --component load --since 2h
      bench logs get postgres-1 --until 2026-01-31T12:00 -o postgres.tar.gz
    """
    from seamark.housekeeping.logs import check_components, collect

    results, name = results_of(Path.cwd(), site), scenario_name(Path.cwd(), names[0])
    sources = _sources(results, name)
    check_components(components, sources)
    begin, end = moment("--since", since), moment("--until", until)
    short = name.removeprefix("standing/")
    example = f"{short}-logs.tar.gz"
    archive = output_file(output or example, "--output", example, *(source.path for source in sources))
    lines = collect(sources, archive, short, components=components, since=begin, until=end)
    if as_json:
        print_json(archive=str(archive), lines=lines)
    else:
        counts = ", ".join(f"{component} {count:,}" for component, count in sorted(lines.items()))
        click.echo(f"{archive}: {counts or 'no line'}")
    return 0 if lines else 1


def _sources(results: Path, name: str) -> "list[LogFile]":
    from seamark.housekeeping.logs import batch_sources, sources
    from seamark.services.persistent.instance import STANDING, instances

    standing = {instance.id: instance.root for instance in instances(results)}
    scenarios = {path.parent.name: path.parent for path in results.glob("*/plan.json")}
    if name.removeprefix(f"{STANDING}/") in standing:
        return sources(standing[name.removeprefix(f"{STANDING}/")], STANDING)
    if name in scenarios:
        return [*sources(scenarios[name], name), *batch_sources(Path("logs"), name)]
    known = [*scenarios, *standing]
    raise UserError(
        f"bench logs get {name}: no scenario with results and no persistent server of that name. Known:"
        f" {', '.join(known) or 'none'}.{did_you_mean(name, known)}"
    )
