"""Routers of answers and verdicts, without a library: each sends a query to one of the stages after it."""

import json
from typing import Any

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query


class BinaryRouter(Stage):
    """Sends a query on by whether its data say yes: a text, or the `score` of a structured answer.

    There is a budget for each query: the way that repeats, yes with `retry_is_yes` else no, is taken `max_retries`
    times; after that the query goes to `end_stage_id`, with None as its data.
    """

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        config = self.extra_config
        self._yes, self._no = int(config["yes_stage_id"]), int(config["no_stage_id"])
        self._end = int(config["end_stage_id"])
        self._retries = int(config.get("max_retries", 0))
        self._retry_is_yes = bool(config.get("retry_is_yes", False))

    def run(self, query: Query) -> dict[int, Query]:
        found = query.data[0] if isinstance(query.data, (list, tuple)) and query.data else query.data
        yes = found.score if hasattr(found, "score") else "yes" in str(found).lower()
        way = self._yes if yes else self._no
        if yes == self._retry_is_yes and spent_of(query, self.id) > self._retries:
            query.data = None
            way = self._end
        return {way: query}


class IndexRouter(Stage):
    """Sends a query to `sqlite_stage_id` if its data name sqlite, else to `llm_stage_id`."""

    def run(self, query: Query) -> dict[int, Query]:
        found = query.data[0] if isinstance(query.data, list) else query.data
        text = found if isinstance(found, str) else found.model_dump_json()
        key = "sqlite_stage_id" if "sqlite" in text.lower() else "llm_stage_id"
        return {int(self.extra_config[key]): query}


class MonolithRouter(Stage):
    """Sends an answer with good verdicts to `accept_stage_id`, any other to `retry_stage_id` at most `max_retries`
    times, then to `end_stage_id`. `data` becomes the answer, None where the budget is spent without one."""

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._retries = int(self.extra_config.get("max_retries", 2))

    def run(self, query: Query) -> dict[int, Query]:
        config = self.extra_config
        found = object_in(str(query.data[0] if isinstance(query.data, list) else query.data))
        answer = str(found.get("answer") or "")
        query.context["generated_answer"] = answer
        verdicts = [str(found.get(key, "")).strip().lower() for key in ("relevance_grade", "hallucination_check")]
        if answer and verdicts == ["yes", "no"]:
            query.data = answer
            return {int(config["accept_stage_id"]): query}
        if spent_of(query, self.id) <= self._retries:
            query.data = question_of(query)
            return {int(config["retry_stage_id"]): query}
        query.data = answer or None
        return {int(config["end_stage_id"]): query}


def object_in(text: str) -> dict[str, Any]:
    """Return the JSON object in a text, an empty one without any."""
    first, last = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[first : last + 1])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def question_of(query: Query) -> str:
    """Return the question that a query began with."""
    found = query.context.get("question", query.context.get("original_query", query.data))
    return str(found[0] if isinstance(found, list) and len(found) == 1 else found)


def spent_of(query: Query, id: int) -> int:
    """Return how many retries of a router a query has spent, with the one that it spends now."""
    assert query.ticket is not None
    spent = query.ticket.spent[id] = query.ticket.spent.get(id, 0) + 1
    return spent
