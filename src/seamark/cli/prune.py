"""bench prune: frees disk space; samples, the basis of published figures, only on request."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from seamark.cli.options import FiniteRange, json_option, names_argument, site_option
from seamark.cli.output import print_json
from seamark.errors import UserError, did_you_mean
from seamark.planning.study import results_of, scenario_name, site_of
from seamark.storage.paths import HISTORY


@click.command("prune")
@names_argument("[SCENARIO]...")
@click.option("--logs-days", type=FiniteRange(0), metavar="N", help="Keep logs for N days.")
@click.option("--attempts-days", type=FiniteRange(0), metavar="N", help="Keep earlier attempts for N days.")
@click.option("--standing-days", type=FiniteRange(0), metavar="N", help="Keep ended persistent servers for N days.")
@click.option("--samples-days", type=FiniteRange(0), metavar="N", help="Keep raw samples for N days only.")
@click.option("--apply", "really", is_flag=True, help="Remove them.")
@site_option
@json_option
def command(names: tuple[str, ...], really: bool, site: str, as_json: bool, **days: float | None) -> None:
    """List files older than the site's `retention`, also of kept runs; with --apply, remove them.

    The default for logs, earlier attempts and ended persistent servers is 30 days. Raw samples are removed only if
    the site or --samples-days says so; metrics then stay, but cannot be derived again.

    \b
    Examples:
      bench prune
      bench prune quickstart --logs-days 7 --apply
    """
    from seamark.housekeeping.retention import removable, remove
    from seamark.housekeeping.storage_estimate import shown_bytes
    from seamark.workflow.snakemake_cli import runs_in

    results, keep = results_of(Path.cwd(), site), site_of(Path.cwd(), site).retention
    known = [path.parent.name for path in results.glob("*/plan.json")]
    known += sorted({path.parent.name for path in results.glob(f"{HISTORY}/*/*/") if path.parent.name not in known})
    scenarios = tuple(scenario_name(Path.cwd(), word) for word in names)
    for name in scenarios:
        if name not in known:
            raise UserError(
                f"bench prune {name}: no results of a scenario of that name. Known: {', '.join(known) or 'none'}."
                f"{did_you_mean(name, known)}"
            )
    keep = replace(keep, **{name: value for name, value in days.items() if value is not None})
    if really and runs_in(Path.cwd()):
        raise UserError("bench prune: a run is active in this study. Wait for it, or end it with `bench stop`.")
    now = datetime.now(UTC)
    removables = removable(results, keep, now, scenarios)
    if really:
        remove(removables, now)
    kinds = dict.fromkeys(file.kind for file in removables)
    sizes = {kind: sum(file.size_bytes for file in removables if file.kind == kind) for kind in kinds}
    if as_json:
        rows = [
            {"kind": file.kind, "path": str(file.path), "bytes": file.size_bytes, "changed": file.changed.isoformat()}
            for file in removables
        ]
        print_json(removed=really, bytes=sizes, found=rows)
        return
    if not removables:
        click.echo("Nothing is old enough to be removed.")
        return
    for kind, size in sizes.items():
        count = sum(file.kind == kind for file in removables)
        click.echo(f"{kind}: {count}, {shown_bytes(size)}{' removed' if really else ''}")
    if not really:
        click.echo("Nothing was removed: use --apply to remove them, --json to list every path.")
