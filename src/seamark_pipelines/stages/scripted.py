"""Stages that follow a script: known times, answers from a table, errors and hangs on demand. No library."""

import random
import time
from typing import Any

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.routers import BinaryRouter

__all__ = ["BinaryRouter", "Loader", "Scripted"]


class Loader(Stage):
    """Has `splits` (batches of each split) and `batch_size` items a query: `data` is the numbers of its items."""

    counts = "item"

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._splits = {
            str(name): int(count) for name, count in self.extra_config.get("splits", {"train": 1}).items()
        }
        self._size = int(self.extra_config.get("batch_size", 1))

    def get_dataset_splits(self) -> dict[str, int]:
        return self._splits

    def run(self, query: Query) -> dict[int, Query]:
        first = query.batch * self._size
        query.data = list(range(first, first + self._size))
        self.count(self._size)
        return super().run(query)


class Scripted(Stage):
    """Works for a known time, then answers.

    - `cpu_ms`: processor time; `sleep_ms`: time without a processor. `spread`: exponential, or none (constant).
    - `answers`: what `data` becomes, by the number of the query and then of its visit here, both taken modulo; a list
      of lists, or a list for all visits.
    - `route`: ids of stages by answer: the query goes to that one alone.
    - `error_every`, `hang_every`: every n-th query raises, or does not return for `hang_s`.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        config = self.extra_config
        self._cpu_s = float(config.get("cpu_ms", 0)) / 1e3
        self._sleep_s = float(config.get("sleep_ms", 0)) / 1e3
        self._random = random.Random(stage_config.id) if config.get("spread") == "exponential" else None
        self._answers: list[Any] | None = config.get("answers")
        self._route = {str(answer): int(id) for answer, id in config.get("route", {}).items()}
        self._error_every, self._hang_every = int(config.get("error_every", 0)), int(config.get("hang_every", 0))
        self._hang_s = float(config.get("hang_s", 3600))
        self._visits: dict[Any, int] = {}
        self._seen = 0

    def run(self, query: Query) -> dict[int, Query]:
        self._seen += 1
        factor = self._random.expovariate(1) if self._random else 1.0
        if self._cpu_s:
            until_s = time.thread_time() + factor * self._cpu_s
            while time.thread_time() < until_s:
                pass
        if self._sleep_s:
            time.sleep(factor * self._sleep_s)
        if self._error_every and self._seen % self._error_every == 0:
            raise RuntimeError(f"query {query.query_id} is the {self._seen}th, which fails by its script")
        if self._hang_every and self._seen % self._hang_every == 0:
            time.sleep(self._hang_s)
        if self._answers is None:
            return super().run(query)
        visit = self._visits[query.query_id] = self._visits.get(query.query_id, -1) + 1
        rows = self._answers[int(query.query_id) % len(self._answers)] if _nested(self._answers) else self._answers
        query.data = rows[visit % len(rows)]
        if str(query.data) in self._route:
            return {self._route[str(query.data)]: query}
        return super().run(query)


def _nested(answers: list[Any]) -> bool:
    return all(isinstance(row, list) for row in answers)
