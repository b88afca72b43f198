"""A last stage that keeps the answer of each query."""

import json
from threading import Lock
from typing import Any

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query


class TerminalCapture(Stage):
    """Writes a line for each query into answers.jsonl of the trial, and hands the query on."""

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._lock = Lock()

    def run(self, query: Query) -> dict[int, Query]:
        context = query.context
        line = {
            "query_id": str(query.query_id),
            "split": query.split,
            "epoch": query.epoch,
            "batch": query.batch,
            "question": plain(context.get("question") or context.get("original_query")),
            "golden_answers": plain(context.get("golden_answers")),
            "retrieved_documents": plain(context.get("retrieved_documents")),
            "generated_answer": plain(context.get("generated_answer")),
            "final_data": plain(query.data),
        }
        if self.folder is not None:
            with self._lock, (self.folder / "answers.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return super().run(query)


def plain(value: Any) -> Any:
    """Return a value as JSON can have it; what it cannot have as text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else repr(value)
