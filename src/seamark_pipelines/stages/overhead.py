"""Stages without work of their own, to measure what the flow adds: a payload, and a copy of it."""

import copy
from typing import Any

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query


class DataInjector(Stage):
    """Gives queries without data a payload of `payload_size` bytes, the same object for all."""

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._payload: Any = bytearray(int(self.extra_config.get("payload_size", 0)))

    def run(self, query: Query) -> dict[int, Query]:
        if query.data is None:
            query.data = self._payload
        return super().run(query)


class CopyStage(Stage):
    """Makes a deep copy of the data of each query."""

    def run(self, query: Query) -> dict[int, Query]:
        query.data = copy.deepcopy(query.data)
        return super().run(query)
