"""Retrieval-augmented generation that checks itself: questions and SQL, beside prompts, retrieval and routers.

A question is kept as `context["question"]`; documents found are `context["retrieved_documents"]`, and the answer is
`context["generated_answer"]`.
"""

import re
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.rag_prompts import (
    AnswerGeneratorFormatter,
    AnswerGraderFormatter,
    HallucinationGraderFormatter,
    LLMGeneratorFormatter,
    MonolithFormatter,
    QuestionRewriterFormatter,
    RetrievalGraderFormatter,
    SQLQueryGeneratorFormatter,
    chat,
)
from seamark_pipelines.stages.rag_retrieval import ChromaRetriever, Ingest, Retriever
from seamark_pipelines.stages.routers import BinaryRouter, IndexRouter, MonolithRouter
from seamark_pipelines.stages.seeded import place

__all__ = [
    "AnswerGeneratorFormatter",
    "AnswerGraderFormatter",
    "BinaryRouter",
    "ChromaRetriever",
    "HallucinationGraderFormatter",
    "IndexRouter",
    "Ingest",
    "LLMGeneratorFormatter",
    "MonolithFormatter",
    "MonolithRouter",
    "QuestionRewriterFormatter",
    "RAGDataLoader",
    "RetrievalGraderFormatter",
    "Retriever",
    "SQLQueryGeneratorFormatter",
    "SQLiteSearch",
    "SelfRAGDataLoader",
]


class SelfRAGDataLoader(Stage):
    """Questions of a data set: a text, or a list with a `batch_size` above one.

    `dataset` has name, subset, split, question_column, and answers_column for the right answers, which the answers
    are scored with.
    """

    counts = "item"

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._size = int(self.extra_config.get("batch_size", 1))
        self._rows: Sequence[Mapping[str, Any]] = ()

    def get_batch_size(self) -> int:
        """Return the questions of a query."""
        return self._size

    def get_dataset_splits(self) -> dict[str, int]:
        return {"val": len(self._rows) // self._size}

    def prepare(self) -> None:
        self._rows = self._questions(self.extra_config["dataset"])

    def run(self, query: Query) -> dict[int, Query]:
        first = query.batch * self._size
        rows = [self._rows[(first + number) % len(self._rows)] for number in range(self._size)]
        questions = [row["question"] for row in rows]
        answers = [row["answers"] for row in rows]
        one = self._size == 1
        query.data = questions[0] if one else questions
        query.context = {"question": query.data, "original_query": query.data}
        if any(answers):
            query.context["golden_answers"] = answers[0] if one else answers
        self.count(self._size)
        return super().run(query)

    def _questions(self, source: Mapping[str, Any]) -> list[dict[str, Any]]:
        from seamark_pipelines.stages.huggingface_data import rows_of

        column, answers = source.get("question_column", "question"), source.get("answers_column")
        found = []
        for row in rows_of(source, source.get("split", "test")):
            right = row.get(answers) if answers else None
            right = [] if right is None else [right] if isinstance(right, str) else list(right)
            found.append({"question": row[column], "answers": right})
        return found


class RAGDataLoader(SelfRAGDataLoader):
    """Questions for the index router: those of two data sets, in turns, one for the database and one for the model.

    `dataset` and `sql_dataset` name them; by default those of the original benchmark, on the hub. `data` becomes the
    router's prompt.
    """

    task = (
        "You route a question either to a SQLite database with records of accounting, or to a language model. Answer "
        'with a JSON object and nothing else: {"index_backend": "sqlite"} or {"index_backend": "llm"}.'
    )

    def prepare(self) -> None:
        config = self.extra_config
        plain = {"name": "RUC-NLPIR/FlashRAG_datasets", "subset": "web_questions", "answers_column": "golden_answers"}
        files = {"val": "BookSQL/val.json"}
        of_sql = {
            "name": "Exploration-Lab/BookSQL",
            "data_files": files,
            "split": "val",
            "question_column": "Query",
        }
        self._tokenizer = self.dispatch_call(int(config.get("tokenizer_stage_id", 1)), "get_tokenizer")
        pairs = zip(
            self._questions(config.get("dataset", plain)),
            self._questions(config.get("sql_dataset", of_sql)),
            strict=False,
        )
        self._rows = [row for pair in pairs for row in pair]

    def run(self, query: Query) -> dict[int, Query]:
        outputs = super().run(query)
        asked = [query.data] if isinstance(query.data, str) else query.data
        query.data = [chat(self._tokenizer, self.task, text) for text in asked]
        return outputs


class SQLiteSearch(Stage):
    """Runs the SQL in `data` on the database `db_path`, read only; `data` becomes its rows, or the error as text."""

    def __init__(self, stage_config: StageModel, pipeline_config: PipelineModel) -> None:
        super().__init__(stage_config, pipeline_config)
        self._path = place(str(self.extra_config["db_path"]))
        self._most = int(self.extra_config.get("max_rows", 100))
        self._here = threading.local()

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)

    def get_schema(self) -> list[tuple[str, str]]:
        """Return name and definition of each table."""
        with closing(self._opened()) as connection:
            return connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()

    def prepare(self) -> None:
        self.get_schema()

    def pre_run(self) -> None:
        self._here.connection = self._opened()

    def run(self, query: Query) -> dict[int, Query]:
        text = query.data[0] if isinstance(query.data, list) else query.data
        fenced = re.search(r"```(?:sql)?\s*(.*?)```", text, re.DOTALL)
        try:
            query.data = self._here.connection.execute(fenced[1] if fenced else text).fetchmany(self._most)
        except (sqlite3.Error, sqlite3.Warning) as error:  # a model writes what it likes
            query.data = f"error: {error}"
        return super().run(query)

    def post_run(self) -> None:
        self._here.connection.close()
