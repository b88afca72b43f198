"""bench fit: models of servers from measured trials, with what they would have predicted of trials left out."""

from dataclasses import dataclass
from pathlib import Path

import click

from seamark.cli.options import (
    names_argument,
    option,
    options,
    output_file,
    require_unread,
    scenario_site_option,
)


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Where models are written, and how they are fitted."""

    output: Path = option("-o", "--output", required=True, metavar="FILE", help="File of the models (JSON).")
    servers: int | None = option(
        type=click.IntRange(1, 4096), metavar="N", help="Servers behind the queue. Default: the most likely number."
    )
    seed: int = option(type=click.IntRange(0), default=1, help="Seed of resampling.")


@click.command("fit")
@names_argument("[SCENARIO]...", needed="a scenario or a folder of results")
@options(FitOptions)
@scenario_site_option
def command(names: tuple[str, ...], asked: FitOptions, site: str | None) -> None:
    """Fit a queueing model to each server that open loads were measured on, and say how wrong it is.

    A model is equal servers behind one queue, first come, first served, with a distribution of service times. Every
    treatment is left out in turn and predicted from the others. Trials that were saturated, closed loops, or limited
    by the client are left out and listed.

    \b
    Examples:
      bench fit -c fit_known -o known.fit.json
      bench fit -c config/scenarios/fit_known.yaml -c results/other --servers 4 -o both.fit.json
    """
    from seamark.housekeeping.compared_results import results_named
    from seamark.report.fitted import fitted_lines
    from seamark.storage.documents import write
    from seamark.trials.simulation.fit_inputs import fit_inputs
    from seamark.trials.simulation.fitting import fitted_models

    output_file(asked.output, "-o", "models.fit.json")
    results = [results_named(Path.cwd(), name, site) for name in names]
    for each in results:
        require_unread(asked.output, "-o", *each.folder.inputs())
    inputs = fit_inputs((each.plan, each.folder) for each in results)
    found = fitted_models(inputs, servers=asked.servers, seed=asked.seed)
    write(asked.output, found)
    click.echo("\n".join([*fitted_lines(found), f"Models: {asked.output}"]))
