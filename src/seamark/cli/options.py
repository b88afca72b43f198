"""The options that several verbs share. Nothing else lives here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from seamark.planning.study import DEFAULT_SCENARIO, Study
from seamark.storage.paths import require_folder

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def scenario_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """-c FILE and --site NAME."""
    function = click.option(
        "--site", metavar="NAME", help="Machine to run on: a file of config/sites. Default: the scenario's, or local."
    )(function)
    return click.option(
        "-c",
        "--config",
        "scenario",
        metavar="FILE",
        default=DEFAULT_SCENARIO,
        show_default=True,
        type=click.Path(),
        help="Scenario to work on.",
    )(function)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--json, for machines."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(function)


def measure_anew_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--measure-anew, for results of another server or configuration."""
    return click.option(
        "--measure-anew",
        is_flag=True,
        help="Measure trials of another server or configuration again; `attempts` keeps the old files.",
    )(function)


def open_study(scenario: str, site: str | None) -> Study:
    """Read the study in the working folder. Raises UserError also where results cannot lie."""
    study = Study.at(Path.cwd(), scenario=scenario, site=site)
    require_folder(study.folder(study.scenario.name).root)
    return study
