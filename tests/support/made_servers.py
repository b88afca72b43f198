"""Model servers without a process: they take the times that they are told, and fail as they are told."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.system import Model
from seamark_simulate.trials.measured.model_servers import ModelError, NodeCall


class MadeServers:
    """Servers whose loads and switches take the machine's times, and whose calls take those of `call_s`, all times
    `scale`. `failing` has the failure of the calls of a model."""

    def __init__(
        self,
        machine: Machine,
        call_s: Callable[[NodeCall], float],
        scale: float,
        failing: Mapping[str, ModelError] | None = None,
    ) -> None:
        self.calls: list[NodeCall] = []
        self.most_at_once = 0
        self._machine, self._call_s, self._scale, self._failing = machine, call_s, scale, failing or {}
        self._held: dict[int, Model] = {}
        self._lock = threading.Lock()
        self._running = 0

    def prepare(self, models: Sequence[Model], limit_s: float) -> None:
        pass

    def estimate_s(self, call: NodeCall, limit_s: float) -> float | None:
        return None

    def bring(self, model: Model, gpus: tuple[int, ...], limit_s: float) -> bool:
        old = self._held.get(gpus[0])
        self._held.update(dict.fromkeys(gpus, model))
        if old == model:
            return False
        time.sleep(self._machine.fetch_s(old, model) * self._scale)
        return True

    def call(self, call: NodeCall, gpus: tuple[int, ...], limit_s: float) -> str:
        with self._lock:
            self.calls.append(call)
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        try:
            time.sleep(self._call_s(call) * self._scale)
            if error := self._failing.get(call.model.id):
                raise error
            return f"words of {call.model.id}"
        finally:
            with self._lock:
                self._running -= 1

    def close(self) -> None:
        pass
