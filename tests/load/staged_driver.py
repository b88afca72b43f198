"""Call drivers with stages; those of one sleep for known times in threads of their own. Imported by workers."""

import queue
import threading
import time
from collections.abc import Sequence
from time import monotonic_ns

from seamark.load.driver import Body, Call, Reply, Session, Target, Track
from seamark.model.sample import EventKind, Failure

ENCODE, SEARCH = range(2)


class Stage(threading.Thread):
    """Takes requests from its queue, one at a time, and hands each on when it is done."""

    def __init__(self, target: Target, number: int, sleep_s: float) -> None:
        super().__init__(daemon=True)
        self.number, self.sleep_s = number, sleep_s
        self.events = target.events
        self.requests: queue.SimpleQueue[tuple[int | None, int, queue.SimpleQueue[None]]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        track = None if self.events is None else self.events.track()
        while True:
            query, put_ns, done = self.requests.get()
            begin_ns = monotonic_ns()
            time.sleep(self.sleep_s)
            if track is not None and query is not None:
                track.add(query, self.number, EventKind.WAIT, put_ns, begin_ns)
                track.add(query, self.number, EventKind.RUN, begin_ns, monotonic_ns())
            done.put(None)


class Staged(Call):
    unit = "query"
    kinds: Sequence[str] = ("query",)
    stages: Sequence[str] = ("encode", "search")
    work_count = 60

    def __init__(self, target: Target) -> None:
        names = ("encode_ms", "search_ms")
        self.made = [
            Stage(target, number, float(target.settings.get(name) or 0) / 1e3) for number, name in enumerate(names)
        ]

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        return [Body(content=number) for number in range(count)]

    def session(self) -> Session:
        return StagedSession(self.made)

    def failure(self, error: Exception) -> Failure:
        return Failure.DRIVER


class StagedSession:
    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = stages
        self.done: queue.SimpleQueue[None] = queue.SimpleQueue()

    def call(self, body: Body) -> Reply:
        return self.through(None)

    def call_traced(self, body: Body, query: int) -> Reply:
        return self.through(query)

    def through(self, query: int | None) -> Reply:
        for stage in self.stages:
            stage.requests.put((query, monotonic_ns(), self.done))
            self.done.get()
        return Reply()

    def close(self) -> None:
        pass


class Many(Call):
    """Records as many events in each request as the setting `events` says, none for a load without `keep_events`."""

    unit = "query"
    kinds: Sequence[str] = ("query",)
    stages: Sequence[str] = ("only",)

    def __init__(self, target: Target) -> None:
        self.target = target

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        return [Body(content=None)]

    def session(self) -> Session:
        track = None if self.target.events is None else self.target.events.track()
        return ManySession(track, int(self.target.settings["events"] or 0))

    def failure(self, error: Exception) -> Failure:
        return Failure.DRIVER


class ManySession:
    def __init__(self, track: Track | None, count: int) -> None:
        self.track, self.count = track, count

    def call(self, body: Body) -> Reply:
        return Reply()

    def call_traced(self, body: Body, query: int) -> Reply:
        assert self.track is not None
        begin_ns = monotonic_ns()
        for visit in range(self.count):
            self.track.add(query, 0, EventKind.RUN, begin_ns, monotonic_ns(), visit)
        return Reply()

    def close(self) -> None:
        pass
