"""What a pipeline's flow adds to its stages: `python benchmarks/pipelines.py`.

    python benchmarks/pipelines.py --rounds 5

A chain of stages that do nothing takes one query after another, with events recorded, beside a bare chain of threads
on `queue.SimpleQueue`, in turns within a round. Times are medians over rounds of the time of one stage; the first
query of a run is left out. The second table hands over a payload by reference and by copy; the third is what events
add. Ratios are within a round.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from seamark.load.workers.events import EventFile
from seamark_pipelines.flow.flow import Flow
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import LoadGen, PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.overhead import CopyStage, DataInjector

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 100)
PAYLOADS = (0, 1 << 10, 1 << 20, 10 << 20)
STAGES_A_RUN = 20_000
"""Runs of stages in one measurement: the number of queries follows from the depth."""


def bare_us(depth: int) -> float:
    """Return the time of one stage in a bare chain of threads, in us."""
    queues: list[SimpleQueue[int | None]] = [SimpleQueue() for _ in range(depth + 1)]

    def hand_on(number: int) -> None:
        while (item := queues[number].get()) is not None:
            queues[number + 1].put(item)
        queues[number + 1].put(None)

    threads = [threading.Thread(target=hand_on, args=(number,)) for number in range(depth)]
    for thread in threads:
        thread.start()
    queries = max(20, STAGES_A_RUN // depth)
    for query in range(queries + 1):
        if query == 1:
            began_s = time.perf_counter()
        queues[0].put(query)
        queues[-1].get()
    took_s = time.perf_counter() - began_s
    queues[0].put(None)
    for thread in threads:
        thread.join()
    return took_s / queries / depth * 1e6


def flow_us(depth: int, *, events: bool = True, payload: int = 0, copied: bool = False) -> float:
    """Return the time of one stage in a pipeline, in us."""
    kinds = [DataInjector, *[CopyStage if copied else Stage] * (depth - 1)] if payload else [Stage] * depth
    specs = tuple(
        StageModel(
            id=number,
            name=f"stage {number}",
            slug=f"stage_{number}",
            component="",
            outputs=(number + 1,) if number + 1 < depth else (),
            config={"payload_size": payload},
        )
        for number in range(depth)
    )
    model = PipelineModel(
        name="chain",
        slug="chain",
        inputs=(0,),
        outputs=(depth - 1,),
        dataset_stage_id=0,
        loadgen=LoadGen(),
        stages=specs,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = EventFile(Path(folder) / "events", 0)
        file.epoch_ns = time.monotonic_ns()
        stages = {spec.id: kind(spec, model) for spec, kind in zip(specs, kinds, strict=True)}
        flow = Flow(model, stages, file if events else None, timeout_s=60)
        flow.start()
        queries = max(20, (STAGES_A_RUN if not copied else 400) // depth)
        for number in range(queries + 1):
            if number == 1:
                began_s = time.perf_counter()
            query = Query(split="train", batch=0, query_submitted_timestamp=0.0, query_id=number)
            flow.call(query, number)
        took_s = time.perf_counter() - began_s
        flow.stop()
    return took_s / queries / depth * 1e6


def rounds_of(rounds: int, *measures: Callable[[], float]) -> list[list[float]]:
    """Return what each function measured in each round, in turns."""
    found: list[list[float]] = [[] for _ in measures]
    for number in range(rounds):
        for place in range(len(measures)):
            chosen = (place + number) % len(measures)
            found[chosen].append(measures[chosen]())
    return found


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("depth  bare us  pipeline us  ratio (least to most)")
    for depth in DEPTHS:
        bare, flow = rounds_of(rounds, lambda depth=depth: bare_us(depth), lambda depth=depth: flow_us(depth))
        ratios = [ours / theirs for ours, theirs in zip(flow, bare, strict=True)]
        print(
            f"{depth:5d}  {statistics.median(bare):7.1f}  {statistics.median(flow):11.1f}  "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )
    print("\npayload bytes  by reference us  by copy us")
    for payload in PAYLOADS:
        kept, copied = rounds_of(
            rounds,
            lambda payload=payload: flow_us(10, payload=max(1, payload)),
            lambda payload=payload: flow_us(10, payload=max(1, payload), copied=True),
        )
        print(f"{payload:13d}  {statistics.median(kept):15.1f}  {statistics.median(copied):10.1f}", flush=True)
    on, off = rounds_of(rounds, lambda: flow_us(10), lambda: flow_us(10, events=False))
    added = [with_events - without for with_events, without in zip(on, off, strict=True)]
    print(f"\nevents add {statistics.median(added):.1f} us to a stage ({min(added):.1f} to {max(added):.1f})")


if __name__ == "__main__":
    main()
