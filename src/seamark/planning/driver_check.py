"""Checks before a run that the drivers of a plan can be loaded and that their settings exist. Starts no server."""

import ast
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from seamark.config.yaml_source import shown
from seamark.errors import UserError, did_you_mean
from seamark.load.driver import AnyDriver, Target, declared
from seamark.load.engine.mix import mixed
from seamark.model.scenario import filled
from seamark.model.service import Service
from seamark.model.trial import Plan, Trial

SEED = 1


class _RefusedError(Exception):
    """A driver refuses its settings, which stand in the scenario."""


def require_drivers(
    plan: Plan, services: Mapping[str, Service], folder: Path, lines: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Raise UserError with a line for each service of the plan whose driver would fail every trial.

    `folder` has the recipes, `lines` the places of the scenario's settings. A driver that exists only in the
    environment of its service, or needs a library that exists only there, is checked by its source as far as
    possible.
    """
    mistakes = []
    for name in dict.fromkeys(trial.service for trial in plan.measured):
        trials = [trial for trial in plan.measured if trial.service == name]
        try:
            mistake = _mistake(services[name], trials)
        except _RefusedError as refused:
            setting, _, text = str(refused).partition(": ")
            place = next((lines[path] for path in lines if path.rpartition(".")[2] == setting), None)
            mistakes.append(f"{plan.source}: {name}: {refused}" if place is None else f"{place}: {text}")
            continue
        if mistake:
            at = f"{shown(folder / f'{name}.yaml')}: driver"
            mistakes.append(f"{at}: '{services[name].driver}' {mistake}")
    if mistakes:
        raise UserError(*mistakes)


def _mistake(service: Service, trials: Sequence[Trial]) -> str | None:
    """Return why the driver of a service cannot be used, None if no mistake is detected."""
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
    """Return the location of a module, None if there is none. Imports its parent packages."""
    try:
        return find_spec(module)
    except Exception:  # a parent package may raise anything
        return None


def _lacks(module: str, name: str, names: Iterable[str]) -> str:
    guess = did_you_mean(name, (candidate for candidate in names if not candidate.startswith("_")))
    return f"cannot be imported: the module '{module}' has no '{name}'.{guess}"


def _missing_name(spec: ModuleSpec, module: str, name: str) -> str | None:
    """Check the source of a module that cannot be imported here: it must parse and define the name."""
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        tree = ast.parse(Path(spec.origin).read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        return f"cannot be imported: {error}."
    names = set(_names(tree))
    return None if name in names or "*" in names else _lacks(module, name, names)


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield every name that a module binds at its top level, and '*' for names that cannot be determined."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def _missing_setting(make: Callable[[Target], Any], service: Service, trials: Sequence[Trial]) -> str | None:
    """Construct the driver and one request of each kind of trial. Data and server, which do not exist yet, may be
    missing."""
    ports = dict.fromkeys(service.server.ports if service.server else (), 1)
    with TemporaryDirectory(prefix="seamark-driver-") as data:
        for trial in one_of_each_kind(trials):
            settings = filled(trial.settings)
            target = Target(settings=settings, data=Path(data), ports=ports)
            try:
                driver = mixed(make, target) if target.load.mix else declared(make(target))
                if why := _no_work(driver, service, target):
                    return why
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
                raise _RefusedError(str(error)) from None
            except Exception:  # its data set, model or server does not exist before the run
                continue
    return None


def _no_work(driver: AnyDriver, service: Service, target: Target) -> str | None:
    """Return why a driver cannot run such a load; None if it can, or if only a run can tell."""
    if (driver.speaks == "task") != (service.load == "program"):
        if driver.speaks == "task":
            return "extends Task, so its recipe needs 'load: program'."
        return "does not extend Task, as 'load: program' needs."
    if target.load.keep_events and (driver.speaks == "wire" or not driver.stages):
        return "has no stages, and so no events. Remove keep_events from the scenario."
    if service.load != "finite":
        return None
    if driver.work_count is None:
        return "has no work list (`work_count`), as 'load: finite' needs. Some have one by a setting 'items'."
    if target.load.warmup_items >= driver.work_count:
        return f"has {driver.work_count} items, and warmup_items is {target.load.warmup_items}. Lower it."
    return None


def one_of_each_kind(trials: Sequence[Trial]) -> Iterator[Trial]:
    """Yield one trial per combination of service, texts, booleans and what is not set, which select a driver's code
    path."""
    seen = set()
    for trial in trials:
        values = trial.settings.values()
        chosen = (trial.service, *(value if isinstance(value, (str, bool)) else value is None for value in values))
        if chosen not in seen:
            seen.add(chosen)
            yield trial
