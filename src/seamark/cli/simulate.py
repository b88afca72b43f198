"""bench simulate: workflows on simulated GPUs under one or several policies, from files."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from seamark.cli.measured import OPTIONS, measure_options, measured, require_measure, tell_failures
from seamark.cli.options import output_file, require_unread, simulation_options
from seamark.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from seamark.simulation.machine import Machine

EXECUTION_LOG = "execution_log.json"
TRACE = "trace.json.gz"


@click.command("simulate")
@simulation_options(own_requests=False)
@click.option(
    "--machine",
    "machine_file",
    type=click.Path(path_type=Path),
    help="Machine file in place of --gpus: hosts, unlike GPUs, failures.",
)
@click.option(
    "--execution",
    type=click.Choice(["estimate", "measure"]),
    default="estimate",
    show_default=True,
    help="Estimated times of models, or calls of real ones.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["all-at-zero", "timestamps"]),
    default="all-at-zero",
    show_default=True,
    help="When requests arrive.",
)
@click.option(
    "--policy",
    "policies",
    default="baseline",
    show_default=True,
    metavar="NAME[,NAME]",
    help="Placement policies, or 'all'.",
)
@click.option("--draw", is_flag=True, help="Draw missing node times, by mean and deviation.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the draws.")
@click.option(
    "--blocks",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="With --draw: this many seeds from --seed on; each policy is compared with the first.",
)
@click.option(
    "--log",
    type=click.Path(),
    default=EXECUTION_LOG,
    show_default=True,
    help="Execution log. Several policies write LOG-POLICY.json.",
)
@click.option(
    "--trace",
    type=click.Path(),
    metavar="FILE",
    help="Write the schedule for ui.perfetto.dev, such as trace.json.gz.",
)
@measure_options(own_servers=True)
def command(
    gpus: int | None,
    machine_file: Path | None,
    system: Path | None,
    requests: Path,
    execution: str,
    policies: str,
    log: str,
    trace: str | None,
    **settings: Any,
) -> int:
    """Run workflow requests on simulated GPUs, and print events and figures, or a table of policies.

    Every policy sees the same requests and the same times. `bench check` checks the execution logs.

    With --execution measure the nodes are called on real servers: started from --servers, or one server with the
    standalone API. Exit code 1 if a node failed.

    \b
    Examples:
      bench simulate --gpus 4 --config system_config.yaml --requests workflow_requests.yaml
      bench simulate --gpus 2 --arrivals timestamps --policy baseline,easy,heft --config s.yaml --requests r.yaml
      bench simulate --machine machine_two_hosts.yaml --policy all --config s.yaml --requests r.yaml
      bench simulate --gpus 128 --arrivals timestamps --policy easy,conservative --requests cluster.swf
      bench simulate --gpus 2 --draw --blocks 10 --policy baseline,greedy --config s.yaml --requests r.yaml
      bench simulate --gpus 2 --execution measure --servers servers.yaml --config s.yaml --requests r.yaml
    """
    from seamark.simulation.log_text import metrics_block, parts_of, switch_lines
    from seamark.storage.documents import write_rows
    from seamark.trials.simulation.policy_comparison import compare_policies
    from seamark.trials.simulation.quick_simulation import policy_table, simulated_blocks

    asked = {name: settings[name] for name in OPTIONS}
    require_measure(execution == "measure", "--execution measure", **asked)
    names, blocks, seed = _policies(policies), settings["blocks"], settings["seed"]
    machine = _machine(gpus, machine_file, settings["cold_load"])
    if blocks > 1 and not ((settings["draw"] or machine.may_fail) and len(names) > 1):
        raise UserError("--blocks: needs --draw, else all blocks are the same, and two policies or more to compare.")
    path, traced = _file(log, "--log", EXECUTION_LOG), None if trace is None else _file(trace, "--trace", TRACE)
    if traced is not None and traced.resolve() == path.resolve():
        raise UserError(f"--trace {trace}: is the file of --log. Name another, such as {TRACE}.")
    for name in names if len(names) > 1 else ():
        for file, option in ((path, "--log"), (traced, "--trace")):
            if file is not None:
                require_unread(_of_policy(file, name), option)
    arrivals: Literal["all-at-zero", "timestamps"] = settings["arrivals"]
    if execution == "measure":
        given = {
            "draw": settings["draw"],
            f"policy {policies}": len(names) > 1,
            "machine": machine_file is not None,
            "trace": traced is not None,
        }
        for option in (name for name, wrong in given.items() if wrong):
            raise UserError(
                f"--{option}: is for estimates. Measure one policy at a time, on --gpus, without drawn times."
            )
        cold_load = settings["cold_load"]
        return _measure(
            system, requests, names[0], path, gpus=machine.gpus, arrivals=arrivals, cold_load=cold_load, **asked
        )
    seeds = range(seed, seed + blocks) if settings["draw"] or machine.may_fail else None
    simulated = simulated_blocks(system, requests, names, machine, arrivals, seeds, draw_times=settings["draw"])
    runs = next(simulated)
    for note in runs[0].notes:
        click.echo(note, err=True)
    for run in runs:
        write_rows(path if len(runs) == 1 else _of_policy(path, run.policy), run.log, "executions")
        if traced is not None:
            from seamark.trials.simulation.quick_trace import write_trace

            write_trace(run, traced if len(runs) == 1 else _of_policy(traced, run.policy))
    if len(runs) == 1:
        block = metrics_block(runs[0].figures, path.name, switch_lines(runs[0].figures))
        traces = [] if traced is None else [f"Trace: {traced}. Open it at ui.perfetto.dev; nothing is uploaded."]
        for part in parts_of(chain(runs[0].lines, block, traces)):
            click.echo(part)
        return 0
    written = f"Execution logs: {path.with_name(path.stem)}-POLICY{path.suffix}"
    written += "" if traced is None else f"; traces: {_of_policy(traced, 'POLICY')}"
    if blocks == 1:
        click.echo("\n".join([*policy_table(runs), written]))
        return 0
    figures = {run.policy: [run.figures] for run in runs}
    for others in simulated:
        for run in others:
            figures[run.policy].append(run.figures)
    compared = compare_policies(figures, "makespan" if arrivals == "all-at-zero" else "mean completion")
    click.echo("\n".join([*compared.lines, f"{written}, of the first block"]))
    return 0


def _measure(system: Path | None, requests: Path, policy: str, path: Path, **asked: Any) -> int:
    """Measure, write the execution log, and print events, figures and the estimate beside; return the exit code."""
    from seamark.simulation.log_text import metrics_block, switch_lines
    from seamark.storage.documents import write_rows
    from seamark.trials.simulation.measured.beside import beside_lines

    run = measured(system, requests, policy, **asked)
    for note in run.notes:
        click.echo(note, err=True)
    *block, written = metrics_block(run.figures, path.name, [*switch_lines(run.figures), *beside_lines(run)])
    click.echo("\n".join([*run.lines, *block]))  # first: a disk that is full costs the log, not the figures
    write_rows(path, run.log, "executions")
    click.echo(written)
    tell_failures(run)
    return 1 if run.failed else 0


def _machine(gpus: int | None, path: Path | None, cold_load: Literal["charged", "free"]) -> "Machine":
    """Return the machine of --gpus or --machine. Raises UserError for both, for neither, and for a wrong file."""
    from seamark.config.machine_files import read_machine
    from seamark.simulation.machine import Machine

    if (gpus is None) == (path is None):
        each = "are both given" if path else "are both missing"
        raise UserError(f"--gpus and --machine {each}. Give a number of GPUs, or a file of a machine.")
    return read_machine(path, cold_load) if path is not None else Machine(gpus=gpus or 0, cold_load=cold_load)


def _file(given: str, option: str, example: str) -> Path:
    """Return where to write a log or a trace. Raises UserError where no file can be."""
    path = output_file(given, option, example)
    if not path.name or (path.exists() and not path.is_file()):
        raise UserError(f"{option} {given}: is no file. Name a file, as {example}.")
    return path


def _of_policy(path: Path, policy: str) -> Path:
    """Return the path of one of several policies: `trace-easy.json.gz` of `trace.json.gz`."""
    stem = path.name.removesuffix("".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:]))
    return path.with_name(f"{stem}-{policy}{path.name.removeprefix(stem)}")


def _policies(text: str) -> list[str]:
    """Return the policies of a list. Raises UserError for an unknown one, and for one that is named twice."""
    from seamark.simulation.policies.table import POLICIES

    if text == "all":
        return list(POLICIES)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in POLICIES:
            guess = did_you_mean(name, POLICIES) or f" Known: {', '.join(POLICIES)}."
            raise UserError(f"--policy {name or repr(text)}: no such policy.{guess}")
        if names.count(name) > 1:
            raise UserError(f"--policy {name}: named twice. Name each policy once.")
    return names
