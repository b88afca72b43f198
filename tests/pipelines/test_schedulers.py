"""Schedulers written for the original benchmark: what they put into the queue is sent, what they raise said."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns, sleep
from typing import Any

import numpy as np
import pytest

from seamark.load.driver import NoMoreRequests, Target, TaskFailure
from seamark_pipelines.cli.colocate import notes_of
from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.drivers.pipeline import Pipeline
from seamark_pipelines.flow.schedulers import OWN, Generated, LoadScheduler
from seamark_pipelines.flow.source_names import open_names
from seamark_pipelines.model.query import Query

SCHEDULERS = """\
from time import sleep, time

from loadgen.schedulers.scheduler import LoadScheduler
from utils.schemas import Query


class Timed(LoadScheduler):
    def generate(self, queue, event):
        self.timer.start()
        batch = 0
        while not self.stop and batch < self.max_queries:
            queue.put_nowait(Query(split="train", batch=batch, query_submitted_timestamp=time()))
            batch += 1
            sleep(0.05)
        queue.put(None)
        self.timer.cancel()


class Broken(LoadScheduler):
    def generate(self, queue, event):
        queue.put(Query(split="train", batch=0, query_submitted_timestamp=time()))
        raise KeyError("no such split")


class Late(LoadScheduler):
    def arrivals(self, rng):
        yield 0.0
        raise ValueError("no more times")
"""
FILE = """\
pipelines:
  - name: one
    inputs: [0]
    outputs: [0]
    loadgen: {{component: loadgen.schedulers.mine.{name}, max_queries: {queries}, timeout: {timeout}}}
    stages:
      - {{name: only, id: 0, component: stages.Stage}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "loadgen/schedulers").mkdir(parents=True)
    (tmp_path / "loadgen/schedulers/mine.py").write_text(SCHEDULERS)
    monkeypatch.chdir(tmp_path)
    before, finders = set(sys.modules), list(sys.meta_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("stages", "loadgen", "utils"):
            del sys.modules[name]
    sys.meta_path[:] = finders


def sent(name: str, queries: int, timeout: float) -> Iterator[int]:
    """Send queries by a scheduler until it has no more; yield the time at which each was due."""
    Path("own.yml").write_text(FILE.format(name=name, queries=queries, timeout=timeout))
    settings = {"graph": "own.yml", "scheduler": f"loadgen.schedulers.mine.{name}", "requests": queries}
    driver = Pipeline(Target(settings=settings, data=Path(), files=Path("files")))
    try:
        for index in range(queries + 1):
            reply = driver.send(driver.bodies(1, 0)[0], index)
            assert not reply.failure
            assert reply.began_ns is not None
            yield reply.began_ns
    except NoMoreRequests:
        return
    finally:
        driver.ended()


@pytest.mark.covers("A4", "A6")
def test_a_scheduler_that_uses_its_timer_sends_until_its_queries_or_its_time_are_over(folder: Path) -> None:
    assert len(list(sent("Timed", 3, 60))) == 3
    last = (folder / "files/log.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["lateness"] == "unknown"
    assert any("unknown" in note for note in notes_of(read_pipelines(Path("own.yml")), None))
    assert 1 <= len(list(sent("Timed", 1000, 0.2))) < 100


@pytest.mark.covers("A4")
def test_a_scheduler_that_raises_fails_the_trial_with_what_it_said(folder: Path) -> None:
    with pytest.raises(TaskFailure) as failure:
        list(sent("Broken", 5, 60))
    assert failure.value.category == "scheduler_failed"
    assert "KeyError: 'no such split'" in str(failure.value)
    open_names(folder)
    settings = {"scheduler": "loadgen.schedulers.mine.Late", "scheduler_config": json.dumps({})}
    pattern = OWN.make(settings, 10.0)
    assert pattern is not None
    with pytest.raises(TaskFailure, match="ValueError: no more times") as failure:
        list(pattern.blocks(np.random.default_rng(1)))
    assert failure.value.category == "scheduler_failed"


class Eager(LoadScheduler):
    """Puts three queries at once, and says before each which it is."""

    began = 0

    def generate(self, queue: Any, event: object) -> None:
        for batch in range(3):
            self.began += 1
            queue.put_nowait(Query(split="train", batch=batch, query_submitted_timestamp=0.0))


@pytest.mark.serial
@pytest.mark.covers("A4")
def test_a_query_that_waits_for_room_in_the_queue_is_due_when_it_was_put() -> None:
    scheduler = Eager(3, 60.0, {}, {"train": 3})
    generated = Generated(scheduler, depth=1)
    generated.next()
    while scheduler.began < 3:
        sleep(0.001)
    sleep(0.05)
    asked_ns = monotonic_ns()
    assert generated.next()[1] < asked_ns
    assert generated.next()[1] < asked_ns
    with pytest.raises(NoMoreRequests):
        generated.next()
