"""State of the GPUs of a machine file: what they hold, which are there, and where a node can go.

It has the methods of `Cluster` that policies use. A place is the first GPU of a window of consecutive ones; where any
GPUs make a window, a number above theirs stands for a set of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from seamark_simulate.simulation.cluster import lowest, window_starts
from seamark_simulate.simulation.machine import Layout, Machine
from seamark_simulate.simulation.schedule import FETCH_LOAD, FETCH_NONE, FETCH_SWITCH
from seamark_simulate.simulation.system import Model

ROOM_GB = 1e-9
"""Rounding of sums of memory."""


class HostCluster:
    """GPUs of unlike kinds on hosts. `residents[gpu]` are the models of a GPU, the least recently used first;
    `groups[model]` is equal for models that can start on the same GPUs."""

    def __init__(self, machine: Machine, models: Sequence[Model]) -> None:
        layout = machine.layout
        assert layout is not None
        self.gpus, self.empty = machine.gpus, len(models)
        self.free = self.up = (1 << machine.gpus) - 1
        self.residents: list[list[int]] = [[] for _ in range(machine.gpus)]
        self.fits = [_mask(gpu for gpu in range(self.gpus) if layout.host(gpu).kind.holds(model)) for model in models]
        self.groups = [(model.gpus_required, self.fits[number]) for number, model in enumerate(models)]
        self._layout, self._models, self._loads_free = layout, models, machine.cold_load == "free"
        self._busy = 0
        self._domains = _domains(layout)
        self._sets: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}

    @property
    def resident(self) -> list[int]:
        """The most recently used model of each GPU; `empty` for none."""
        return [models[-1] if models else self.empty for models in self.residents]

    def gpus_of(self, place: int, count: int) -> tuple[int, ...]:
        """Return the GPUs of a place, in the order of their ids."""
        return self._sets[place - self.gpus] if place >= self.gpus else tuple(range(place, place + count))

    def mask_of(self, place: int, count: int) -> int:
        """Return the mask of the GPUs of a place."""
        return _mask(self.gpus_of(place, count))

    def holds(self, model: int) -> bool:
        """Return whether a free GPU holds a model."""
        return any(model in self.residents[gpu] for gpu in _gpus(self.free))

    def place(self, model: int, count: int) -> int:
        """Return the place for a node, -1 for none: of one GPU one that holds the model, else one with room for it,
        else that with the least switching time, of equals the lowest; of several the first window that is free."""
        return self.place_among(model, count, self.free)

    def place_among(self, model: int, count: int, mask: int) -> int:
        """As `place`, but only on the free GPUs of a mask."""
        if count > 1:
            return self.window_in(self.free & mask, model, count)
        gpus = list(_gpus(self.free & mask & self.fits[model]))
        for gpu in gpus:
            if model in self.residents[gpu]:
                return gpu
        best, least_s = -1, inf
        for gpu in gpus:
            evicted = self._evicted(model, gpu)
            if not evicted:
                return gpu
            fetch_s = self._switch_s(evicted, model, gpu) if self._models[model].fetched else 0.0
            if fetch_s < least_s:
                best, least_s = gpu, fetch_s
        return best

    def window_in(self, mask: int, model: int, count: int) -> int:
        """Return the first place among the GPUs of a mask, whether they are free or not, -1 for none."""
        if count == 1:
            return lowest(mask & self.fits[model])
        return next(iter(self._windows(mask & self.fits[model], count)), -1)

    def places(self, model: int, count: int) -> list[int]:
        """Return the places of free GPUs for a node; of windows of any GPUs one for each host."""
        mask = self.free & self.fits[model]
        return list(_gpus(mask)) if count == 1 else self._windows(mask, count)

    def windows(self, model: int, count: int, free_s: Sequence[float]) -> list[int]:
        """Return the places of GPUs that are there, free or not; of windows of any GPUs those that are free first, by
        the times of `free_s`."""
        mask = self.up & self.fits[model]
        if count == 1:
            return list(_gpus(mask))
        return self._windows(mask, count, free_s)

    def _windows(self, mask: int, count: int, free_s: Sequence[float] | None = None) -> list[int]:
        windows: list[int] = []
        for domain in self._domains:
            if self._layout.windows == "consecutive":
                windows += _gpus(window_starts(mask & domain, count))
            else:
                gpus = list(_gpus(mask & domain))
                if free_s is not None:
                    gpus.sort(key=lambda gpu: (free_s[gpu], gpu))
                if len(gpus) >= count:
                    windows.append(self._number(tuple(sorted(gpus[:count]))))
        return windows

    def _number(self, gpus: tuple[int, ...]) -> int:
        if gpus not in self._numbers:
            self._numbers[gpus] = self.gpus + len(self._sets)
            self._sets.append(gpus)
        return self._numbers[gpus]

    def fetch_to_s(self, model: int, place: int) -> float:
        """Return the time to bring a model to a place now, by its first GPU."""
        return self.fetch(model, place)[1]

    def fetch(self, model: int, place: int) -> tuple[int, float]:
        """Return what a model's way to a place is (FETCH_NONE, FETCH_LOAD or FETCH_SWITCH), and its time."""
        gpu = self.gpus_of(place, 1)[0]
        if not self._models[model].fetched or model in self.residents[gpu]:
            return FETCH_NONE, 0.0
        evicted = self._evicted(model, gpu)
        if not evicted:
            return FETCH_LOAD, self._load_s(model, gpu)
        return FETCH_SWITCH, self._switch_s(evicted, model, gpu)

    def _load_s(self, model: int, gpu: int) -> float:
        return 0.0 if self._loads_free else self._layout.load_s(self._models[model], gpu)

    def _switch_s(self, evicted: Sequence[int], model: int, gpu: int) -> float:
        moved_gb = sum(self._models[old].memory_gb for old in evicted) + self._models[model].memory_gb
        return moved_gb / self._layout.host(gpu).kind.pcie_gb_per_s + self._layout.switch_overhead_s

    def evicted(self, model: int, place: int) -> list[int]:
        """Return the models that have to go from the first GPU of a place for another one, the least recently used
        first."""
        return self._evicted(model, self.gpus_of(place, 1)[0])

    def _evicted(self, model: int, gpu: int) -> list[int]:
        """Return the models that have to go for another one."""
        residents, kind = self.residents[gpu], self._layout.host(gpu).kind
        if model in residents:
            return []
        if not self._layout.several_models or kind.memory_gb is None:
            return list(residents)
        held_gb = sum(self._models[old].memory_gb for old in residents) + self._models[model].memory_gb
        evicted = []
        for old in residents:
            if held_gb <= kind.memory_gb + ROOM_GB:
                break
            held_gb -= self._models[old].memory_gb
            evicted.append(old)
        return evicted

    def worst_fetch_s(self, model: int) -> float:
        """Return the longest time that a model may need to its place."""
        if not self._models[model].fetched:
            return 0.0
        return max(max(self._load_s(model, gpu), self._worst_switch_s(model, gpu)) for gpu in _gpus(self.fits[model]))

    def _worst_switch_s(self, model: int, gpu: int) -> float:
        """Return the longest time of a switch to a model on a GPU, 0 where nothing else fits it.

        Where several models have to go, all but the last are less than the new one, or the last could stay.
        """
        new, kind = self._models[model], self._layout.host(gpu).kind
        others = [number for number in range(self.empty) if number != model and self.fits[number] >> gpu & 1]
        others_gb = [self._models[number].memory_gb for number in others]
        if not others_gb:
            return 0.0
        moved_gb = max(others_gb)
        if self._layout.several_models and kind.memory_gb is not None:
            moved_gb = min(kind.memory_gb, sum(others_gb), moved_gb + new.memory_gb)
        return (moved_gb + new.memory_gb) / kind.pcie_gb_per_s + self._layout.switch_overhead_s

    def fetch_after_s(self, model: int, place: int, last: int) -> float:
        """Return the time to bring a model to a place whose first GPU used the model `last` before."""
        if last == model or not self._models[model].fetched:
            return 0.0
        gpu = self.gpus_of(place, 1)[0]
        return self._load_s(model, gpu) if last == self.empty else self._switch_s([last], model, gpu)

    def take(self, place: int, count: int, model: int) -> int:
        """Give the GPUs of a place to a model, and return the model that the first of them used before."""
        gpus = self.gpus_of(place, count)
        held = self.residents[gpus[0]][-1] if self.residents[gpus[0]] else self.empty
        if model in self.residents[gpus[0]]:
            held = model
        for gpu in gpus:
            evicted = {*self._evicted(model, gpu), model}
            self.residents[gpu] = [old for old in self.residents[gpu] if old not in evicted] + [model]
        mask = _mask(gpus)
        self.free &= ~mask
        self._busy |= mask
        return held

    def give_back(self, place: int, count: int, model: int) -> None:
        """Make GPUs free, as far as they are there; they keep their models."""
        mask = self.mask_of(place, count)
        self._busy &= ~mask
        self.free |= mask & self.up

    def give_back_empty(self, place: int, count: int) -> None:
        """Make GPUs free; the model that they used last is not there."""
        for gpu in self.gpus_of(place, count):
            del self.residents[gpu][-1:]
        self.give_back(place, count, self.empty)

    def lose(self, place: int, count: int) -> None:
        """Take GPUs that are in use away for good."""
        self.bring_down(self.gpus_of(place, count))
        self._busy &= ~self.mask_of(place, count)

    def bring_down(self, gpus: Sequence[int]) -> None:
        """Take GPUs away; their models are gone."""
        mask = _mask(gpus)
        self.up &= ~mask
        self.free &= ~mask
        for gpu in gpus:
            self.residents[gpu] = []

    def bring_up(self, gpus: Sequence[int]) -> None:
        """Bring GPUs back; they are empty."""
        mask = _mask(gpus)
        self.up |= mask
        self.free |= mask & ~self._busy


def _domains(layout: Layout) -> list[int]:
    """Return the masks inside which windows lie: hosts, or all GPUs. Any GPUs are looked for on one host first."""
    hosts = [0] * len(layout.hosts)
    for gpu, host in enumerate(layout.host_of):
        hosts[host] |= 1 << gpu
    whole = [(1 << layout.gpus) - 1] if layout.span_hosts else []
    return whole if whole and layout.windows == "consecutive" else [*hosts, *whole]


def _gpus(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _mask(gpus: Iterable[int]) -> int:
    return sum(1 << gpu for gpu in gpus)
