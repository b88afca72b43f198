"""Call drivers that misbehave in ways the engine must bear. Imported by worker processes in the tests."""

import resource
import threading
import time
from collections.abc import Sequence

from seamark.load.driver import Body, Reply, Session, Target, whole
from seamark.model.sample import Failure


class Sleeping:
    """Each call sleeps for `sleep_s`; call number `hang_at` of a session sleeps for ever."""

    unit = "call"
    kinds: Sequence[str] = ("even", "odd")

    def __init__(self, target: Target) -> None:
        self.sleep_s = float(target.settings.get("sleep_s") or 0)
        self.hang_at = target.settings.get("hang_at")
        self.busy = threading.Semaphore(int(target.settings.get("most_busy") or 1_000_000))

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        return [Body(content=number, kind=number % 2) for number in range(10)]

    def session(self) -> Session:
        return SleepingSession(self)

    def failure(self, error: Exception) -> Failure:
        return {"refused": Failure.CONNECT, "reset": Failure.RESET}.get(str(error), Failure.DRIVER)


class SleepingSession:
    def __init__(self, driver: Sleeping) -> None:
        self.driver = driver
        self.calls = 0

    def call(self, body: Body) -> Reply:
        self.calls += 1
        if not self.driver.busy.acquire(blocking=False):
            return Reply(failure=Failure.WRONG_REPLY)
        try:
            if self.calls == self.driver.hang_at:
                time.sleep(3600)
            time.sleep(self.driver.sleep_s)
        finally:
            self.driver.busy.release()
        return Reply(units=1 + body.kind, bytes_sent=10, bytes_received=20, status=7)

    def close(self) -> None:
        pass


class Raising(Sleeping):
    """Sessions whose calls raise: every third one, as a reset; a session that raised raises ever after."""

    def session(self) -> Session:
        return RaisingSession(self)


class RaisingSession(SleepingSession):
    def call(self, body: Body) -> Reply:
        self.calls += 1
        if self.calls >= 3:
            raise RuntimeError("reset")
        return Reply()


class Clinging(Sleeping):
    """Sessions whose calls raise, as a reset, and whose end never comes."""

    def session(self) -> Session:
        return ClingingSession(self)


class ClingingSession(SleepingSession):
    def call(self, body: Body) -> Reply:
        raise RuntimeError("reset")

    def close(self) -> None:
        time.sleep(3600)


class Refusing(Sleeping):
    """The first session works once; no other session can be had."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.sessions = 0

    def session(self) -> Session:
        self.sessions += 1
        if self.sessions > 1:
            raise RuntimeError("refused")
        session = RaisingSession(self)
        session.calls = 1
        return session


class Filling(Sleeping):
    """In worker 1 no file may grow beyond 20 kB: what a full disk looks like to a write."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        if target.worker == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


class Unmade(Sleeping):
    """Cannot be made."""

    def __init__(self, target: Target) -> None:
        raise ValueError("no such index: /nowhere")


def stage(target: Target, seed: int) -> dict[str, object]:
    print("a library that prints")
    return {"seed": seed, "size_bytes": 12, "setting": target.settings["size"]}


def populate(target: Target, seed: int) -> dict[str, object]:
    if target.settings.get("sleep_s"):
        time.sleep(3600)
    raise RuntimeError(target.settings.get("says") or "disk quota exceeded")


def quality(target: Target, seed: int) -> dict[str, float]:
    return {"recall_at_10": 0.5}


class Slow(Sleeping):
    """A work list whose items take 0.1 s each."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.work_count = whole(target.settings, "items")

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        return [Body(content=number) for number in range(count)]

    def session(self) -> Session:
        return SlowSession(self)


class SlowSession(SleepingSession):
    def call(self, body: Body) -> Reply:
        time.sleep(0.1)
        return Reply()


class Telling(Sleeping):
    """Says when the first unit of each reply came, and keeps every other reply; body number 3 is a long one."""

    def session(self) -> Session:
        return TellingSession(self)


class TellingSession(SleepingSession):
    def call(self, body: Body) -> Reply:
        first_ns = time.monotonic_ns()
        time.sleep(0.002)
        text = f"answer {body.content} ".encode() * (50_000 if body.content == 3 else 1)
        return Reply(units=2, first_ns=first_ns, kept=None if body.content % 2 == 0 else text)


class Conflicting(Sleeping):
    """Every other request is in conflict with another one, at its first two tries."""

    def session(self) -> Session:
        return ConflictingSession(self)


class ConflictingSession(SleepingSession):
    def call(self, body: Body) -> Reply:
        self.calls += 1
        time.sleep(0.005)
        if body.kind and self.calls % 3:
            return Reply(units=0, failure=Failure.SERIALIZATION_FAILURE, error=f"40001: try {self.calls}")
        self.calls = 0
        return Reply()
