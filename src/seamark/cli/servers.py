"""bench servers: lists services; starts, lists, checks and stops persistent servers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seamark.cli.options import FiniteRange, duration_s, json_option, site_option
from seamark.cli.output import print_json, terminal
from seamark.errors import SiteError, UserError
from seamark.planning.study import config_folder, results_of, site_of
from seamark.storage.documents import read_or_none

if TYPE_CHECKING:
    from seamark.model.results.deployment_record import ServerRun
    from seamark.model.service import Service
    from seamark.services.persistent.instance import Instance
    from seamark.services.persistent.request import ValidatedRequest

TABLE = ("id", "service", "state", "endpoint", "node", "job", "since")
WIDE = 140
"""Columns of a terminal on which no licence is wrapped."""
STYLE = {"running": "green", "pending": "yellow", "starting": "yellow", "failed": "bold red", "ended": "dim"}


@click.group("servers")
def command() -> None:
    """List services; start, list, check and stop persistent servers.

    \b
    Examples:
      bench servers list
      bench servers start postgres --set scale=4 --time 2h
      bench servers ps
      bench servers stop --all
    """


@command.command("list")
@json_option
def listing(as_json: bool) -> None:
    """List every service: version, licence, where it runs, and whether it was tested.

    \b
    Examples:
      bench servers list
      bench servers list --json | jq '.services[].name'
    """
    from seamark.config.read import Recipes
    from seamark.model.service import sound_services

    services = sound_services(Recipes(config_folder(Path.cwd(), "services")))
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
        print_json(services=rows)
        return
    table, console = Table(box=None, padding=(0, 1), pad_edge=False), terminal()
    keys = ("name", "component", "version", "licence", "runs", "state")
    cells = [
        [str(row[key]).partition(":")[0].removeprefix("in the ").removeprefix("as a ") for key in keys]
        for row in rows
    ]
    for column, texts in zip(("service", *keys[1:]), zip(*cells, strict=True), strict=True):
        longest = max(len(word) for text in (column, *texts) for word in text.split())
        table.add_column(column, overflow="fold", width=longest if console.width < WIDE else None)  # no word is cut
    for line in cells:
        table.add_row(*map(Text, line))
    console.print(table)


@command.command("ps")
@site_option
@json_option
@click.option("-a", "--all", "ended", is_flag=True, help="Include persistent servers that have ended.")
def ps(site: str, as_json: bool, ended: bool) -> None:
    """List the running servers of this study: persistent servers and servers of trials.

    \b
    Examples:
      bench servers ps
      bench servers ps --all --json | jq '.servers[] | {id, state, job}'
    """
    from seamark.services.persistent.listing import list_servers

    rows = list_servers(results_of(Path.cwd(), site), ended=ended)
    if as_json:
        print_json(servers=[vars(row) for row in rows])
        return
    if not rows:
        click.echo("No server of this study is running.")
        return
    table = Table(box=None, pad_edge=False)
    for column in (*TABLE, "why"):
        table.add_column(column, overflow="fold")
    for row in rows:
        cells = [str(getattr(row, key) or "") for key in TABLE]
        cells[TABLE.index("node")] = " ".join(row.nodes) or row.node or ""
        cells[TABLE.index("state")] = f"[{STYLE[row.state]}]{row.state}[/]"
        cells[TABLE.index("since")] = cells[-1][:19].replace("T", " ")
        table.add_row(*cells, Text(row.why or ""))
    terminal().print(table)


@command.command("check")
@click.argument("server", metavar="ID")
@site_option
@json_option
@click.option("--timeout", type=FiniteRange(min=0, min_open=True), default=10.0, help="Longest wait, in seconds.")
def check(server: str, site: str, as_json: bool, timeout: float) -> int:
    """Probe a server as its recipe defines (HTTP 2xx or a TCP connection) and print its address.

    Exit code 1 when it does not answer.

    \b
    Example:
      bench servers check postgres-1
    """
    from seamark.model.results.deployment_record import DeploymentRecord, Endpoint
    from seamark.services.persistent.listing import endpoint_text, is_healthy, server_folder
    from seamark.services.persistent.request import service_named
    from seamark.services.supervisor.deployment import alive, why_ended

    folder = server_folder(results_of(Path.cwd(), site), server)
    endpoint = read_or_none(folder.endpoint, Endpoint) or Endpoint()
    lives = endpoint.ok and alive(folder)
    well = lives and is_healthy(endpoint, service_named(Path.cwd(), str(endpoint.service)), timeout)
    where = endpoint_text(endpoint) if lives else None
    if as_json:
        ports = dict(endpoint.ports) if endpoint.status else None
        print_json(id=server, healthy=well, endpoint=where, ports=ports)
    elif well:
        click.echo(f"{server}: healthy at {where}")
    elif lives:
        click.echo(
            f"{server}: runs at {where}, but does not answer within {timeout:g} s. Its log: {folder.server_log}"
        )
    else:
        record = read_or_none(folder.record, DeploymentRecord)
        end = why_ended(folder) or (record.ended if record else None)
        why = (end.reason if end else None) or (record.reason if record else None) or "its server does not run"
        click.echo(f"{server}: not running: {why}")
    return 0 if well else 1


@command.command("start")
@click.argument("service")
@site_option
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Setting of the server.")
@click.option("--name", metavar="ID", help="Id. Default: the service's name and a number.")
@click.option("--time", default="1h", metavar="SPAN", help="Time until it ends: 45s, 30m, 2h, 1d.")
@click.option("--nodes", type=click.IntRange(1), default=1, help="Nodes.")
@click.option("--gpus", type=click.IntRange(0), default=0, help="GPUs of all nodes together.")
@click.option("--cpus", "cpus_per_task", type=click.IntRange(1), default=1, help="CPUs per node.")
@click.option("--mem-gb", type=click.IntRange(1), default=1, help="Memory per node in GB.")
@click.option("--partition", help="Batch job: partition.")
@click.option("--account", help="Batch job: account.")
@click.option("--qos", help="Batch job: quality of service.")
@click.option("--container", metavar="FILE", help="Image to run it in, on a site with containers.")
@click.option("--no-wait", is_flag=True, help="Batch job: return once it is submitted.")
@json_option
def start(
    service: str, site: str, settings: tuple[str, ...], name: str | None, time: str, no_wait: bool, as_json: bool,
    **asked: Any,
) -> int:  # fmt: skip
    """Start a persistent server, and wait until it answers.

    On a site with a batch system it runs in its own job. It ends after --time, or with `bench servers stop`. To
    measure it, use a site with `runtime: external` and `address: standing/ID`, or `bench load standing/ID`.

    \b
    Examples:
      bench servers start postgres --set scale=4 --time 2h
      bench servers start vllm --site meluxina --gpus 4 --partition gpu --account p200000 --time 4h
    """
    from seamark.services.persistent.instance import ServerRequest
    from seamark.services.persistent.request import new_instance, service_named, settings_from

    root = Path.cwd()
    request = ServerRequest(
        service=service,
        site=site,
        settings=settings_from(settings, service_named(root, service)),
        time_s=duration_s("--time", time),
        **asked,
    )
    machine = site_of(root, site)
    if not machine.starts_servers:
        raise UserError(f"bench servers start: the site '{site}' starts no servers (runtime: {machine.runtime}).")
    instance, wanted = new_instance(root, results_of(root, site), request, name)
    answer = _started(instance, wanted, no_wait=no_wait, console=terminal(stderr=True))
    if answer is None:
        click.echo(f"{instance.id}: job {instance.job} is submitted. `bench servers ps` shows its state.")
        return 0
    return _tell(instance, wanted, answer, as_json)


@command.command("stop")
@click.argument("servers", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Stop every persistent server of this study.")
@site_option
def stop(servers: tuple[str, ...], every: bool, site: str) -> int:
    """Stop persistent servers, their batch jobs and all their processes. Their files are kept.

    Exit code 1 when a process of one is left after a minute.

    \b
    Examples:
      bench servers stop postgres-1
      bench servers stop --all
    """
    from seamark.services.persistent.instance import find_instance, instances

    results = results_of(Path.cwd(), site)
    if not servers and not every:
        raise UserError(
            "bench servers stop: name a server (`bench servers ps` lists them), or all of them with --all."
        )
    named = [instance for instance in instances(results) if instance.is_live()] if every else []
    left = 0
    for instance in named or [find_instance(results, name) for name in servers]:
        lived = instance.is_live()
        if not instance.stop():
            left += 1
            click.echo(f"{instance.id}: a process is left; see {instance.root}.", err=True)
        else:
            click.echo(f"{instance.id}: {'stopped' if lived else 'had ended already'}. Its files: {instance.root}")
    if every and not named:
        click.echo("No persistent server of this study is running.")
    return 1 if left else 0


def _started(
    instance: "Instance", wanted: "ValidatedRequest", *, no_wait: bool, console: Console
) -> "ServerRun | None":
    """Start it here or in a job; return its endpoint.json, None without waiting for it."""
    from seamark.dispatch.dispatcher import is_batch
    from seamark.services.persistent.start import start_here, submit, wait

    if wanted.study.site.in_images:
        from seamark.services.images.prepare import require_images

        try:
            require_images(wanted.study)
        except SiteError:
            instance.remove()
            raise
    with console.status(f"starting {instance.id}") as line:
        if not is_batch(wanted.study.site):
            return start_here(instance, wanted)
        number = submit(instance, wanted)
        if no_wait:
            return None
        try:
            return wait(instance, number, lambda what: line.update(f"{instance.id}: {what}"))
        except BaseException:
            instance.stop()
            raise


def _tell(instance: "Instance", wanted: "ValidatedRequest", answer: "ServerRun", as_json: bool) -> int:
    from seamark.services.persistent.listing import endpoint_text, tunnel_command

    well = answer.ok
    tunnel = tunnel_command(wanted.study.site, answer) if well else None
    if as_json:
        keys = ("status", "category", "reason", "host", "ports", "node", "server_nodes")
        facts = {key: getattr(answer, key) for key in keys}
        print_json(id=instance.id, job=instance.job, **facts, tunnel=tunnel)
    elif well:
        nodes = " ".join(answer.server_nodes or [str(answer.node)])
        job = f", job {instance.job} on {nodes}" if instance.job else ""
        click.echo(f"{instance.id}: answers at {endpoint_text(answer)}{job}")
        if tunnel:
            click.echo(f"From outside: {tunnel}")
        click.echo(f"End it with `bench servers stop {instance.id}`.")
    if not well:
        click.echo(f"{instance.id}: {answer.category}: {answer.reason}", err=True)
        for text in answer.log_tail:
            click.echo(f"  {text}", err=True)
    return 0 if well else 1


def _state(service: "Service") -> str:
    if service.not_run_here:
        return f"not run here: {service.not_run_here}"
    return "runs here, not in its container" if service.unseen(contained=True) else "runs here"
