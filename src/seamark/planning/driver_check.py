"""Whether the drivers of a plan can be loaded and find the settings that they read. Starts no server and no load."""

import ast
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seamark.config.yaml_source import shown
from seamark.errors import UserError, did_you_mean
from seamark.load.driver import Target, declared
from seamark.load.engine.mix import mixed
from seamark.model.service import Service, Value
from seamark.model.trial import Plan, Trial

SEED = 1


def require_drivers(plan: Plan, services: Mapping[str, Service], folder: Path) -> None:
    """Raise UserError with a line for each service of the plan whose driver would fail every trial.

    `folder` holds the recipes. A driver that lives only in the environment of its service, or needs a library that is
    only there, is checked as far as its source can be read here.
    """
    mistakes = []
    for name in dict.fromkeys(trial.service for trial in plan.trials):
        trials = [trial for trial in plan.trials if trial.service == name]
        if mistake := _mistake(services[name], trials):
            at = f"{shown(folder / f'{name}.yaml')}: driver"
            mistakes.append(f"{at}: '{services[name].driver}' {mistake}")
    if mistakes:
        raise UserError(*mistakes)


def _mistake(service: Service, trials: Sequence[Trial]) -> str | None:
    """Return why the driver of a service cannot be used, None when nothing speaks against it."""
    module, _, name = service.driver.partition(":")
    elsewhere = service.environment is not None
    spec = _spec(module)
    if spec is None:
        if elsewhere and _spec(module.partition(".")[0]) is None:
            return None
        return (
            f"cannot be imported: there is no module '{module}'. Correct the name, or put its folder on PYTHONPATH."
        )
    try:
        make = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if not elsewhere:
            return f"cannot be imported: it needs the module '{error.name}', which is not installed here."
        return _missing_name(spec, module, name)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        return f"cannot be imported: {why}. `python -c 'import {module}'` shows where."
    if make is None:
        return _lacks(module, name, vars(importlib.import_module(module)))
    return _missing_setting(make, service, trials)


def _spec(module: str) -> ModuleSpec | None:
    """Return where a module is, None where there is none; what is above it is imported for that."""
    try:
        return find_spec(module)
    except Exception:  # a package above it may raise anything
        return None


def _lacks(module: str, name: str, names: Iterable[str]) -> str:
    guess = did_you_mean(name, (each for each in names if not each.startswith("_")))
    return f"cannot be imported: the module '{module}' has no '{name}'.{guess}"


def _missing_name(spec: ModuleSpec, module: str, name: str) -> str | None:
    """Hold a module that cannot be imported here against its source: whether it can be parsed, and has the name."""
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(Path(spec.origin).read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        return f"cannot be imported: {error}."
    names = set(_names(tree))
    return None if name in names or "*" in names else _lacks(module, name, names)


def _names(tree: ast.Module) -> Iterator[str]:
    """Give every name that a module binds somewhere at its top, and '*' for what cannot be known."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def _missing_setting(make: Callable[[Target], Any], service: Service, trials: Sequence[Trial]) -> str | None:
    """Make the driver and one request of each kind of trial; what else it lacks (data, a server) is not there yet."""
    ports = dict.fromkeys(service.server.ports if service.server else (), 1)
    with TemporaryDirectory(prefix="seamark-driver-") as data:
        for settings in _kinds(trials):
            target = Target(settings=settings, data=Path(data), ports=ports)
            try:
                driver = mixed(make, target) if target.load.mix else declared(make(target))
                bodies = driver.bodies(1, SEED)
                if driver.speaks == "wire":
                    driver.encode(bodies[0])
            except KeyError as error:
                if error.args and isinstance(error.args[0], str) and error.args[0] not in settings:
                    return (
                        f"reads the setting '{error.args[0]}', which the recipe does not have. Add it under"
                        f" 'settings:'.{did_you_mean(error.args[0], settings)}"
                    )
            except UserError as error:
                return f"refuses its settings: {error}"
            except Exception:  # its data set, model or server is not there before the run
                continue
    return None


def _kinds(trials: Sequence[Trial]) -> Iterator[Mapping[str, Value]]:
    """Give the settings of one trial of each combination of words and truths: by these a driver chooses its way."""
    seen = set()
    for trial in trials:
        chosen = tuple(value for value in trial.settings.values() if isinstance(value, (str, bool)))
        if chosen not in seen:
            seen.add(chosen)
            yield trial.settings
