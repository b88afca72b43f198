"""bench colocate: the pipelines of one file as a scenario, measured at once."""

import json
from pathlib import Path
from typing import Any

import click
import yaml

from seamark.cli.options import StudyOptions, scenario_site_option
from seamark.cli.submit import command as submit
from seamark.config.yaml_source import shown
from seamark.errors import Mistake, SiteError, UserError
from seamark.planning.study_paths import missing_here
from seamark.storage.codec import encode
from seamark.storage.documents import write_text
from seamark_pipelines.config.read import read_pipelines, slug_of
from seamark_pipelines.drivers.needs import lacking_of
from seamark_pipelines.drivers.pipeline import drawing
from seamark_pipelines.flow.schedulers import OfflineLoadScheduler, generates
from seamark_pipelines.model.graph import PipelineFile

GENERATED = Path(".seamark", "colocate")


@click.command("colocate")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@scenario_site_option
@click.option("-n", "--dry-run", is_flag=True, help="Show graphs and scenario, and measure nothing.")
@click.option("-p", "number", type=int, metavar="N", help="The pipeline N of the file alone, counted from 0.")
@click.option("--alone", is_flag=True, help="Measure each pipeline alone as well.")
@click.option("--pairs", is_flag=True, help="Measure each pair of pipelines as well.")
@click.option(
    "--serialize", type=click.Choice(["true", "false"]), help="Whether a query waits for the end of the one before."
)
@click.option("--label", metavar="TEXT", help="Name of the scenario. Default: that in the file.")
@click.option("--repetitions", type=click.IntRange(1, 1000), default=1, show_default=True, help="Repetitions.")
@click.option(
    "--predict", metavar="RESULTS", help="Measure nothing: predict pairs from a scenario or a folder of results."
)
@click.option("--json", "as_json", is_flag=True, help="Print predictions as JSON.")
@click.option("-e", "experiment", metavar="ID", help="Has no effect: results are kept by scenario.")
def command(
    file: Path | None,
    site: str | None,
    dry_run: bool,
    number: int | None,
    alone: bool,
    pairs: bool,
    serialize: str | None,
    label: str | None,
    repetitions: int,
    predict: str | None,
    as_json: bool,
    experiment: str | None,
) -> Any:
    """Measure the pipelines of FILE at the same time, or predict what pairs of parties would cost each other.

    The scenario that this makes lies in .seamark/colocate; `bench report -c` and other verbs take it.

    \b
    Examples:
      bench colocate pipeline_configs/overhead.yml
      bench colocate pipeline_configs/overhead.yml --alone --repetitions 5
      bench colocate pipeline_configs/overhead.yml -n
      bench colocate --predict results/my_neighbours
    """
    if (predict is None) == (file is None):
        raise UserError("Name a pipeline file, or with --predict a scenario or a folder of results.")
    given = {
        "-n": dry_run,
        "-p": number is not None,
        "--alone": alone,
        "--pairs": pairs,
        "--label": label is not None,
    }
    given |= {"--serialize": serialize is not None, "--repetitions": repetitions > 1}
    if predict is None:
        given = {"--json": as_json}
    if unused := [name for name, is_given in given.items() if is_given]:
        raise UserError(
            f"{unused[0]} has no meaning {'without' if predict is None else 'with'} --predict. Leave it out."
        )
    if predict is not None:
        return _predict(predict, site, as_json=as_json)
    assert file is not None
    found = read_pipelines(file)
    if number is not None and not 0 <= number < len(found.pipelines):
        text = f"there is no pipeline {number} in {shown(file)}: 0 to {len(found.pipelines) - 1}."
        raise UserError(Mistake(code="out_of_limits", path="-p", text=text))
    scenario = scenario_of(
        found,
        file,
        number=number,
        sets=(*(["alone"] if alone else []), *(["pairs"] if pairs else []), "all"),
        serialize=None if serialize is None else serialize == "true",
        name=slug_of(label) if label else found.slug,
        repetitions=repetitions,
    )
    path, text = GENERATED / f"{scenario['scenario']}.yaml", yaml_of(scenario)
    for note in notes_of(found, experiment):
        click.echo(f"{shown(file)}: {note}", err=True)
    if dry_run:
        for model in found.pipelines:
            click.echo(drawing(model))
        click.echo(f"# {path}\n{text}", nl=False)
        for model in found.pipelines:
            for line in lacking_of(model):
                click.echo(f"{shown(file)}: {line}", err=True)
        return 0
    return measured(path, text, site)


def yaml_of(scenario: dict[str, Any]) -> str:
    """Return a scenario as the text of its file."""
    return yaml.safe_dump(scenario, sort_keys=False, allow_unicode=True, width=118)


def measured(path: Path, text: str, site: str | None) -> Any:
    """Write the file of a scenario and measure it; return the exit code. Raises SiteError for what is not here."""
    write_text(path, text)
    if missing := missing_here(StudyOptions(scenario=str(path), site=site, lanes={}).open()):
        raise SiteError(*missing)
    click.echo(f"Scenario: {path}", err=True)
    return submit.callback(  # type: ignore[misc]
        scenario=str(path),
        site=site,
        as_json=False,
        dry_run=False,
        strict=False,
        measure_anew=False,
        snakemake_options=(),
    )


def _predict(name: str, site: str | None, *, as_json: bool) -> None:
    """Print the predicted slowdown of each pair of parties."""
    from seamark.housekeeping.compared_results import results_named
    from seamark.report.slowdown_prediction import prediction_lines, predictions_of
    from seamark.report.source import read_results

    folder = results_named(Path.cwd(), name, site).folder
    if not folder.summary.exists():
        raise UserError(f"{name}: no summary yet. Run `bench submit` to its end, or `bench collect`.")
    found = predictions_of(read_results(folder.root))
    if not found.pairs:
        raise UserError(f"{name}: no scenario with 'sets' of two parties or more was measured there.")
    click.echo(json.dumps(encode(found), indent=1) if as_json else "\n".join(prediction_lines(found)))


def notes_of(file: PipelineFile, experiment: str | None) -> list[str]:
    """Return what is not done as a reader of the file might expect, a line each."""
    notes = [f"the key '{key}' is read by nothing (first in {place})." for key, place in file.unread.items()]
    notes += file.notes
    for model in file.pipelines:
        if model.loadgen.component.endswith(OfflineLoadScheduler.__name__) and "rate" in model.loadgen.config:
            notes.append(f"'{model.name}' sends one query at a time, so its rate has no effect.")
        if generates(model.loadgen.component, Path.cwd()):
            notes.append(f"'{model.name}' has a scheduler with `generate`: how late its queries are is unknown.")
        if model.slug != slug_of(model.name):
            notes.append(f"two pipelines have the name '{model.name}': the second is '{model.slug}' in results.")
    if experiment is not None:
        notes.append("-e has no effect: results are kept by scenario.")
    return notes


def scenario_of(
    file: PipelineFile,
    path: Path,
    *,
    name: str,
    number: int | None = None,
    sets: tuple[str, ...] = ("all",),
    serialize: bool | None = None,
    repetitions: int = 1,
) -> dict[str, Any]:
    """Return the scenario of a file's pipelines: of one, or of several in these `sets`."""
    chosen = file.pipelines if number is None else file.pipelines[number : number + 1]
    loads: dict[str, dict[str, Any]] = {}
    for model in chosen:
        load: dict[str, Any] = {"service": "pipeline", "graph": str(path)}
        if len(file.pipelines) > 1:
            load["pipeline"] = model.name
        if serialize is not None:
            load["serialize_queries"] = serialize
        loads[model.slug if model.slug[0].isalpha() else f"p_{model.slug}"[:32]] = load
    workload: dict[str, Any]
    if len(loads) == 1:
        workload = next(iter(loads.values()))
    else:
        workload = {"sets": list(sets), "parties": loads}
    asked = {"compare": {"family": ["sets"]}} if len(sets) > 1 and repetitions > 1 else {}
    return {"scenario": name, "repetitions": repetitions, **asked, "workload": workload}
