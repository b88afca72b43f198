"""bench fit: models of servers from measured trials, with what they would have predicted of trials left out."""

from pathlib import Path

import click

from seamark.cli.options import names_argument, output_file, output_option, require_unread, scenario_site_option


@click.command("fit")
@names_argument("[SCENARIO]...", needed="a scenario or a folder of results")
@output_option("file", "File of the models (JSON).", required=True)
@click.option(
    "--servers",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Servers behind the queue. Default: the most likely number.",
)
@click.option("--seed", type=click.IntRange(0), default=1, help="Seed of resampling.")
@scenario_site_option
def command(names: tuple[str, ...], file: Path, servers: int | None, seed: int, site: str | None) -> None:
    """Fit a queueing model to each server that open loads were measured on, and say how wrong it is.

    A model is equal servers behind one queue, first come, first served, with a distribution of service times. Every
    treatment is left out in turn and predicted from the others. Closed loops make a model where their numbers of
    tokens are known. Trials that were saturated or limited by the client are left out and listed.

    \b
    Examples:
      bench fit -c fit_known -o known.fit.json
      bench fit -c config/scenarios/fit_known.yaml -c results/other --servers 4 -o both.fit.json
    """
    from seamark.housekeeping.compared_results import results_named
    from seamark.storage.documents import write
    from seamark_simulate.report.fitted import fitted_lines
    from seamark_simulate.trials.fit_inputs import fit_inputs
    from seamark_simulate.trials.fitting import fitted_models

    output_file(file, "-o", "models.fit.json")
    results = [results_named(Path.cwd(), name, site) for name in names]
    for result in results:
        require_unread(file, "-o", *result.folder.inputs())
    inputs = fit_inputs((result.plan, result.folder) for result in results)
    models = fitted_models(inputs, servers=servers, seed=seed)
    write(file, models)
    click.echo("\n".join([*fitted_lines(models), f"Models: {file}"]))
