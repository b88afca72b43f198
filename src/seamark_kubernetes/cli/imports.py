"""bench import: experiments of other tools as scenarios."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from seamark.cli.options import output_file, output_option
from seamark.config.extends import load_merged
from seamark.config.forms.table import preset_files
from seamark.config.read import Recipes
from seamark.config.yaml_source import Mistakes, load, shown
from seamark.errors import Mistake, UserError
from seamark.patterns.table import load_settings_of
from seamark.planning.study import config_folder
from seamark_kubernetes.llmd.experiment import read_experiment
from seamark_kubernetes.llmd.scenario import SERVICE, scenario_of


@click.group("import")
def command() -> None:
    """Turn an experiment of another tool into a scenario.

    \b
    Examples:
      bench import llmd experiment.yaml
    """


@command.command("llmd")
@click.argument("file", type=click.Path(path_type=Path))
@output_option("output", "Scenario file, which must not exist. Default: standard output.")
def llmd(file: Path, output: Path | None) -> None:
    """Turn an experiment file of llm-d-benchmark into a scenario of the service vllm.

    Treatments of `setup` become deployments, treatments of `run` loads. What the scenario cannot have is listed on
    standard error, and in its first lines.

    \b
    Examples:
      bench import llmd experiment.yaml -o mine.yaml
      bench plan -c mine.yaml
    """
    mistakes = Mistakes()
    root = load(file, mistakes)
    mistakes.raise_any()
    assert root is not None, "a file that cannot be read leaves a mistake"
    folder = config_folder(Path.cwd(), "services")
    recipes = Recipes(folder)
    if SERVICE not in recipes:
        said = f"no recipe {SERVICE}.yaml, whose settings the scenario takes. Copy it from a study of `bench init`."
        raise UserError(Mistake(code="no_such_file", file=shown(folder), text=said))
    service = recipes[SERVICE]
    settings = {setting.name: setting for setting in (*service.settings, *load_settings_of(service))}

    def classes_of(profile: str) -> Mapping[str, Any] | None:
        path = preset_files(config_folder(Path.cwd(), "mixes")).get(profile)
        preset = load_merged(path, mistakes) if path else None
        return {key: item.plain for key, item in preset.items() if key != "name"} if preset else None

    text, notes = scenario_of(read_experiment(root, mistakes), settings, classes_of, mistakes)
    if output is None:
        click.echo(text, nl=False)
    else:
        target = output_file(output, "--output", "config/scenarios/NAME.yaml")
        if target.is_file():
            said = "is there already. Choose another name, or remove it."
            raise UserError(Mistake(code="conflict", file=shown(target), text=said))
        target.write_text(text, encoding="utf-8")
    for note in notes:
        click.echo(note, err=True)
