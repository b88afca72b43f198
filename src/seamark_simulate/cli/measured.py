"""What `bench simulate --execution measure` and `bench baseline --simulate true` share: options, and the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from seamark.cli.options import duration_s, option
from seamark.cli.output import ended_by_signals, terminal, warn_of_machine
from seamark.errors import UserError
from seamark.storage.redaction import redacted_text

if TYPE_CHECKING:
    from seamark_simulate.trials.measured.measured_run import MeasuredSimulation
    from seamark_simulate.trials.measured.model_servers import ModelServers
    from seamark_simulate.trials.quick_simulation import QuickSimulation

MODEL_SERVER = "http://localhost:8000"
LIMIT, CALL_LIMIT = "1h", "10m"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The GPUs, files and requests of a simulation."""

    gpus: int | None = option(type=click.IntRange(1, 100_000), help="Number of GPUs. Or give --machine.")
    system: Path | None = option("--config", help="Models and workflows. Some other formats bring their own.")
    requests: Path = option(
        required=True, help="Requests to the workflows. Also WfCommons, SWF, traces of tokens, samples.parquet."
    )
    cold_load: Literal["charged", "free"] = option(
        default="charged", help="Whether the first model of an empty GPU takes its load time."
    )


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """Options of measured runs alone, None where they are not given."""

    model_server: str | None = option(
        metavar="URL", help=f"Measure: server with the standalone API.  [default: {MODEL_SERVER}]"
    )
    servers: Path | None = option(help="Measure: file with a recipe for each model's server.")
    call_limit: str | None = option(metavar="SPAN", help=f"Measure: time limit of a call.  [default: {CALL_LIMIT}]")
    limit: str | None = option(metavar="SPAN", help=f"Measure: time limit of the whole run.  [default: {LIMIT}]")

    def require(self, measures: bool, how: str) -> None:
        """Raise UserError for options that are given for another run; `how` says what would measure."""
        for name, value in vars(self).items():
            if not measures and value is not None:
                raise UserError(f"--{name.replace('_', '-')}: is for measured runs. Add {how}, or leave it out.")


def measured(
    inputs: Inputs, policy: str, arrivals: Literal["all-at-zero", "timestamps"], asked: MeasureOptions
) -> "MeasuredSimulation":
    """Measure the requests of two files. Raises UserError for wrong options and files, and where no server is.

    A signal ends all servers that were started, and exits.
    """
    from seamark.trials.load_lock import exclusive_run
    from seamark_simulate.config.model_servers import read_model_servers
    from seamark_simulate.trials.measured.measured_run import measured_simulation, measured_work
    from seamark_simulate.trials.measured.served_models import served_models
    from seamark_simulate.trials.measured.slot_servers import SlotServers
    from seamark_simulate.trials.measured.standalone import StandaloneServers

    if asked.servers is not None and asked.model_server is not None:
        raise UserError("--servers and --model-server: two places for the same models. Give one of them.")
    limit_s = duration_s("--limit", asked.limit or LIMIT)
    call_limit_s = duration_s("--call-limit", asked.call_limit or CALL_LIMIT)
    work = measured_work(
        inputs.system, inputs.requests, gpus=inputs.gpus or 0, arrivals=arrivals, cold_load=inputs.cold_load
    )
    if asked.servers is None:
        called: ModelServers = StandaloneServers(asked.model_server or MODEL_SERVER)
    else:
        servers = read_model_servers(asked.servers, work.models, work.used)
        called = SlotServers(served_models(Path.cwd(), servers, asked.servers))
    console = terminal(stderr=True)
    with (
        ended_by_signals(": all servers that were started have ended, no log was written."),
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


def tell_failures(run: "QuickSimulation") -> int:
    """Print on standard error why executions failed, each reason once; return the exit code."""
    names = run.schedule.work.name_of
    shown: set[str] = set()
    for execution, reason in sorted((run.reasons or {}).items()):
        if reason not in shown:
            shown.add(reason)
            request, node = names(int(run.schedule.node[execution]))
            line = f"{request.id}/{node}: {run.schedule.outcome[execution]}: {reason}"
            click.echo(redacted_text(line), err=True)
    return 1 if run.failed else 0
