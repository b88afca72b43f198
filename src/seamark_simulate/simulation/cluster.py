"""State of the GPUs in a simulation: which are free, and which model each of them holds. Sets of GPUs are bit
masks."""

from collections.abc import Sequence
from itertools import groupby

from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.schedule import FETCH_LOAD, FETCH_NONE, FETCH_SWITCH
from seamark_simulate.simulation.system import Model


def lowest(mask: int) -> int:
    """Return the lowest GPU of a mask, -1 for none."""
    return (mask & -mask).bit_length() - 1


def window_starts(free: int, count: int) -> int:
    """Return the mask of the GPUs at which `count` consecutive ones of a mask begin.

    Shifted copies are intersected, twice as far each time: log2(count) steps whatever the number of GPUs.
    """
    length = 1
    while length < count and free:
        step = min(length, count - length)
        free &= free >> step
        length += step
    return free


def first_window(free: int, count: int) -> int:
    """Return the first GPU of the lowest `count` consecutive ones in a mask, -1 for none."""
    return lowest(window_starts(free, count))


class Cluster:
    """The GPUs of a machine. Models have numbers; `empty`, one above the last, is that of a GPU without a model.

    `free` is the mask of free GPUs, `free_of[model]` of those that hold a model, `resident[gpu]` the model of a GPU;
    `up` is the mask of the GPUs that are there. `fetch_s[new][old]` is the time to bring a model to a GPU. A place is
    the first of some consecutive GPUs; `groups[model]` is equal for models that can start on the same GPUs.
    """

    __slots__ = ("_by_switch", "_fetched", "empty", "fetch_s", "free", "free_of", "gpus", "groups", "resident", "up")

    def __init__(self, machine: Machine, models: Sequence[Model]) -> None:
        self.gpus = machine.gpus
        self.empty = len(models)
        self.fetch_s = machine.fetch_table(models)
        self._fetched = [model.fetched for model in models]
        self.groups = [model.gpus_required for model in models]
        self.free = self.up = (1 << machine.gpus) - 1
        self.free_of = [0] * self.empty + [self.free]
        self.resident = [self.empty] * machine.gpus
        self._by_switch = [_by_switch(number, row) for number, row in enumerate(self.fetch_s)]

    def best_gpu(self, model: int) -> int:
        """Return the free GPU for a node of one GPU, -1 for none: one that holds the model, else an empty one, else
        that with the least switching time; of equals the lowest."""
        free_of = self.free_of
        mask = free_of[model] or free_of[self.empty]
        if not mask:
            for group in self._by_switch[model]:
                for old in group:
                    mask |= free_of[old]
                if mask:
                    break
        return (mask & -mask).bit_length() - 1

    def place(self, model: int, count: int) -> int:
        """Return the first GPU for a node of `count` GPUs, -1 for none: of several GPUs the first window of
        consecutive free ones, whatever they hold."""
        return self.best_gpu(model) if count == 1 else first_window(self.free, count)

    def place_among(self, model: int, count: int, mask: int) -> int:
        """As `place`, but only on the GPUs of a mask."""
        if count > 1:
            return first_window(self.free & mask, count)
        free_of = self.free_of
        for group in ([model], [self.empty], *self._by_switch[model]):
            chosen = 0
            for old in group:
                chosen |= free_of[old] & mask
            if chosen:
                return lowest(chosen)
        return -1

    def gpus_of(self, place: int, count: int) -> tuple[int, ...]:
        """Return the GPUs of a place."""
        return tuple(range(place, place + count))

    def mask_of(self, place: int, count: int) -> int:
        """Return the mask of the GPUs of a place."""
        return ((1 << count) - 1) << place

    def holds(self, model: int) -> bool:
        """Return whether a free GPU holds a model."""
        return bool(self.free_of[model])

    def places(self, model: int, count: int) -> list[int]:
        """Return the places of free GPUs for a node."""
        places, left = [], window_starts(self.free, count)
        while left:
            places.append(lowest(left))
            left &= left - 1
        return places

    def windows(self, model: int, count: int, free_s: Sequence[float]) -> Sequence[int]:
        """Return all places for a node, free or not."""
        return range(self.gpus - count + 1)

    def window_in(self, mask: int, model: int, count: int) -> int:
        """Return the first place among the GPUs of a mask, whether they are free or not, -1 for none."""
        return first_window(mask, count)

    def fetch(self, model: int, place: int) -> tuple[int, float]:
        """Return what a model's way to a place is (FETCH_NONE, FETCH_LOAD or FETCH_SWITCH), and its time."""
        old, fetch_s = self.resident[place], self.fetch_s[model]
        if old == model or not self._fetched[model]:
            return FETCH_NONE, 0.0
        return FETCH_LOAD if old == self.empty else FETCH_SWITCH, fetch_s[old]

    def fetch_to_s(self, model: int, place: int) -> float:
        """Return the time to bring a model to a place now."""
        return self.fetch_s[model][self.resident[place]]

    def worst_fetch_s(self, model: int) -> float:
        """Return the longest time that a model may need to its place."""
        return max(self.fetch_s[model])

    def fetch_after_s(self, model: int, place: int, last: int) -> float:
        """Return the time to bring a model to a place whose first GPU used the model `last` before."""
        return self.fetch_s[model][last]

    def take(self, gpu: int, count: int, model: int) -> int:
        """Give GPUs to a model, and return what the first of them held."""
        resident, free_of = self.resident, self.free_of
        held = resident[gpu]
        if count == 1:
            bit = 1 << gpu
            self.free ^= bit
            free_of[held] ^= bit
            resident[gpu] = model
            return held
        for number in range(gpu, gpu + count):
            bit = 1 << number
            free_of[resident[number]] ^= bit
            resident[number] = model
        self.free ^= ((1 << count) - 1) << gpu
        return held

    def give_back(self, gpu: int, count: int, model: int) -> None:
        """Make GPUs free; they keep their model."""
        mask = 1 << gpu if count == 1 else ((1 << count) - 1) << gpu
        self.free |= mask
        self.free_of[model] |= mask

    def give_back_empty(self, gpu: int, count: int) -> None:
        """Make GPUs free; they hold no model any more."""
        self.resident[gpu : gpu + count] = [self.empty] * count
        self.give_back(gpu, count, self.empty)

    def lose(self, gpu: int, count: int) -> None:
        """Take GPUs that are in use away for good."""
        self.resident[gpu : gpu + count] = [self.empty] * count
        self.up &= ~(((1 << count) - 1) << gpu)


def _by_switch(model: int, fetch_s: Sequence[float]) -> list[list[int]]:
    """Return the other models by the time of a switch from them, those of equal time together."""
    others = sorted((old for old in range(len(fetch_s) - 1) if old != model), key=fetch_s.__getitem__)
    return [list(group) for _, group in groupby(others, key=fetch_s.__getitem__)]
