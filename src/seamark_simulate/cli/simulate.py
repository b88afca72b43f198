"""bench simulate: workflows on simulated GPUs under one or several policies, from files."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from seamark.cli.options import option, options, output_file, require_unread
from seamark.errors import UserError, did_you_mean
from seamark_simulate.cli.measured import Inputs, MeasureOptions, measured, tell_failures

if TYPE_CHECKING:
    from seamark_simulate.simulation.machine import Machine

EXECUTION_LOG = "execution_log.json"
TRACE = "trace.json.gz"


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(Inputs):
    """A simulation: its inputs, policies and draws, and the files that it writes."""

    machine: Path | None = option(help="Machine file in place of --gpus: hosts, unlike GPUs, failures.")
    execution: Literal["estimate", "measure"] = option(
        default="estimate", help="Estimated times of models, or calls of real ones."
    )
    arrivals: Literal["all-at-zero", "timestamps"] = option(default="all-at-zero", help="When requests arrive.")
    policy: str = option(default="baseline", metavar="NAME[,NAME]", help="Placement policies, or 'all'.")
    draw: bool = option(help="Draw missing node times, by mean and deviation.")
    seed: int = option(type=click.IntRange(0), default=1, help="Seed of the draws.")
    blocks: int = option(
        type=click.IntRange(1, 1000),
        default=1,
        help="With --draw or failures: this many seeds from --seed on; each policy is compared with the first.",
    )
    log: str = option(
        type=click.Path(), default=EXECUTION_LOG, help="Execution log. Several policies write LOG-POLICY.json."
    )
    trace: str | None = option(
        type=click.Path(), metavar="FILE", help="Write the schedule for ui.perfetto.dev, such as trace.json.gz."
    )


@click.command("simulate")
@options(SimulateOptions)
@options(MeasureOptions, "measure")
def command(asked: SimulateOptions, measure: MeasureOptions) -> int:
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
    from seamark.storage.documents import write_rows
    from seamark_simulate.simulation.log_text import metrics_block, parts_of, switch_lines
    from seamark_simulate.trials.policy_comparison import compare_policies
    from seamark_simulate.trials.quick_simulation import policy_table, simulated_blocks

    measure.require(asked.execution == "measure", "--execution measure")
    names, blocks, trace = _policies(asked.policy), asked.blocks, asked.trace
    machine = _machine(asked)
    if blocks > 1 and not ((asked.draw or machine.may_fail) and len(names) > 1):
        raise UserError("--blocks: needs --draw, else all blocks are the same, and two policies or more to compare.")
    path, traced = _file(asked.log, "--log", EXECUTION_LOG), None if trace is None else _file(trace, "--trace", TRACE)
    if traced is not None and traced.resolve() == path.resolve():
        raise UserError(f"--trace {trace}: is the file of --log. Name another, such as {TRACE}.")
    for name in names if len(names) > 1 else ():
        for file, written_by in ((path, "--log"), (traced, "--trace")):
            if file is not None:
                require_unread(_of_policy(file, name), written_by)
    if asked.execution == "measure":
        given = {
            "draw": asked.draw,
            f"policy {asked.policy}": len(names) > 1,
            "machine": asked.machine is not None,
            "trace": traced is not None,
        }
        for name in (name for name, wrong in given.items() if wrong):
            raise UserError(
                f"--{name}: is for estimates. Measure one policy at a time, on --gpus, without drawn times."
            )
        return _measure(asked, measure, names[0], path)
    seeds = range(asked.seed, asked.seed + blocks) if asked.draw or machine.may_fail else None
    simulated = simulated_blocks(
        asked.system, asked.requests, names, machine, asked.arrivals, seeds, draw_times=asked.draw
    )
    runs = next(simulated)
    for note in runs[0].notes:
        click.echo(note, err=True)
    for run in runs:
        write_rows(path if len(runs) == 1 else _of_policy(path, run.policy), run.log, "executions")
        if traced is not None:
            from seamark_simulate.trials.quick_simulation import write_trace

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
    compared = compare_policies(figures, "makespan" if asked.arrivals == "all-at-zero" else "mean completion")
    click.echo("\n".join([*compared.lines, f"{written}, of the first block"]))
    return 0


def _measure(asked: SimulateOptions, measure: MeasureOptions, policy: str, path: Path) -> int:
    """Measure, write the execution log, and print events, figures and the estimate beside; return the exit code."""
    from seamark.storage.documents import write_rows
    from seamark_simulate.simulation.log_text import metrics_block, switch_lines
    from seamark_simulate.trials.measured.measured_run import beside_lines

    run = measured(asked, policy, asked.arrivals, measure)
    for note in run.notes:
        click.echo(note, err=True)
    *block, written = metrics_block(run.figures, path.name, [*switch_lines(run.figures), *beside_lines(run)])
    click.echo("\n".join([*run.lines, *block]))  # first: a disk that is full costs the log, not the figures
    write_rows(path, run.log, "executions")
    click.echo(written)
    return tell_failures(run)


def _machine(asked: SimulateOptions) -> "Machine":
    """Return the machine of --gpus or --machine. Raises UserError for both, for neither, and for a wrong file."""
    from seamark_simulate.config.machine_files import read_machine
    from seamark_simulate.simulation.machine import Machine

    path = asked.machine
    if (asked.gpus is None) == (path is None):
        each = "are both given" if path else "are both missing"
        raise UserError(f"--gpus and --machine {each}. Give a number of GPUs, or a file of a machine.")
    if path is not None:
        return read_machine(path, asked.cold_load)
    return Machine(gpus=asked.gpus or 0, cold_load=asked.cold_load)


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
    from seamark_simulate.simulation.policies.table import POLICIES

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
