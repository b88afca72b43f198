"""Groups of trials of equal servers, which a fit makes a model of, and the names that tell them apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from seamark.model.service import Value
from seamark.model.trial import Trial
from seamark.patterns.table import LOAD_SETTINGS
from seamark_simulate.fit import ReplicaLimits, ReplicaTrial, StationTrial
from seamark_simulate.model.fitted_model import FitSource
from seamark_simulate.trials.fitted_server import ServedTrial

OF_A_LOAD = frozenset(setting.name for setting in LOAD_SETTINGS)
T = TypeVar("T", StationTrial, ReplicaTrial)
Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class FitGroup(Generic[T]):
    """Trials of one server, at several loads. `name` tells it from the others; `limits` are those of a replica.
    `served` says on which server each trial was."""

    name: str
    trials: list[T] = field(default_factory=list)
    limits: list[ReplicaLimits] = field(default_factory=list)
    served: list[ServedTrial] = field(default_factory=list)

    @property
    def service(self) -> str:
        return self.served[0].trial.service

    @property
    def sources(self) -> tuple[FitSource, ...]:
        return tuple(trial.source for trial in self.served)


def told_apart(groups: Sequence[FitGroup[StationTrial] | FitGroup[ReplicaTrial]]) -> list[str]:
    """Return a name of its own for each group: those of one name get the settings in which they differ, and a number
    where nothing else tells them apart."""
    names: list[str] = []
    for group in groups:
        alike = [other for other in groups if other.name == group.name]
        settings = group.served[0].trial.settings
        others = [other.served[0].trial.settings for other in alike]
        differ = [
            f"{name}={settings[name]}"
            for name in sorted(settings)
            if name not in OF_A_LOAD and any(name not in other or other[name] != settings[name] for other in others)
        ]
        names.append(" ".join([group.name, *differ]))
    return [
        name if names.count(name) == 1 else f"{name} ({1 + names[:number].count(name)})"
        for number, name in enumerate(names)
    ]


def add_trial(
    known: dict[Key, FitGroup[T]],
    served: ServedTrial,
    taken: T,
    varied: Mapping[str, Value],
    besides: frozenset[str],
) -> FitGroup[T]:
    """Add a trial, of which a model sees what was `taken`, to the group of its settings and kind of GPU, but for the
    settings `besides`."""
    name = name_of(served.trial, varied, besides, served.gpu)
    group = known.setdefault(key_of(served.trial, besides, served.gpu), FitGroup(name=name))
    group.trials.append(taken)
    group.served.append(served)
    return group


def key_of(trial: Trial, besides: frozenset[str], gpu: str | None) -> Key:
    """Return service, kind of GPU and settings of a trial, but for some."""
    kept = sorted((name, repr(value)) for name, value in trial.settings.items() if name not in besides)
    return (trial.service, gpu, *kept)


def name_of(trial: Trial, varied: Mapping[str, Value], besides: frozenset[str], gpu: str | None) -> str:
    """Return the service with the settings that vary in its scenario, but for some, and its kind of GPU."""
    shown = [f"{name}={value}" for name, value in varied.items() if name in trial.settings and name not in besides]
    return " ".join([trial.service, *shown, *([f"on {gpu}"] if gpu else [])])
