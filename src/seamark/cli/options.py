"""Options shared by several verbs, dataclasses of options, and the syntax of durations and shares."""

import json
import math
import re
import sys
import tempfile
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from seamark.dispatch.order import FORMS
from seamark.errors import Mistake, UserError
from seamark.model.plurals import counted
from seamark.planning.study import Study, scenarios_named
from seamark.storage.documents import require_folder

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
SHARE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(%?)")
DURATION_FORMS = "45s, 30m, 2h, 1d or 02:00:00"


def share_of(text: str) -> float | None:
    """Return the number of `5%` or `0.05`; None for another text."""
    match = SHARE.fullmatch(text)
    return float(match[1]) / (100 if match[2] else 1) if match and len(text) < 20 else None


class Finite(click.types.FloatParamType):
    """A finite number: `nan` compares with no limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


class FiniteRange(Finite, click.FloatRange):
    """A finite number within limits."""


Command = Callable[..., Any]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
site_option = click.option("--site", default="local", metavar="NAME", help="Site.")
scenario_site_option = click.option("--site", metavar="NAME", help="Site. Default: the scenario's, or local.")
strict_option = click.option(
    "--strict",
    is_flag=True,
    help="Exit code 1 if a trial failed or is INVALID, or an objective is not known to be met.",
)
measure_anew_option = click.option(
    "--measure-anew",
    is_flag=True,
    help="Measure trials of another server or configuration again; old files go to `attempts`.",
)


def option(*names: str, **settings: Any) -> Any:
    """Return a field of a dataclass of options, with names and settings as of `click.option`; see `options`."""
    return field(default=settings.get("default"), metadata={"names": names, **settings})


def options(
    form: type[Any], argument: str = "asked", *, without: Container[str] = ()
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option for each field of a dataclass, except `without`. The function has all of
    them in one argument, an instance of the dataclass.

    The name and the type of a field say what is not given: `most_gpus` is --most-gpus, a bool is a flag, a Literal a
    choice, and a tuple an option that can be repeated.
    """
    types = get_type_hints(form)
    declared = [entry for entry in fields(form) if entry.name not in without]

    def add(function: Command) -> Command:
        @wraps(function)
        def command(**given: Any) -> Any:
            return function(**{argument: form(**{entry.name: given.pop(entry.name) for entry in declared})}, **given)

        for entry in reversed(declared):
            settings = {**_of_type(types[entry.name]), **entry.metadata}
            names = settings.pop("names") or (f"--{entry.name.replace('_', '-')}",)
            command = click.option(*names, entry.name, **settings)(command)
        return command

    return add


def _of_type(kind: Any) -> dict[str, Any]:
    """Return the settings of an option for values of a type, or for one or None."""
    if NoneType in get_args(kind):
        [kind] = (argument for argument in get_args(kind) if argument is not NoneType)
    if get_origin(kind) is Literal:
        return {"type": click.Choice(get_args(kind))}
    if get_origin(kind) is tuple:
        return {"multiple": True}
    if kind is bool:
        return {"is_flag": True}
    return {"type": {Path: click.Path(path_type=Path), float: Finite()}.get(kind, kind)}


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """The scenario, the site and the lanes that a command line names: None and nothing for the default."""

    scenario: str | None
    site: str | None
    lanes: Mapping[str, object]
    """Those of `lane_options` that are given."""

    def open(self) -> Study:
        """Read the study in the working folder. Raises UserError also when the results folder cannot be used."""
        lanes = json.dumps(self.lanes) if self.lanes else ""
        study = Study.at(Path.cwd(), scenario=self.scenario, site=self.site, lanes=lanes)
        require_folder(study.folder(study.scenario.name).root)
        return study

    def open_any(self) -> Study:
        """Read the study; without a scenario, if none is named."""
        return Study.without_scenario(Path.cwd(), self.site) if self.scenario is None else self.open()


def scenario_option(function: Command) -> Command:
    """Add the argument SCENARIO, -c SCENARIO and --site NAME, as in `scenario_among`."""
    return click.argument("named", metavar="[SCENARIO]", nargs=-1)(scenario_among("named")(function))


def scenario_among(words: str) -> Callable[[Command], Command]:
    """Return a decorator that adds -c SCENARIO and --site NAME. Without -c the first of the arguments `words` names
    the scenario, unless it is an option or has the `--` of a trial.

    The function has both as `where`, with the values of `lane_options`. For the word see `scenario_file`.
    """

    def add(function: Command) -> Command:
        @wraps(function)
        def command(**given: Any) -> Any:
            rest = given.pop(words)
            word = rest[0] if rest and (given["scenario"] is None or words == "named") else "-"
            if not word.startswith("-") and ("--" not in word or word.endswith((".yaml", ".yml"))):
                if given["scenario"] is not None:
                    text = f"the scenario is given twice: {given['scenario']} and {rest[0]}. Give it once."
                    raise UserError(Mistake(code="written_twice", path="--config", text=text))
                given["scenario"], *rest = rest
            if words == "named" and rest:
                raise UserError(Mistake(code="unknown_name", path=str(rest[0]), text="is no argument of this verb."))
            lanes = {name: given.pop(name) for name in [*given] if name in LANES}
            chosen = {name: value for name, value in lanes.items() if value is not None}
            where = StudyOptions(scenario=given.pop("scenario"), site=given.pop("site"), lanes=chosen)
            return function(where=where, **given, **({} if words == "named" else {words: tuple(rest)}))

        return click.option("-c", "--config", "scenario", metavar="SCENARIO", help="Scenario: its name or file.")(
            scenario_site_option(command)
        )

    return add


def names_argument(metavar: str, *, most: int = sys.maxsize, needed: str = "") -> Callable[[Command], Command]:
    """Return a decorator that adds the argument `names` of at most so many words, and -c SCENARIO for the first of
    them. Where one is `needed`, that is what to name."""

    def add(function: Command) -> Command:
        @wraps(function)
        def command(**given: Any) -> Any:
            names = given["names"] = (*given.pop("config"), *given["names"])
            if len(names) > most or not all(name.strip() for name in names):
                limit = f"at most {counted(most, 'name')}" if most < sys.maxsize else "names"
                text = f"expected {limit}, none of them empty."
                raise UserError(Mistake(code="no_value", path="--config", text=text))
            if needed and not names:
                raise UserError(Mistake(code="missing", path="--config", text=f"name {needed}."))
            return function(**given)

        option = click.option("-c", "--config", multiple=True, metavar="SCENARIO", help="The same as the argument.")
        return click.argument("names", metavar=metavar, nargs=-1)(option(command))

    return add


LANES = {
    "parallel": click.option("--parallel", type=int, metavar="N", help="Lanes: deployments at a time. Default: 1."),
    "gpus": click.option("--gpus", metavar="IDS", help="GPUs of the lanes: 0,1 or auto."),
    "cpus": click.option("--cpus", metavar="IDS", help="CPUs of the lanes: 0,1 or auto."),
    "per_device": click.option(
        "--per-device", "--per-gpu", type=int, metavar="N", help="Most lanes on one device. Default: 1."
    ),
    "order": click.option(
        "--order", "--claim", metavar="ORDER", help=f"Which deployment begins next: {', '.join(FORMS)}."
    ),
}


def lane_options(function: Command) -> Command:
    """Add the options of LANES; `StudyOptions` has their values."""
    for add in reversed(LANES.values()):
        function = add(function)
    return function


def lane_words(lanes: Mapping[str, object]) -> list[str]:
    """Return given options of lanes as words of a command line."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in lanes.items()]


def given_options() -> dict[str, str]:
    """Return the parameters that the command line sets, in its order, each with its option."""
    context = click.get_current_context()
    named = {str(parameter.name): parameter.opts[0] for parameter in context.command.params}
    given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    return {name: named[name] for name in given}


def output_option(name: str, text: str | None = None, *, required: bool = False, **kind: bool) -> Command:
    """Return a decorator that adds -o for a file or a folder; `kind` are settings of `click.Path`."""
    path = click.Path(path_type=Path, **kind)
    return click.option("-o", "--output", name, metavar=name.upper(), type=path, required=required, help=text)


def output_file(given: str | Path, option: str, example: str, *read: Path) -> Path:
    """Return the path of a file that a command writes. Raises UserError where none can be written, and as
    `require_unread`."""
    path = Path(given)
    if path.exists() and not path.is_file() and not path.is_dir():
        return path
    if path.is_dir():
        raise UserError(f"{option} {given}: a folder. Name a file in it, as {path / example}.")
    require_unread(path, option, *read)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise UserError(
            f"{option} {given}: no file can be written in {path.parent} ({error.strerror}). Name another folder."
        ) from None


def require_unread(path: Path, option: str, *read: Path) -> None:
    """Raise UserError where a command would overwrite a file that it reads, whatever its name there.

    It reads the files and scenarios on its command line, and `read`: files, and folders with all that is in them.
    """
    if not path.is_file():
        return
    context = click.get_current_context()
    found = {str(file): "" for file in read}
    for parameter in context.command.params:
        value = None if option in parameter.opts else context.params.get(str(parameter.name))
        for word in map(str, value if isinstance(value, tuple) else () if value is None else (value,)):
            text = word.partition("=")[2] or word
            if isinstance(parameter.type, click.Path) or "." in text or "/" in text:
                found.setdefault(text, parameter.opts[-1])
            elif (scenario := scenarios_named(Path.cwd()).get(text)) is not None:
                found.setdefault(str(scenario), parameter.opts[-1])
    for other, name in found.items():
        with suppress(OSError, ValueError):
            if path.samefile(other) or (not name and path.resolve().is_relative_to(Path(other).resolve())):
                where = f"the file of {name}" if name.startswith("-") else "a file that this command reads"
                raise UserError(f"{option} {path}: is {where}, and would be overwritten. Name another file.")


def duration_s(option: str, text: str) -> float:
    """Return the seconds of an option; a bare number is seconds. Raises UserError unless they are above 0."""
    words, seconds = text.split(":"), 0.0
    with suppress(ValueError, OverflowError):
        if len(words) == 3 and all(word.isdigit() for word in words):
            seconds = sum(int(word) * unit_s for word, unit_s in zip(words, (3600.0, 60.0, 1.0), strict=True))
        elif match := DURATION.fullmatch(text):
            seconds = float(match[1]) * SECONDS[match[2] or "s"]
    if seconds <= 0:
        raise UserError(f"{option} {text}: not a duration. Give one as {DURATION_FORMS}.")
    return seconds


def moment(option: str, text: str | None) -> datetime | None:
    """Return the time that an option names: `2026-01-31T12:00`, or `2h` for two hours ago; None without a value.
    Raises UserError."""
    if text is None:
        return None
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).astimezone(UTC)
    with suppress(UserError, OverflowError):
        return datetime.now(UTC) - timedelta(seconds=duration_s(option, text))
    raise UserError(
        f"{option} {text}: neither a time such as 2026-01-31T12:00 nor how long ago, as {DURATION_FORMS}."
    )
