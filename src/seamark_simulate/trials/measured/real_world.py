"""A world on a real clock: a start brings a model to its GPUs and calls it, in a thread of its own."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Literal

from seamark_simulate.simulation.workload import Workload
from seamark_simulate.simulation.world import End, Start
from seamark_simulate.trials.measured.model_servers import ModelError, ModelServers, NodeCall

POLL_S = 0.5
"""A wait is no longer, so that signals are noticed on every platform."""


class NodeCalls:
    """The calls of the nodes of a workload, with the outputs of those that are done as inputs of the next."""

    def __init__(self, work: Workload) -> None:
        self._work = work
        self._outputs: dict[tuple[int, str], str] = {}

    def of(self, node: int) -> NodeCall:
        """Return the call of a node, whose predecessors are done."""
        work, request = self._work, int(self._work.request_of[node])
        asked = work.requests[request]
        form = work.templates[request].workflow.nodes[node - work.first_node[request]]
        data = asked.input_data if isinstance(asked.input_data, Mapping) else {"input": asked.input_data}
        names = form.inputs or tuple(data)
        inputs: dict[str, Any] = {}
        for name in names:
            value = self._outputs.get((request, name), data.get(name))
            if value is not None:
                inputs[name] = value
        config = asked.node_configs.get(form.id)
        return NodeCall(
            model=work.models[work.model[node]], inputs=inputs, config=config if isinstance(config, Mapping) else {}
        )

    def done(self, node: int, output: str) -> None:
        """Keep the output of a node, under the names of its outputs."""
        request = int(self._work.request_of[node])
        form = self._work.templates[request].workflow.nodes[node - self._work.first_node[request]]
        self._outputs.update({(request, name): output for name in form.outputs})


class RealWorld:
    """Executions on model servers. Its clock begins with `begin`.

    Each execution has a thread, at most one for each GPU at a time. At `limit_s` all that run fail as `timeout`; what
    their threads still do is ended with the servers. `reasons` has a line for each failed execution.
    """

    def __init__(
        self,
        work: Workload,
        servers: ModelServers,
        *,
        limit_s: float,
        call_limit_s: float,
        on_progress: Callable[[int, int], object] = lambda done, running: None,
    ) -> None:
        self.reasons: dict[int, str] = {}
        self._work, self._servers = work, servers
        self._calls = NodeCalls(work)
        self._limit_s, self._call_limit_s = limit_s, call_limit_s
        self._on_progress = on_progress
        self._began_s = time.monotonic()
        self._ends: SimpleQueue[tuple[End, str]] = SimpleQueue()
        self._later: list[tuple[End, str]] = []
        self._running: dict[int, tuple[float, list[float]]] = {}
        self._done = 0

    def begin(self) -> None:
        """Set the clock to zero."""
        self._began_s = time.monotonic()

    def now_s(self) -> float:
        """Return the time since the begin."""
        return time.monotonic() - self._began_s

    def is_over(self) -> bool:
        """Return whether the limit has passed: nothing more may start."""
        return self.now_s() >= self._limit_s

    def start(self, start: Start) -> float:
        """Begin an execution in a thread of its own."""
        taken_s, fetched_s = self.now_s(), list[float]()
        self._running[start.execution] = taken_s, fetched_s
        work = threading.Thread(
            target=self._execute, args=(start, taken_s, fetched_s), name=f"execution {start.execution}", daemon=True
        )
        work.start()
        return taken_s

    def next_end(self, until_s: float) -> End | None:
        """Wait for the next end before `until_s`, or until the limit."""
        while True:
            self._take_all()
            if self._later and self._later[0][0].at_s < until_s:
                return self._report(*self._later.pop(0))
            now_s = self.now_s()
            if now_s >= self._limit_s and self._running:
                return self._cut_off()
            if now_s >= min(until_s, self._limit_s):
                return None
            try:
                self._later.append(self._ends.get(timeout=min(until_s - now_s, self._limit_s - now_s, POLL_S)))
            except Empty:
                continue

    def _take_all(self) -> None:
        while True:
            try:
                self._later.append(self._ends.get_nowait())
            except Empty:
                break
        self._later = [end for end in self._later if end[0].execution in self._running]
        self._later.sort(key=lambda end: (end[0].at_s, end[0].execution))

    def _report(self, end: End, reason: str) -> End:
        del self._running[end.execution]
        if reason:
            self.reasons[end.execution] = reason
        self._done += 1
        self._on_progress(self._done, len(self._running))
        return end

    def _cut_off(self) -> End:
        """Return the end of an execution that still runs at the limit."""
        execution = next(iter(self._running))
        taken_s, fetched_s = self._running[execution]
        at_s = max(self.now_s(), *fetched_s, taken_s)
        start_s = fetched_s[0] if fetched_s else at_s
        end = _end(execution, taken_s, start_s, at_s, failure="timeout", gpus="lost")
        return self._report(end, f"not done when the run's limit of {self._limit_s:g} s had passed")

    def _execute(self, start: Start, taken_s: float, fetched_s: list[float]) -> None:
        """Bring the model, call it, and report the end. Runs in a thread."""
        call, gpus = self._calls.of(start.node), tuple(range(start.gpu, start.gpu + start.count))
        try:
            brought = self._servers.bring(call.model, gpus, self._call_limit_s)
            fetched_s.append(self.now_s() if brought else taken_s)
            output = self._servers.call(call, gpus, self._call_limit_s)
            at_s = self.now_s()
            self._calls.done(start.node, output)
            self._ends.put((_end(start.execution, taken_s, fetched_s[0], at_s), ""))
        except ModelError as error:
            self._fail(start, taken_s, fetched_s, error)
        except Exception as error:  # a mistake of ours must not leave a run that waits for ever
            reason = f"{type(error).__name__}: {error}"
            self._fail(start, taken_s, fetched_s, ModelError("setup_failed", reason, emptied=True))

    def _fail(self, start: Start, taken_s: float, fetched_s: Sequence[float], error: ModelError) -> None:
        at_s = self.now_s()
        start_s = fetched_s[0] if fetched_s else at_s
        gpus: Literal["kept", "emptied"] = "emptied" if error.emptied else "kept"
        end = _end(start.execution, taken_s, start_s, at_s, failure=error.category, gpus=gpus)
        self._ends.put((end, error.reason))


def _end(
    execution: int,
    taken_s: float,
    start_s: float,
    at_s: float,
    *,
    failure: str | None = None,
    gpus: Literal["kept", "emptied", "lost"] = "kept",
) -> End:
    return End(
        execution=execution,
        at_s=at_s,
        fetch_s=start_s - taken_s,
        duration_s=at_s - start_s,
        failure=failure,
        gpus=gpus,
    )
