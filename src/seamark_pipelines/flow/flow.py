"""The flow of queries through a pipeline: a queue and threads for each stage, and the end of each query.

A query has ended when no copy of it is in a queue or a stage. Queues hold references: contents are never copied,
unless a stage asks for it. Stages end when the flow does, so a cycle needs no terminator.
"""

import copy
import errno
import heapq
import traceback
from collections.abc import Mapping
from itertools import count
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread
from time import monotonic, monotonic_ns, sleep
from typing import Any

from seamark.load.driver import EventTracks, TaskFailure, Track
from seamark.model.sample import EventKind
from seamark_pipelines.flow.stage import RUNNING, Stage
from seamark_pipelines.flow.virtual_clock import VirtualClock
from seamark_pipelines.model.graph import ENTRY, FIRST_SUBMITTED, MERGE, PipelineModel, StageModel
from seamark_pipelines.model.query import Query, Ticket

IN_A_ROW = 3
"""Failures of a stage one after another that end a pipeline."""
CUDA_NO_MEMORY = 2
"""Code of CUDA's error for memory that cannot be had."""
CPU_ALLOCATOR = "DefaultCPUAllocator"
"""Part of what torch says where the machine has no memory."""
WATCH_S = 0.05
END_S = 0.2
"""Time in which the threads of stages end."""

Waiting = tuple[Query, int, int]
"""A query in a queue: itself, the id of the stage that it comes from, and since when, in ns of the flow's clock."""


class Edge:
    """The way from one stage to another: puts queries into the queue of the second."""

    def __init__(self, source: int, node: "Node") -> None:
        self._source = source
        self._inbox = node.inbox
        self._now_ns = node.now_ns
        depth = node.model.max_input_queue_depth
        self._free = Semaphore(depth) if depth else None
        node.edges[source] = self

    def put(self, query: Query) -> None:
        """Put a query into the queue, after waiting for room where the queue has a depth."""
        if self._free is not None:
            self._free.acquire()
        self._inbox.put((query, self._source, self._now_ns()))

    @property
    def full(self) -> bool:
        """Whether a query would have to wait now."""
        if self._free is None:
            return False
        if self._free.acquire(blocking=False):
            self._free.release()
            return False
        return True

    def taken(self) -> None:
        """Note that a query was taken out of the queue."""
        if self._free is not None:
            self._free.release()


class End:
    """Where the answers of an output stage go."""

    def put(self, query: Query) -> None:
        """Keep the answer."""
        if query.ticket is not None:
            query.ticket.query = query
            query.ticket.answers += 1


class Node:
    """A stage at work: its queue, its policy, and what its threads run."""

    def __init__(self, model: StageModel, stage: Stage, number: int, clock: VirtualClock | None = None) -> None:
        self.now_ns = monotonic_ns if clock is None else clock.now_ns
        self.model = model
        self.stage = stage
        self.number = number
        self.inbox: SimpleQueue[Waiting | None] = SimpleQueue()
        self.edges: dict[int, Edge] = {}
        self.sources: tuple[int, ...] = ()
        self.failures = 0
        self.running: dict[int, Ticket] = {}
        """What each thread works on."""
        self.lock = Lock()
        self._ahead: list[tuple[float, int, Waiting]] = []
        self._order = count()

    def take(self) -> Waiting | None:
        """Return the next query by the policy, None at the end."""
        if self.model.policy == FIRST_SUBMITTED and len(self.sources) > 1:
            with self.lock:
                waiting = self._first_submitted()
        else:
            waiting = self.inbox.get()
        if waiting is not None:
            self.edges[waiting[1]].taken()
        return waiting

    def _first_submitted(self) -> Waiting | None:
        while True:
            try:
                waiting = self.inbox.get(block=not self._ahead)
            except Empty:
                return heapq.heappop(self._ahead)[2]
            if waiting is None:
                return None
            heapq.heappush(self._ahead, (waiting[0].query_submitted_timestamp, next(self._order), waiting))


class Flow:
    """A pipeline at work. `stages` are its stages by id, in the order of the model; `tracks` take their events.

    `timeout_s` is the time-out of a query. With a `clock`, all times are of that clock, and each run lasts as long by
    it as it should. `fault` is why the pipeline has ended before its load.
    """

    def __init__(
        self,
        model: PipelineModel,
        stages: Mapping[int, Stage],
        tracks: EventTracks | None,
        *,
        timeout_s: float,
        clock: VirtualClock | None = None,
    ) -> None:
        self._model = model
        self._tracks = tracks
        self._timeout_s = timeout_s
        self._clock = clock
        self._enough_failures = min(IN_A_ROW, model.loadgen.max_queries)
        self._nodes = {
            stage.id: Node(stage, stages[stage.id], number, clock) for number, stage in enumerate(model.stages)
        }
        self._branches = model.branches
        self._cyclic = bool(model.cycles())
        self._free: SimpleQueue[None] | None = None
        if model.limit is not None:
            self._free = SimpleQueue()
            for _ in range(model.limit):
                self._free.put(None)
        self._live: set[Ticket] = set()
        self._watching = False
        self._ended = False
        self._lock = Lock()
        self.fault: TaskFailure | None = None
        for id, sources in model.sources.items():
            self._nodes[id].sources = sources
        self._entries = [Edge(ENTRY, self._nodes[id]) for id in model.inputs]
        end = End()
        for stage in model.stages:
            node = self._nodes[stage.id]
            outputs = model.all_outputs(stage)
            edges = {id: end if id == ENTRY else Edge(stage.id, self._nodes[id]) for id in outputs}
            node.stage.output_queues = dict(edges)
        self.threads: list[Thread] = []

    def start(self) -> None:
        """Start the threads of all stages. Raises TaskFailure if one fails before it takes queries."""
        ready: SimpleQueue[TaskFailure | None] = SimpleQueue()
        for node in self._nodes.values():
            for thread in range(node.model.max_in_flight):
                self.threads.append(Thread(target=self._work, args=(node, thread, ready), daemon=True))
        for worker in self.threads:
            worker.start()
        failures = [failure for _ in self.threads if (failure := ready.get()) is not None]
        if failures:
            raise failures[0]

    def call(self, query: Query, index: int) -> Ticket:
        """Send a query through the pipeline and return its ticket when it has ended. Raises TaskFailure once the
        pipeline has ended."""
        if self._free is not None:
            self._admit()
        if self.fault is not None:
            raise self.fault
        ticket = query.ticket = Ticket(query, index, len(self._entries))
        self._live.add(ticket)
        for number, entry in enumerate(self._entries):
            entry.put(copy.copy(query) if number else query)
        if self.fault is not None or not self._has_ended(ticket):
            self._finish(ticket, "timeout")
            self._watch()
        if self.fault is not None:
            raise self.fault
        return ticket

    def _has_ended(self, ticket: Ticket) -> bool:
        """Wait for the end of a query; return whether it ended within its time-out."""
        if self._clock is None:
            return ticket.done.acquire(timeout=self._timeout_s)
        limit_ns = ticket.submitted_ns = self._clock.now_ns()
        limit_ns += int(self._timeout_s * 1e9)
        while (left_ns := limit_ns - self._clock.now_ns()) > 0:
            if ticket.done.acquire(timeout=left_ns / 1e9):
                return True
        return False

    def stop(self) -> None:
        """End all stages, within END_S unless one hangs."""
        self._ended = True
        for node in self._nodes.values():
            for _ in range(node.model.max_in_flight):
                node.inbox.put(None)
        until_s = monotonic() + END_S
        for worker in self.threads:
            worker.join(max(0.0, until_s - monotonic()))

    def _admit(self) -> None:
        """Wait until another query may be in the graph."""
        assert self._free is not None
        while self.fault is None:
            try:
                self._free.get(timeout=self._timeout_s)
            except Empty:
                continue
            if self.fault is not None:
                self._free.put(None)  # wakes the next one that waits
            return

    def _finish(self, ticket: Ticket, error: str | None = None) -> None:
        if ticket.end(error):
            self._live.discard(ticket)
            if self._free is not None:
                self._free.put(None)

    def _end_for(self, fault: TaskFailure) -> None:
        """End the pipeline: every query that is on its way has failed."""
        with self._lock:
            self.fault = self.fault or fault
        for ticket in list(self._live):
            self._finish(ticket, str(fault))
        if self._free is not None:
            self._free.put(None)  # wakes a query that waits to be admitted

    def _work(self, node: Node, thread: int, ready: "SimpleQueue[TaskFailure | None]") -> None:
        """Run a stage: take queries, work on them, hand them on."""
        track = None if self._tracks is None or node.model.disable_logs else self._tracks.track()
        RUNNING.track, RUNNING.number = track, node.number
        stage, name = node.stage, node.model.name
        try:
            stage.pre_run()
        except Exception as error:
            traceback.print_exc()
            ready.put(setup_failure(name, error))
            return
        ready.put(None)
        merges = node.model.policy == MERGE and len(node.sources) > 1
        while (waiting := node.take()) is not None:
            query, source, since_ns = waiting
            ticket = query.ticket
            if ticket is None or ticket.ended:
                continue
            if merges:
                merged = self._merged(node, query, source, ticket)
                if merged is None:
                    continue
                query = merged
            self._run(node, thread, query, ticket, since_ns, track)
        try:
            stage.post_run()
        except Exception:
            traceback.print_exc()

    def _run(self, node: Node, thread: int, query: Query, ticket: Ticket, since_ns: int, track: Track | None) -> None:
        """Run a stage for one query and hand on what comes of it."""
        if node.model.copy:
            query.data, query.context = copy.deepcopy(query.data), copy.deepcopy(query.context)
        RUNNING.ticket = node.running[thread] = ticket
        visit = 0
        if self._cyclic:
            visit = ticket.visits.get(node.number, 0)
            ticket.visits[node.number] = visit + 1
        try:
            if self._clock is None:
                begin_ns = monotonic_ns()
                outputs = node.stage.run(query)
                end_ns = monotonic_ns()
            else:
                outputs, begin_ns, end_ns = self._clock.timed(node.model.id, node.stage.run, query)
            if track is not None:
                track.add(ticket.index, node.number, EventKind.WAIT, since_ns, begin_ns, visit)
                track.add(ticket.index, node.number, EventKind.RUN, begin_ns, end_ns, visit)
            self._hand_on(node, ticket, query, outputs, track, visit)
            node.failures = 0
        except Exception as error:
            self._failed(node, ticket, error)
        finally:
            del node.running[thread]

    def _hand_on(
        self,
        node: Node,
        ticket: Ticket,
        query: Query,
        outputs: Mapping[int, Query],
        track: Track | None,
        visit: int,
    ) -> None:
        """Put the outputs of a stage into the queues of the next ones, each query with an object of its own."""
        queues = node.stage.output_queues
        if type(outputs) is not dict or not outputs.keys() <= queues.keys():
            ids = ", ".join(str(id) for id in queues)
            what = sorted(map(str, outputs)) if isinstance(outputs, dict) else type(outputs).__name__
            raise ValueError(f"run returned {what}: return a dict of queries by the ids of outputs ({ids or 'none'})")
        sent: list[tuple[int, Query]] = []
        seen: set[int] = set()
        for id, output in outputs.items():
            own = copy.copy(output) if id_of(output) in seen else output
            seen.add(id_of(output))
            if own.ticket is not ticket:  # a query that the stage has made
                own.ticket, own.query_id = ticket, query.query_id
            sent.append((id, own))
        moving = [(id, own) for id, own in sent if id != ENTRY]
        if self._branches and len(moving) > 1:
            with ticket.lock:
                ticket.copies += len(moving) - 1
        for id, own in sent:
            edge = queues[id]
            if track is not None and isinstance(edge, Edge) and edge.full:
                blocked_ns = node.now_ns()
                edge.put(own)
                track.add(ticket.index, node.number, EventKind.BLOCKED, blocked_ns, node.now_ns(), visit)
            else:
                edge.put(own)
        if not moving:
            self._gone(ticket)

    def _gone(self, ticket: Ticket) -> None:
        """Count a copy that goes no further; the last one ends the query, or has merges go on without others."""
        if not self._branches:
            self._finish(ticket)
            return
        with ticket.lock:
            ticket.copies -= 1
            if ticket.copies or ticket.ended:
                return
            parked, ticket.parked = ticket.parked, {}
            ticket.copies = len(parked)
        for id, parts in parked.items():
            node = self._nodes[id]
            source = next(iter(parts))
            whole = merged_query(parts)
            whole.context[COMPLETE] = True
            node.edges[source].put(whole)
        if not parked:
            self._finish(ticket)

    def _merged(self, node: Node, query: Query, source: int, ticket: Ticket) -> Query | None:
        """Return the query that is merged of all its copies, or None while others are on their way."""
        if query.context.pop(COMPLETE, False):
            return query
        with ticket.lock:
            parts = ticket.parked.setdefault(node.model.id, {})
            parts[source] = query
            if len(parts) == len(node.sources):
                del ticket.parked[node.model.id]
                return merged_query({id: parts[id] for id in node.sources})
        self._gone(ticket)
        return None

    def _failed(self, node: Node, ticket: Ticket, error: Exception) -> None:
        """Fail a query; several failures of a stage in a row end the pipeline."""
        node.failures += 1
        if node.failures <= IN_A_ROW:
            traceback.print_exception(error)
        text = f"the stage '{node.model.name}': {type(error).__name__}: {error}"
        category = failure_category(error, "stage_failed")
        self._finish(ticket, f"{category}: {text}")
        if node.failures >= self._enough_failures:
            many = f" ({node.failures} times in a row)" if node.failures > 1 else ""
            self._end_for(TaskFailure(category, f"{text}{many}"))

    def _watch(self) -> None:
        """Watch for a stage that does not return from a query that timed out, once there is one."""
        with self._lock:
            watching, self._watching = self._watching, True
        if not watching:
            Thread(target=self._watch_stages, daemon=True).start()

    def _watch_stages(self) -> None:
        while self.fault is None and not self._ended:
            for node in self._nodes.values():
                limit_ns = node.now_ns() - int(2e9 * self._timeout_s)
                for ticket in list(node.running.values()):
                    if ticket.ended and ticket.submitted_ns < limit_ns:
                        late = f"has not returned {self._timeout_s:g} s after its query timed out"
                        self._end_for(TaskFailure("timeout", f"the stage '{node.model.name}' {late}"))
            sleep(WATCH_S)


COMPLETE = "seamark merged"
"""Key in the context of a query that a merge passes although not all copies came."""


def failure_category(error: Exception, otherwise: str) -> str:
    """Return the category of an exception of a stage: that of memory that ran out, or `otherwise`."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    ran_out = "torch.AcceleratorError" in names and getattr(error, "error_code", None) == CUDA_NO_MEMORY
    if ran_out or "torch.OutOfMemoryError" in names:
        return "gpu_out_of_memory"
    no_memory = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    return "out_of_memory" if no_memory or CPU_ALLOCATOR in str(error) else otherwise


def setup_failure(stage: str, error: Exception) -> TaskFailure:
    """Return the failure of a pipeline whose stage raised before it took queries."""
    category = failure_category(error, "setup_failed")
    return TaskFailure(category, f"the stage '{stage}': {type(error).__name__}: {error}")


def id_of(query: Any) -> int:
    """Return what tells objects apart. Raises TypeError for what is no query."""
    if not isinstance(query, Query):
        raise TypeError(f"run returned a {type(query).__name__} where a query belongs")
    return id(query)


def merged_query(parts: Mapping[int, Query]) -> Query:
    """Return one query of several copies: `data` has that of each by the id of the stage it comes from, `context` is
    that of all."""
    whole = copy.copy(next(iter(parts.values())))
    whole.data = {source: part.data for source, part in parts.items()}
    whole.context = {key: value for part in parts.values() for key, value in part.context.items()}
    return whole
