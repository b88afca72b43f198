"""Stages without work of their own, to measure what the flow adds: a payload, a copy of it, other stages in one."""

import copy
from dataclasses import replace
from typing import Any

from seamark_pipelines.flow.source_names import get_component
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


class Together(Stage):
    """Runs several stages one after another as a plain loop does, without queues or threads between them.

    `stages` is a list of components with their `config`; references between them are places in this list, from 0.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        models = [
            replace(stage_config, id=place, component=inner["component"], config=inner.get("config") or {})
            for place, inner in enumerate(self.extra_config["stages"])
        ]
        self._inner: list[Stage] = [get_component(model.component)(model, pipeline_config) for model in models]
        self.counts = next((stage.counts for stage in self._inner if stage.counts), None)  # type: ignore[misc]
        for stage in self._inner:
            stage.stages, stage.counting = dict(enumerate(self._inner)), stage.counts == self.counts

    def prepare(self) -> None:
        for stage in self._inner:
            stage.prepare()

    def pre_run(self) -> None:
        for stage in self._inner:
            stage.pre_run()

    def post_run(self) -> None:
        for stage in self._inner:
            stage.post_run()

    def get_dataset_splits(self) -> dict[str, int]:
        return self._inner[0].get_dataset_splits()

    def run(self, query: Query) -> dict[int, Query]:
        for stage in self._inner:
            stage.run(query)
        return super().run(query)
