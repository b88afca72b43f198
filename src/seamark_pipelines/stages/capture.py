"""A last stage that keeps the answer of each query."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query

ANSWERS = "answers.jsonl"
MATCH = "answer_match"
"""The share of queries whose answer has a right one in it, of those whose right answers are known."""


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
        line["match"] = matches(line)
        if self.folder is not None:
            with self._lock, (self.folder / ANSWERS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return super().run(query)


def plain(value: Any) -> Any:
    """Return a value as JSON can have it; what it cannot have as text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else repr(value)


def matches(line: Mapping[str, Any]) -> float | None:
    """Return whether an answer has one of the right ones in it, by words without case and punctuation: 1 or 0, of a
    batch the share of its items. None where no right one is known; 0 for a query that ended without an answer."""
    right = line["golden_answers"]
    if not right:
        return None
    if line["final_data"] is None:
        return 0.0
    said = line["generated_answer"] if line["generated_answer"] is not None else line["final_data"]
    if not isinstance(right, list) or not isinstance(right[0], list):
        return float(_has(said, right if isinstance(right, list) else [right]))
    items = said if isinstance(said, list) else [said]
    return sum(_has(one, known) for one, known in zip(items, right, strict=False)) / len(right)


def _has(said: Any, right: list[Any]) -> bool:
    text = " ".join(map(str, said)) if isinstance(said, list) else str(said)
    words = f" {_words(text)} "
    return any(_words(one) and f" {_words(one)} " in words for one in right)


def _words(value: Any) -> str:
    return " ".join(re.findall(r"\w+", str(value).lower()))


def match_of(folder: Path) -> dict[str, float]:
    """Return MATCH of the answers in a trial's folder of files; nothing where no right answers are known."""
    path = folder / ANSWERS
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8") as file:
        known = [found for line in file if (found := json.loads(line)["match"]) is not None]
    return {MATCH: sum(known) / len(known)} if known else {}
