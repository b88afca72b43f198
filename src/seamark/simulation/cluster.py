"""State of the GPUs in a simulation: which are free, and which model each of them holds. Sets of GPUs are bit
masks."""

from collections.abc import Sequence
from itertools import groupby

from seamark.simulation.machine import Machine
from seamark.simulation.system import Model


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
    `up` is the mask of the GPUs that are there. `fetch_s[new][old]` is the time to bring a model to a GPU.
    """

    __slots__ = ("_by_switch", "empty", "fetch_s", "free", "free_of", "gpus", "resident", "up")

    def __init__(self, machine: Machine, models: Sequence[Model]) -> None:
        self.gpus = machine.gpus
        self.empty = len(models)
        self.fetch_s = machine.fetch_table(models)
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
        for each in range(gpu, gpu + count):
            bit = 1 << each
            free_of[resident[each]] ^= bit
            resident[each] = model
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
