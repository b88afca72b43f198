"""bench simulate: workflows on simulated GPUs under one or several policies, from files."""

from pathlib import Path
from typing import Any, Literal

import click

from seamark.cli.load_ends import output_file
from seamark.cli.options import simulation_options
from seamark.errors import UserError, did_you_mean

EXECUTION_LOG = "execution_log.json"
TRACE = "trace.json.gz"


@click.command("simulate")
@simulation_options(own_requests=False)
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
    help="Placement policies; of several a table is printed. 'all' is every policy.",
)
@click.option("--draw", is_flag=True, help="Draw node times that the requests do not give, by mean and deviation.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the draws.")
@click.option(
    "--blocks",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="With --draw: run seeds from --seed on, and compare each policy with the first over these blocks.",
)
@click.option(
    "--log",
    type=click.Path(),
    default=EXECUTION_LOG,
    show_default=True,
    help="Where to write the execution log. Of several policies each has a file of its own: LOG-POLICY.json.",
)
@click.option(
    "--trace",
    type=click.Path(),
    metavar="FILE",
    help="Write the schedule for ui.perfetto.dev as well, such as trace.json.gz; without .gz not compressed.",
)
def command(
    gpus: int,
    system: Path | None,
    requests: Path,
    execution: str,
    policies: str,
    log: str,
    trace: str | None,
    **settings: Any,
) -> None:
    """Run workflow requests on simulated GPUs, and print events and figures, or a table of policies.

    Every policy sees the same requests and the same times. `bench check` checks the execution logs.

    \b
    Examples:
      bench simulate --gpus 4 --config system_config.yaml --requests workflow_requests.yaml
      bench simulate --gpus 2 --arrivals timestamps --policy baseline,easy,heft --config s.yaml --requests r.yaml
      bench simulate --gpus 128 --arrivals timestamps --policy easy,conservative --requests cluster.swf
      bench simulate --gpus 2 --draw --blocks 10 --policy baseline,greedy --config s.yaml --requests r.yaml
    """
    from seamark.simulation.log_text import metrics_block, switch_lines
    from seamark.simulation.machine import Machine
    from seamark.storage.paths import write
    from seamark.trials.simulation.policy_comparison import compare_policies
    from seamark.trials.simulation.quick_simulation import policy_table, simulated_blocks

    if execution == "measure":
        raise UserError("--execution measure: calls of real models are not built yet. Use '--execution estimate'.")
    names, blocks, seed = _policies(policies), settings["blocks"], settings["seed"]
    if blocks > 1 and not (settings["draw"] and len(names) > 1):
        raise UserError("--blocks: needs --draw, else all blocks are the same, and two policies or more to compare.")
    path, traced = _file(log, "--log", EXECUTION_LOG), None if trace is None else _file(trace, "--trace", TRACE)
    if traced is not None and traced.absolute() == path.absolute():
        raise UserError(f"--trace {trace}: is the file of --log. Name another, such as {TRACE}.")
    arrivals: Literal["all-at-zero", "timestamps"] = settings["arrivals"]
    machine = Machine(gpus=gpus, cold_load=settings["cold_load"])
    seeds = range(seed, seed + blocks) if settings["draw"] else None
    simulated = simulated_blocks(system, requests, names, machine, arrivals, seeds)
    runs = next(simulated)
    for note in runs[0].notes:
        click.echo(note, err=True)
    for run in runs:
        write(path if len(runs) == 1 else _of_policy(path, run.policy), run.log)
        if traced is not None:
            from seamark.trials.simulation.quick_trace import write_trace

            write_trace(run, traced if len(runs) == 1 else _of_policy(traced, run.policy))
    if len(runs) == 1:
        *block, written = metrics_block(runs[0].figures, path.name)
        traces = [] if traced is None else [f"Trace: {traced}. Open it at ui.perfetto.dev; nothing is uploaded."]
        click.echo("\n".join([*runs[0].lines, *block, *switch_lines(runs[0].figures), written, *traces]))
        return
    written = f"Execution logs: {path.with_name(path.stem)}-POLICY{path.suffix}"
    written += "" if traced is None else f"; traces: {_of_policy(traced, 'POLICY')}"
    if blocks == 1:
        click.echo("\n".join([*policy_table(runs), written]))
        return
    figures = {run.policy: [run.figures] for run in runs}
    for others in simulated:
        for run in others:
            figures[run.policy].append(run.figures)
    compared = compare_policies(figures, "makespan" if arrivals == "all-at-zero" else "mean completion")
    click.echo("\n".join([*compared.lines, f"{written}, of the first block"]))


def _file(given: str, option: str, example: str) -> Path:
    """Return where to write a log or a trace. Raises UserError where no file can be."""
    path = output_file(given, option, example)
    assert path is not None
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
