"""LoRA steps of a small Llama as a pipeline and as a plain loop of PyTorch, in turns; in the environment `pipelines`.

Both have a model and a data loader of the same seed, so that they do the same work on the same batches.
"""

import tempfile
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from time import monotonic, monotonic_ns, process_time_ns
from typing import Any

from child import answer

from seamark.load.workers.events import EventFile
from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.flow.flow import Flow
from seamark_pipelines.flow.source_names import get_component, open_names
from seamark_pipelines.model.query import Query

open_names(Path("/"))
FILE = Path(__file__).parents[2] / "pipeline_configs/overhead.yml"
SHORT = {"stages.0.config.batch_size": 1}
"""Batches of one: what a step costs besides is the larger part of it."""
MODEL = read_pipelines(FILE).pipeline("Training in stages").with_settings(SHORT)


def prepared() -> dict[int, Any]:
    """Return the stages by id."""
    stages: dict[int, Any] = {spec.id: get_component(spec.component)(spec, MODEL) for spec in MODEL.stages}
    for stage in stages.values():
        stage.stages = stages
    for stage in stages.values():
        stage.prepare()
    return stages


def pipeline(file: EventFile) -> Iterator[float]:
    """Yield the loss of each step of the pipeline, its events recorded."""
    file.epoch_ns = monotonic_ns()
    flow = Flow(MODEL, prepared(), file, timeout_s=100)
    flow.start()
    for number in count():
        query = Query(split="train", batch=0, query_submitted_timestamp=0.0, query_id=number)
        yield flow.call(query, number).query.data


def loop() -> Iterator[float]:
    """Yield the loss of each step of a loop with the same loader, model and optimizer."""
    data, tuned = prepared().values()
    model, optimizer, schedule = tuned.model, tuned._optimizer, tuned._schedule
    while True:
        for batch in data.loaders["train"]:
            model.train()
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            yield loss.item()


def blocks(seconds: float) -> list[Any]:
    """Take steps for some seconds in blocks of four: pipeline, loop, loop, pipeline. Return of each block the two
    steps of the pipeline and the two of the loop, each as its wall time and CPU time in ns."""
    until_s, found = monotonic() + seconds, []
    while monotonic() < until_s:
        times_ns, losses = [(monotonic_ns(), process_time_ns())], []
        for step in (OURS, PLAIN, PLAIN, OURS):
            losses.append(next(step))
            times_ns.append((monotonic_ns(), process_time_ns()))
        assert losses[::3] == losses[1:3], f"the losses differ: {losses}"
        steps = [(wall - began, cpu - used) for (began, used), (wall, cpu) in pairwise(times_ns)]
        first, second, third, fourth = steps
        found.append([[first, fourth], [second, third]])
    return found


with tempfile.TemporaryDirectory() as folder, EventFile(Path(folder) / "events", 0) as file:
    OURS, PLAIN = pipeline(file), loop()
    assert next(OURS) == next(PLAIN), "the first losses differ"
    answer(blocks)
