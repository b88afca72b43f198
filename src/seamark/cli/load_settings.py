"""Settings of `bench load`, validated like those of scenarios. Its other options are in load.py."""

from collections.abc import Iterable, Mapping

import click

from seamark.config.levels import TYPES, violation
from seamark.errors import UserError, did_you_mean
from seamark.model.load_profile import AUTO
from seamark.model.service import Setting, Value
from seamark.patterns.table import LOAD_SETTINGS

OPTIONS = {
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
    "mix": "--mix",
    "shards": "--shards",
    "prompt_len": "--prompt-tokens",
    "gen_tokens": "--output-tokens",
    "model": "--model",
    "stream": "--stream",
}
"""Settings with an option of their own."""
OF_A_SERVER = ("model", "served_model", "max_model_len", "base_path")
"""Settings of a server that the OpenAI driver reads too."""
TRUTHS = {"true": True, "false": False}
NOUNS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def warmup(context: click.Context, parameter: click.Parameter, value: str) -> Value:
    """Return the value of --warmup: seconds, or `auto`."""
    return AUTO if value == AUTO else float(click.FLOAT(value, parameter, context))


def load_settings() -> dict[str, Setting]:
    """Return the settings of every load, by name."""
    return {setting.name: setting for setting in LOAD_SETTINGS}


def openai_settings() -> dict[str, Setting]:
    """Return the settings of a load through the OpenAI API, by name: those of the shipped recipes that use it."""
    from seamark.config.read import read_services
    from seamark.planning.study import SHIPPED

    recipes = read_services(SHIPPED / "config" / "services").values()
    of_driver = [setting for each in recipes if each.driver.endswith("openai:OpenAi") for setting in each.settings]
    read = {each.name: each for each in of_driver if each.role == "workload" or each.name in OF_A_SERVER}
    return {**read, **load_settings()}


def settings_from(pairs: Iterable[str], known: Mapping[str, Setting]) -> dict[str, Value]:
    """Return `NAME=VALUE` pairs as settings. Raises UserError for an unknown name or an invalid value."""
    found: dict[str, Value] = {}
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
            raise UserError(f"--set {name}={text}: expected {NOUNS[known[name].type]}.")
        if wrong := violation(value, known[name]):
            raise UserError(f"--set {name}={text}: {wrong}")
        found[name] = value
    return found


def require_fit(settings: Mapping[str, Value], known: Mapping[str, Setting]) -> None:
    """Raise UserError with each invalid value, named by its option."""
    wrong = [
        f"{OPTIONS.get(name, f'--set {name}')} {value}: {complaint}"
        for name, value in settings.items()
        if value is not None and name in known and (complaint := violation(value, known[name]))
    ]
    if wrong:
        raise UserError(*wrong)


def _read(text: str, kind: str) -> Value:
    """Return a value of a setting's type, None for a text of another type."""
    if kind == "str":
        return text
    if kind == "bool":
        return TRUTHS.get(text.lower())
    try:
        value: Value = TYPES[kind](text)
    except ValueError:
        return None
    return value
