"""bench status: progress of a scenario, once or live."""

import time
from collections.abc import Sequence

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from seamark.cli.options import StudyOptions, json_option, scenario_option
from seamark.cli.output import print_json, terminal
from seamark.model.plurals import counted
from seamark.planning.study import Study
from seamark.storage.codec import encode
from seamark.trials.conflicts import conflicts, refusal
from seamark.trials.failure_lines import failure_lines
from seamark.trials.progress import Progress, Seen, progress_of
from seamark.trials.time_left import TimeLeft, time_left
from seamark.workflow.run_inventory import Component, components, devices_of


@click.command("status")
@scenario_option
@json_option
@click.option("-w", "--watch", is_flag=True, help="Update until the run ends.")
def command(where: StudyOptions, as_json: bool, watch: bool) -> int:
    """Show the trials measured, running and failed, the server of each deployment, and what runs where.

    \b
    Examples:
      bench status quickstart
      bench status -c config/scenarios/quickstart.yaml --watch
      bench status quickstart --json | jq '.states[] | select(.state == "failed")'
    """
    study = where.open()
    now = progress_of(study)
    if as_json:
        servers = {row[0]: row[1] for row in _servers(study)}
        parts = [vars(component) for component in components(study)]
        left = time_left(study, now)
        more = {"conflicts": encode(conflicts(study)), "left": None if left is None else vars(left)}
        print_json(**now.document(), deployments=servers, components=parts, **more)
        return 1 if now.failed else 0
    console = terminal()
    if not watch:
        console.print(_table(study, now, time_left(study, now)))
        if there := conflicts(study):
            console.print("\n".join(refusal(study, there)), markup=False, soft_wrap=True)
        if inventory := components(study):
            console.print(_components(inventory, f"{study.root}/"))
        return 1 if now.failed else 0
    from seamark.workflow.snakemake_cli import runs_in

    left = time_left(study, now)
    with Live(_watched(study, now, left), console=console, refresh_per_second=2) as live:
        seen: Seen = {}
        done = now.done
        while runs_in(study.root):
            time.sleep(1)
            now = progress_of(study, seen)
            if now.done != done:
                done, left = now.done, time_left(study, now)
            live.update(_watched(study, now, left))
    return 1 if progress_of(study, seen).failed else 0


def _watched(study: Study, now: Progress, left: TimeLeft | None) -> Group:
    """Return the table, and the devices of the run's lanes with what each of them serves."""
    devices = list(devices_of(study))
    return Group(_table(study, now, left), *([_components(devices, f"{study.root}/")] if devices else []))


def _components(inventory: Sequence[Component], root: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("what", "name", "state", "where", "job"):
        table.add_column(column, overflow="fold")
    for part in inventory:
        table.add_row(
            *map(Text, (part.kind, part.name, part.state, (part.where or "").removeprefix(root), part.job or ""))
        )
    return table


def _servers(study: Study) -> list[tuple[str, str]]:
    from seamark.services.supervisor.deployment import alive

    folder = study.folder(study.scenario.name)
    rows = []
    for deployment in study.plan.deployments:
        files = folder.deployment(deployment.id)
        state = "running" if alive(files) else "ended" if files.record.exists() else "not running"
        rows.append((deployment.id, state))
    return rows


def _table(study: Study, now: Progress, left: TimeLeft | None) -> Table:
    table = Table(title=f"{now.scenario}: {now.count('ok')} of {counted(len(now.states), 'trial')} measured")
    for column in ("deployment", "server", "measured", "running", "failed", "planned"):
        whole = {"overflow": "fold"} if column == "deployment" else {"no_wrap": True}
        table.add_column(column, justify="left" if column in ("deployment", "server") else "right", **whole)
    for deployment, server in _servers(study):
        states = [state for state in now.states if state.deployment == deployment]
        part = Progress(scenario=now.scenario, states=tuple(states))
        numbers = (part.count("ok"), part.count("running"), len(part.failed), part.count("planned"))
        table.add_row(deployment, server, *map(str, numbers))
    other = now.count("other")
    notes = [] if left is None else [left.text()]
    notes += [f"{counted(other, 'trial')} of another server or configuration, not counted"] if other else []
    notes += [f"{state.trial}: {state.detail}" for state in now.states if state.detail]
    notes += failure_lines(now, study.folder(study.scenario.name), study.root)
    table.caption = Text("\n".join(notes)) if notes else None
    return table
