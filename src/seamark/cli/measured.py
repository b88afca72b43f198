"""What `bench simulate --execution measure` and `bench baseline --simulate true` share: options, and the run."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from seamark.cli.options import DURATION_FORMS, duration_s, terminal, warn_of_machine
from seamark.errors import UserError
from seamark.platform.process_tree import exit_on_signals
from seamark.storage.redaction import redacted_text

if TYPE_CHECKING:
    from seamark.trials.simulation.measured.measured_run import MeasuredSimulation
    from seamark.trials.simulation.measured.model_servers import ModelServers

MODEL_SERVER = "http://localhost:8000"
LIMIT, CALL_LIMIT = "1h", "10m"
OPTIONS = ("model_server", "servers", "limit", "call_limit")


def measure_options(*, own_servers: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds --model-server, --limit and --call-limit, and with `own_servers` --servers. All
    are None where they are not given."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        options = [
            click.option(
                "--limit", metavar="SPAN", help=f"Measure: time limit of the whole run.  [default: {LIMIT}]"
            ),
            click.option(
                "--call-limit", metavar="SPAN", help=f"Measure: time limit of a call.  [default: {CALL_LIMIT}]"
            ),
        ]
        if own_servers:
            options.append(
                click.option(
                    "--servers",
                    type=click.Path(path_type=Path),
                    help="Measure: file with a recipe for each model's server.",
                )
            )
        options.append(
            click.option(
                "--model-server",
                metavar="URL",
                help=f"Measure: server with the standalone API.  [default: {MODEL_SERVER}]",
            )
        )
        for option in options:
            function = option(function)
        return function

    return add


def require_measure(measures: bool, how: str, **given: object) -> None:
    """Raise UserError for options of measured runs that are given for another run; `how` says what would measure."""
    for name, value in given.items():
        if not measures and value is not None:
            raise UserError(f"--{name.replace('_', '-')}: is for measured runs. Add {how}, or leave it out.")


def measured(
    system: Path | None,
    requests: Path,
    policy: str,
    *,
    gpus: int,
    arrivals: Literal["all-at-zero", "timestamps"],
    cold_load: str,
    model_server: str | None,
    limit: str | None,
    call_limit: str | None,
    servers: Path | None = None,
) -> "MeasuredSimulation":
    """Measure the requests of two files. Raises UserError for wrong options and files, and where no server is.

    A signal ends all servers that were started, and exits.
    """
    from seamark.trials.load_lock import exclusive_run
    from seamark.trials.simulation.measured.measured_run import measured_simulation, measured_work

    if servers is not None and model_server is not None:
        raise UserError("--servers and --model-server: two places for the same models. Give one of them.")
    limit_s, call_limit_s = _span("--limit", limit or LIMIT), _span("--call-limit", call_limit or CALL_LIMIT)
    work = measured_work(
        system, requests, gpus=gpus, arrivals=arrivals, cold_load="free" if cold_load == "free" else "charged"
    )
    called = _servers(servers, model_server or MODEL_SERVER, work.models, work.used)
    console = terminal(stderr=True)
    try:
        with (
            exit_on_signals(signal.SIGTERM, signal.SIGHUP, signal.SIGINT),
            console.status("models are prepared") as line,
            exclusive_run(Path.cwd(), lambda holder: line.update(f"waits for another load on this node: {holder}")),
        ):
            line.update("models are prepared")
            return measured_simulation(
                work,
                policy,
                called,
                limit_s=limit_s,
                call_limit_s=call_limit_s,
                on_begin=warn_of_machine,
                on_progress=lambda done, running: line.update(
                    f"{done:,} of {work.work.nodes:,} nodes done, {running} running"
                ),
            )
    except SystemExit:
        click.echo("Stopped before the end: all servers that were started have ended, no log was written.", err=True)
        raise


def tell_failures(run: "MeasuredSimulation") -> None:
    """Print on standard error why executions failed, each reason once."""
    names = run.measured.work.name_of
    shown: set[str] = set()
    for execution, reason in sorted(run.reasons.items()):
        if reason not in shown:
            shown.add(reason)
            request, node = names(int(run.measured.node[execution]))
            line = f"{request.id}/{node}: {run.measured.outcome[execution]}: {reason}"
            click.echo(redacted_text(line), err=True)


def _servers(file: Path | None, url: str, models: tuple[str, ...], used: tuple[str, ...]) -> "ModelServers":
    if file is None:
        from seamark.trials.simulation.measured.standalone import StandaloneServers

        return StandaloneServers(url)
    from seamark.config.model_servers import read_model_servers
    from seamark.trials.simulation.measured.served_models import served_models
    from seamark.trials.simulation.measured.slot_servers import SlotServers

    found = read_model_servers(file, models, used)
    return SlotServers(served_models(Path.cwd(), found, file))


def _span(option: str, text: str) -> float:
    try:
        return duration_s(text)
    except (ValueError, OverflowError):
        raise UserError(f"{option} {text}: not a duration. Give one as {DURATION_FORMS}.") from None
