"""Settings of `bench load` and their options, validated like those of scenarios. Its other options are in load.py."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

import click

from seamark.cli.options import Finite
from seamark.config.decode import without_unit
from seamark.config.levels import TYPES, violation
from seamark.config.yaml_source import value_of
from seamark.errors import UserError, did_you_mean
from seamark.model.load_profile import AUTO, LoadProfile
from seamark.model.service import Setting, Value
from seamark.patterns.patterns import Trace
from seamark.patterns.table import LOAD_SETTINGS, PATTERNS, kind_of, own_settings, pattern_of
from seamark.patterns.trace_file import counted_from, recorded_arrivals, recorded_rows

LOAD_OPTIONS = {
    "pattern": "--pattern",
    "rate_rps": "--rate",
    "ramp_to_rps": "--ramp-to",
    "concurrency": "--concurrency",
    "duration_s": "--duration",
    "warmup_s": "--warmup",
    "requests": "--requests",
    "timeout_s": "--timeout",
    "turns": "--turns",
    "think_time_s": "--think-time",
    "shards": "--shards",
}
"""Settings of a load with an option of their own, generated from the setting."""
OPTIONS = {
    **LOAD_OPTIONS,
    "mix": "--mix",
    "prompt_len": "--prompt-tokens",
    "gen_tokens": "--output-tokens",
    "model": "--model",
    "stream": "--stream",
    "headers": "--header",
    "extra_body": "--extra-body",
}
"""Settings with an option of their own."""
OF_A_SERVER = ("model", "served_model", "max_model_len", "base_path")
"""Settings of a server that the OpenAI driver reads too."""
NOUNS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def load_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each of LOAD_OPTIONS, with the type, default and help of its setting."""
    settings = {setting.name: setting for setting in LOAD_SETTINGS}
    for name, option in reversed(LOAD_OPTIONS.items()):
        kind = TYPES[settings[name].type]
        own: dict[str, Any] = {
            "type": Finite() if kind is float else kind,
            "default": getattr(LoadProfile, name, None),
        }
        if name == "pattern":
            own["metavar"] = "|".join([*PATTERNS, "MODULE:NAME"])
        elif name == "warmup_s":
            # a quick load measures from its first request on
            own = {"callback": _warmup, "metavar": f"FLOAT|{AUTO}", "default": "0"}
        function = click.option(option, name, help=settings[name].help, **own)(function)
    return function


def _warmup(context: click.Context, parameter: click.Parameter, value: str) -> Value:
    return AUTO if value == AUTO else float(click.FLOAT(value, parameter, context))


def known_settings(pattern: str, *, api: bool) -> dict[str, Setting]:
    """Return the settings of a load by name, with those of a user's own pattern, and of the driver of the OpenAI API.

    Raises UserError for a pattern that there is not.
    """
    try:
        kind_of(pattern)
        own = own_settings([pattern])
    except ValueError as error:
        raise UserError(f"--pattern {pattern}: {error}.{did_you_mean(pattern, PATTERNS)}") from None
    return {**(_of_openai() if api else {}), **{setting.name: setting for setting in (*LOAD_SETTINGS, *own)}}


def load_settings(
    asked: Mapping[str, Any], mix: str | None, more: Iterable[str], known: Mapping[str, Setting]
) -> dict[str, Value]:
    """Return the settings that differ from a load's defaults. Raises UserError for what cannot be."""
    given = {name: asked[name] for name in LOAD_OPTIONS} | {"mix": mix and _mix(mix)}
    settings = {name: value for name, value in given.items() if value != getattr(LoadProfile, name, None)}
    settings |= settings_from(more, known)
    require_fit(settings, known)
    for name, kept in (("keep_replies", "replies"), ("keep_events", "events")):
        if settings.get(name):
            raise UserError(f"--set {name}: a quick load keeps no {kept}. Write a scenario with `{name}: true`.")
    load = LoadProfile.of(settings)
    if load.closed and settings.get("rate_rps") is not None:
        raise UserError("--rate: a closed loop has none. Add --pattern constant or poisson.")
    if settings.get("rate_rps") is None and "rate_rps" in kind_of(load.pattern).needs:
        raise UserError(f"--pattern {load.pattern}: say how many requests/s with --rate.")
    if load.think_time_s and not load.closed and load.turns == 1:
        raise UserError("--think-time: in an open loop users think between turns alone. Add --turns 2 or more.")
    try:
        whole = LoadProfile.of({setting.name: setting.default for setting in known.values()} | settings)
        pattern = pattern_of(whole)
    except Exception as error:  # a user's own pattern may raise anything
        why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise UserError(f"--pattern {load.pattern}: {why}. Give what is missing with --set NAME=VALUE.") from None
    if isinstance(pattern, Trace):
        _require_trace(pattern, whole.length_s, described="prompt_len" in known)
    return settings


def _require_trace(trace: Trace, until_s: float, *, described: bool) -> None:
    """Read a trace as far as the load sends it, and say from when its times are counted. `described`: its rows say
    what is sent. Raises UserError with the line that cannot be sent."""
    rows = recorded_rows(trace.path, trace.block_tokens) if trace.lengths and described else None
    times_s = recorded_arrivals(trace.path) if rows is None else (row.at_s for row in rows)
    try:
        due = sum(1 for _ in takewhile(lambda at_s: at_s * trace.time_scale < until_s, times_s))
        began = counted_from(trace.path)
    except OSError as error:
        raise UserError(f"--set trace: {trace.path} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise UserError(f"--set trace: {error}.") from None
    if not due:
        raise UserError(f"--set trace: {trace.path} has no arrival before {until_s:g} s. Raise --duration.")
    if began is not None:
        click.echo(f"Times of {trace.path} are counted from its first row, {began}.", err=True)


def require_said_once(given: Mapping[str, str], more: Iterable[str], unused: Iterable[str] | None) -> None:
    """Raise UserError for what would not be sent: a setting that an option and --set both give, or that is set twice;
    and the parameters `unused` here. `given` are the parameters of the command line with their options."""
    for name in [name for name in unused or () if name in given]:
        where = "an address that ends in /completions, and no --body or --method"
        raise UserError(f"{given[name]}: only the OpenAI API has it: {where}.")
    named = [OPTIONS.get(name, name) for name in (pair.partition("=")[0] for pair in more)]
    for name in [name for name in named if name in given.values() or named.count(name) > 1]:
        raise UserError(f"--set: {name} is given twice. Give it once.")


def _mix(text: str) -> str:
    """Return the mix as its setting has it."""
    from seamark.drivers.openai.requests import PER_REQUEST
    from seamark.load.engine.mix import classes_of

    try:
        document = value_of(text)
        written = json.dumps(document, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UserError(f"--mix {text}: not a mix ({error}).") from None
    for request_class in classes_of(written):
        for name in request_class.settings:
            if name not in PER_REQUEST:
                guess = did_you_mean(name, PER_REQUEST) or f" Known: {', '.join(PER_REQUEST)}."
                raise UserError(f"--mix: {request_class.name}.{name}: a class cannot have it.{guess}")
    return written


def _of_openai() -> dict[str, Setting]:
    """Return the settings of the shipped recipes that use the OpenAI API, by name."""
    from seamark.config.read import Recipes
    from seamark.model.service import sound_services
    from seamark.planning.study import SHIPPED

    recipes = sound_services(Recipes(SHIPPED / "config" / "services")).values()
    return {
        setting.name: setting
        for recipe in recipes
        if recipe.driver.endswith("openai:OpenAi")
        for setting in recipe.settings
        if setting.role == "workload" or setting.name in OF_A_SERVER
    }


def settings_from(pairs: Iterable[str], known: Mapping[str, Setting]) -> dict[str, Value]:
    """Return `NAME=VALUE` pairs as settings. Raises UserError for an unknown name or an invalid value."""
    chosen: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UserError(f"--set {pair}: give it as NAME=VALUE.")
        if name not in known:
            guess = did_you_mean(name, known) or f" Known: {', '.join(sorted(known))}."
            raise UserError(f"--set {name}: no setting of this load.{guess}")
        if name == "mix":
            raise UserError("--set mix: classes are given with --mix.")
        value = text if text in known[name].words else _read(text, known[name].type)
        if value is None:
            raise UserError(f"--set {name}={text}: expected {NOUNS[known[name].type]}.{without_unit(name, text)}")
        if wrong := violation(value, known[name]):
            raise UserError(replace(wrong, path=f"--set {name}={text}"))
        chosen[name] = value
    return chosen


def require_fit(settings: Mapping[str, Value], known: Mapping[str, Setting]) -> None:
    """Raise UserError with each invalid value, named by its option."""
    wrong = [
        replace(mistake, path=f"{OPTIONS.get(name, f'--set {name}')} {value}")
        for name, value in settings.items()
        if value is not None and name in known and (mistake := violation(value, known[name]))
    ]
    if wrong:
        raise UserError(*wrong)


def _read(text: str, kind: str) -> Value:
    """Return a value of a setting's type, None for a text of another type."""
    if kind == "str":
        return text
    if kind == "bool":
        return {"true": True, "false": False}.get(text.lower())
    with suppress(ValueError):
        value: Value = TYPES[kind](text)
        return value
    return None
