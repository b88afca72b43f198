"""bench simulate: workflows on simulated GPUs under one or several policies, from files."""

from pathlib import Path
from typing import Any, Literal

import click

from seamark.cli.load_ends import output_file
from seamark.errors import UserError, did_you_mean

EXECUTION_LOG = "execution_log.json"


@click.command("simulate")
@click.option("--gpus", type=click.IntRange(1, 100_000), required=True, help="Number of GPUs, with the ids 0 to N-1.")
@click.option("--config", "system", type=click.Path(path_type=Path), required=True, help="Models and workflows.")
@click.option("--requests", type=click.Path(path_type=Path), required=True, help="Requests to the workflows.")
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
@click.option(
    "--cold-load",
    type=click.Choice(["charged", "free"]),
    default="charged",
    show_default=True,
    help="Whether the first model of an empty GPU takes its load time.",
)
@click.option("--draw", is_flag=True, help="Draw node times that the requests do not give, by mean and deviation.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the draws.")
@click.option(
    "--log",
    type=click.Path(),
    default=EXECUTION_LOG,
    show_default=True,
    help="Where to write the execution log. Of several policies each has a file of its own: LOG-POLICY.json.",
)
def command(
    gpus: int, system: Path, requests: Path, execution: str, policies: str, log: str, **settings: Any
) -> None:
    """Run workflow requests on simulated GPUs, and print events and figures, or a table of policies.

    Every policy sees the same requests and the same times. `bench check` checks the execution logs.

    \b
    Examples:
      bench simulate --gpus 4 --config system_config.yaml --requests workflow_requests.yaml
      bench simulate --gpus 2 --arrivals timestamps --policy baseline,easy,heft --config s.yaml --requests r.yaml
    """
    from seamark.simulation.log_text import metrics_block, switch_lines
    from seamark.storage.paths import write
    from seamark.trials.simulation.quick_simulation import policy_table, quick_simulations

    if execution == "measure":
        raise UserError("--execution measure: calls of real models are not built yet. Use '--execution estimate'.")
    names = _policies(policies)
    path = output_file(log, "--log", EXECUTION_LOG)
    assert path is not None
    if path.exists() and not path.is_file():
        raise UserError(f"--log {log}: is no file. Name a file, as {EXECUTION_LOG}.")
    arrivals: Literal["all-at-zero", "timestamps"] = settings["arrivals"]
    runs = quick_simulations(
        system,
        requests,
        names,
        gpus=gpus,
        arrivals=arrivals,
        cold_load=settings["cold_load"],
        draw_seed=settings["seed"] if settings["draw"] else None,
    )
    for run in runs:
        write(path if len(runs) == 1 else path.with_name(f"{path.stem}-{run.policy}{path.suffix}"), run.log)
    if len(runs) == 1:
        *block, written = metrics_block(runs[0].figures, path.name)
        click.echo("\n".join([*runs[0].lines, *block, *switch_lines(runs[0].figures), written]))
    else:
        click.echo(
            "\n".join([*policy_table(runs), f"Execution logs: {path.with_name(path.stem)}-POLICY{path.suffix}"])
        )


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
