"""Chains of stages that do nothing: ours and a bare one of threads; as a script, the memory that ours takes."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from child import answer, us_a_stage

from seamark.load.workers.events import EventFile
from seamark_pipelines.flow.flow import Flow
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import LoadGen, PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.overhead import CopyStage, DataInjector


def bare_us(depth: int, queries: int) -> float:
    """Return the time of one stage in a bare chain of threads, in us."""
    queues: list[SimpleQueue[int | None]] = [SimpleQueue() for _ in range(depth + 1)]

    def hand_on(number: int) -> None:
        while (item := queues[number].get()) is not None:
            queues[number + 1].put(item)
        queues[number + 1].put(None)

    def call(query: int) -> None:
        queues[0].put(query)
        queues[-1].get()

    for number in range(depth):
        threading.Thread(target=hand_on, args=(number,)).start()
    took_us = us_a_stage(call, depth, queries)
    queues[0].put(None)  # ends one thread after the other
    queues[-1].get()
    return took_us


def flow_us(depth: int, queries: int, **options: Any) -> float:
    """Return the time of one stage in a pipeline, in us; options as of `chain`."""
    with chain(depth, **options) as call:
        return us_a_stage(call, depth, queries)


@contextmanager
def chain(
    depth: int, *, events: bool = True, payload: int | None = None, copied: bool = False
) -> Iterator[Callable[[int], object]]:
    """Give the function that sends a query through a pipeline of `depth` stages and waits for its end; `payload` in
    bytes, None: queries without data."""
    kinds = [Stage if payload is None else DataInjector, *[CopyStage if copied else Stage] * (depth - 1)]
    config = {"payload_size": payload or 0}
    spec = StageModel(id=0, name="stage", slug="stage", component="", config=config, repeat=depth)
    ends = {"inputs": (0,), "outputs": (0,), "dataset_stage_id": 0}
    model = PipelineModel(name="chain", slug="chain", loadgen=LoadGen(), stages=(spec,), **ends).expanded
    with tempfile.TemporaryDirectory() as folder, EventFile(Path(folder) / "events", 0) as file:
        file.epoch_ns = time.monotonic_ns()
        stages = {spec.id: kind(spec, model) for spec, kind in zip(model.stages, kinds, strict=True)}
        flow = Flow(model, stages, file if events else None, timeout_s=60)
        flow.start()
        yield lambda number: flow.call(
            Query(split="train", batch=0, query_submitted_timestamp=0.0, query_id=number), number
        )
        flow.stop()


def memory_mb(depth: int, queries: int) -> list[float]:
    """Return the resident memory of this process in MB after 1,000 queries, after `queries` more, and its peak."""

    def resident_mb(name: str) -> float:
        return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024 / 1e6

    with chain(depth) as call:
        for number in range(1000 + queries):
            if number == 1000:
                base_mb = resident_mb("VmRSS")
            call(number)
        return [base_mb, resident_mb("VmRSS"), resident_mb("VmHWM")]


if __name__ == "__main__":
    answer(memory_mb)
