"""Retrieval-augmented generation that checks itself: questions, SQL, retrieval, prompts of graders and generators.

A question is kept as `context["question"]`; documents found are `context["retrieved_documents"]`, and the answer is
`context["generated_answer"]`.
"""

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

import numpy as np

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.routers import BinaryRouter, IndexRouter, MonolithRouter, question_of
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
DIMENSIONS = 4096
"""Length of the vector of a text in a FAISS index: TF-IDF of its words, hashed."""
LONGEST_DOCUMENT = 400
"""Characters of a document in the prompt of a rewriter."""


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
        from seamark_pipelines.stages.llm_huggingface import rows_of

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
        of_sql = {"name": "Exploration-Lab/BookSQL", "split": "val", "question_column": "Query"}
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
        self._rows = int(self.extra_config.get("max_rows", 100))

    def _opened(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)

    def get_schema(self) -> list[tuple[str, str]]:
        """Return name and definition of each table."""
        with closing(self._opened()) as connection:
            return connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()

    def prepare(self) -> None:
        self.get_schema()

    def pre_run(self) -> None:
        self._connection = self._opened()

    def run(self, query: Query) -> dict[int, Query]:
        text = query.data[0] if isinstance(query.data, list) else query.data
        fenced = re.search(r"```(?:sql)?\s*(.*?)```", text, re.DOTALL)
        try:
            query.data = self._connection.execute(fenced[1] if fenced else text).fetchmany(self._rows)
        except (sqlite3.Error, sqlite3.Warning) as error:  # a model writes what it likes
            query.data = f"error: {error}"
        return super().run(query)

    def post_run(self) -> None:
        self._connection.close()


class Retriever(Stage):
    """Finds the `top_k` documents that are nearest to the question in `data`, and adds them to those found before.

    `corpus_dataset` has name, split, text_column and max_docs, or context_column for passages that lie with their
    questions, as in HotpotQA. `index` is `bm25`, or `faiss`: the inner product of TF-IDF vectors.
    """

    index: ClassVar[str] = "bm25"

    def prepare(self) -> None:
        from seamark_pipelines.stages.llm_huggingface import rows_of

        config: Mapping[str, Any] = self.extra_config["corpus_dataset"]
        rows = rows_of(config, config.get("split", "train"))
        most = int(config.get("max_docs", 5000))
        nested = config.get("context_column")
        if nested:
            texts = [text for row in rows for text in passages_of(row[nested])]
        else:
            texts = [text for text in rows[config.get("text_column", "output")] if text and text.strip()]
        self._texts = list(dict.fromkeys(texts))[:most]
        if not self._texts:
            raise ValueError("the corpus has no text")
        self._most = min(int(self.extra_config.get("top_k", 3)), len(self._texts))
        kind = self.extra_config.get("index", self.index)
        if kind not in INDEXES:
            raise ValueError(f"the index '{kind}' is none of {', '.join(INDEXES)}")
        self._index = INDEXES[kind]()
        self._index.add(self._texts)

    def run(self, query: Query) -> dict[int, Query]:
        question = query.data[0] if isinstance(query.data, list) else query.data
        query.context.pop("is_retry", None)
        found = [self._texts[number] for number in self._index.nearest(question, self._most)]
        before = query.context.get("retrieved_documents") or []
        query.context["retrieved_documents"] = list(dict.fromkeys([*before, *found]))
        query.data = query.context["retrieved_documents"]
        return super().run(query)


class ChromaRetriever(Retriever):
    """The original's retriever, on a FAISS index: Chroma would download the model of its vectors."""

    index: ClassVar[str] = "faiss"


class Bm25:
    """BM25 over texts, by bm25s."""

    def __init__(self) -> None:
        import bm25s

        self._library = bm25s
        self._texts: list[str] = []

    def add(self, texts: Sequence[str]) -> None:
        """Add texts, and rank all anew."""
        self._texts += texts
        self._ranking = self._library.BM25()
        tokens = self._library.tokenize(self._texts, show_progress=False)
        self._ranking.index(tokens, show_progress=False)

    def nearest(self, text: str, most: int) -> list[int]:
        """Return the numbers of the nearest texts, best first."""
        tokens = self._library.tokenize([text], show_progress=False)
        numbers, _ = self._ranking.retrieve(tokens, k=most, show_progress=False)
        return [int(number) for number in numbers[0]]


class Vectors:
    """A FAISS index of TF-IDF vectors; the weights of words are those of the first texts."""

    def __init__(self) -> None:
        import faiss

        self._index = faiss.IndexFlatIP(DIMENSIONS)
        self._weights: np.ndarray | None = None

    def add(self, texts: Sequence[str]) -> None:
        """Add texts."""
        if self._weights is None:
            seen = np.zeros(DIMENSIONS)
            for text in texts:
                seen[list({_place_of(word) for word in words_of(text)})] += 1
            self._weights = np.log((1 + len(texts)) / (1 + seen)) + 1
        self._index.add(np.stack([self._vector(text) for text in texts]))

    def nearest(self, text: str, most: int) -> list[int]:
        """Return the numbers of the nearest texts, best first."""
        _, numbers = self._index.search(self._vector(text)[None], most)
        return [int(number) for number in numbers[0] if number >= 0]

    def _vector(self, text: str) -> np.ndarray:
        vector = np.zeros(DIMENSIONS, dtype=np.float32)
        for word, times in Counter(words_of(text)).items():
            vector[_place_of(word)] += 1 + math.log(times)
        assert self._weights is not None
        vector *= self._weights
        return vector / (np.linalg.norm(vector) or 1.0)


INDEXES: Mapping[str, type[Bm25] | type[Vectors]] = {"bm25": Bm25, "faiss": Vectors}


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


def _place_of(word: str) -> int:
    import zlib

    return zlib.crc32(word.encode()) % DIMENSIONS


def passages_of(context: Any) -> list[str]:
    """Return the passages of a row in HotpotQA's form: titles, and the sentences below each."""
    inner = context.get("context", context) if isinstance(context, Mapping) else {}
    pairs = zip(inner.get("title", ()), inner.get("sentences", ()), strict=False)
    return [f"{title}\n{''.join(sentences)}".strip() for title, sentences in pairs]


class Ingest(Stage):
    """Adds the texts in `data` to an index of its own, as a service that takes documents does."""

    counts = "item"

    def prepare(self) -> None:
        self._index = INDEXES[self.extra_config.get("index", "faiss")]()

    def run(self, query: Query) -> dict[int, Query]:
        texts = [query.data] if isinstance(query.data, str) else list(query.data)
        self._index.add(texts)
        self.count(len(texts))
        return super().run(query)


def chat(tokenizer: Any, task: str, text: str) -> str:
    """Return a prompt of a task and a text by the tokenizer's template; without one, one after the other."""
    if not getattr(tokenizer, "chat_template", None):
        return f"{task}\n\n{text}\n\n"
    turns = [{"role": "system", "content": task}, {"role": "user", "content": text}]
    try:
        prompt = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    except Exception:  # templates refuse roles as they like
        turns = [{"role": "user", "content": f"{task}\n\n{text}"}]
        prompt = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    return str(prompt)


class Formatter(Stage):
    """Makes a prompt of a query, with the tokenizer of the stage `tokenizer_stage_id`."""

    task: ClassVar[str] = ""

    def prepare(self) -> None:
        self._tokenizer = self.dispatch_call(int(self.extra_config["tokenizer_stage_id"]), "get_tokenizer")

    def run(self, query: Query) -> dict[int, Query]:
        query.data = chat(self._tokenizer, self.task, self.asked(query))
        return super().run(query)

    def asked(self, query: Query) -> str:
        """Return what the user says of a query."""
        raise NotImplementedError


def documents_of(query: Query) -> str:
    """Return the documents that were found, numbered."""
    found = query.context.get("retrieved_documents") or ()
    texts = found if isinstance(found, (list, tuple)) else [found]
    return "\n\n".join(f"Document {number}: {text}" for number, text in enumerate(texts, start=1))


class SQLQueryGeneratorFormatter(Formatter):
    """Asks for the SQL that answers a question, from the tables of the stage `schema_stage_id`."""

    task = "You write SQLite queries. Translate the question into one query for these tables, and output it alone."

    def prepare(self) -> None:
        super().prepare()
        self._tables = self.dispatch_call(int(self.extra_config["schema_stage_id"]), "get_schema")

    def asked(self, query: Query) -> str:
        again = query.context.pop("is_retry", False)
        found = query.data[0] if again and isinstance(query.data, list) else query.data
        tables = "\n".join(sql for _, sql in self._tables)
        return f"Tables:\n{tables}\n\nQuestion: {found if again else question_of(query)}"


class RetrievalGraderFormatter(Formatter):
    """Asks whether what was found has to do with the question."""

    task = "Say whether the documents have to do with the question. Answer yes or no, and nothing else."

    def asked(self, query: Query) -> str:
        query.context["retrieved_documents"] = query.data
        return f"{documents_of(query)}\n\nQuestion: {question_of(query)}"


class AnswerGeneratorFormatter(Formatter):
    """Asks for an answer.

    `documents`: `retrieved` (the default), `none`, or `filler`: other words of as many tokens, or of `filler_tokens`
    where none were retrieved, to tell what documents change in an answer from what a longer prompt costs.
    """

    task = "Answer the question from the documents, in a few words."

    def asked(self, query: Query) -> str:
        kind = self.extra_config.get("documents", "retrieved")
        if kind not in ("retrieved", "none", "filler"):
            raise ValueError(f"documents: '{kind}' is none of retrieved, none, filler")
        documents = documents_of(query)
        if kind == "none":
            return f"Question: {question_of(query)}"
        if kind == "filler":
            documents = self._filler(documents)
        return f"{documents}\n\nQuestion: {question_of(query)}"

    def _filler(self, documents: str) -> str:
        ids = self._tokenizer("\n the" * 8, add_special_tokens=False)["input_ids"]
        length = int(self.extra_config.get("filler_tokens", 0))
        if documents:
            length = len(self._tokenizer(documents, add_special_tokens=False)["input_ids"])
        return str(self._tokenizer.decode((ids * (length // len(ids) + 1))[:length]))


class HallucinationGraderFormatter(Formatter):
    """Asks whether an answer says what no document does. Keeps the answer."""

    task = "Say whether the answer claims anything that the facts do not support: yes or no, and nothing else."

    def asked(self, query: Query) -> str:
        query.context["generated_answer"] = query.data
        return f"Facts:\n{documents_of(query)}\n\nAnswer: {query.data}"


class AnswerGraderFormatter(Formatter):
    """Asks whether an answer resolves the question."""

    task = "Say whether the answer resolves the question: yes or no, and nothing else."

    def asked(self, query: Query) -> str:
        return f"Question: {question_of(query)}\n\nAnswer: {query.context.get('generated_answer')}"


class QuestionRewriterFormatter(Formatter):
    """Asks for the next thing to search for, by question and documents so far."""

    task = (
        "Name what is still missing to answer the question, as one search query. If the documents have nothing to do "
        "with it, word the question in another way. Output the query alone, on one line."
    )

    def asked(self, query: Query) -> str:
        query.context["is_retry"] = True
        found = query.context.get("retrieved_documents") or []
        texts = found if isinstance(found, (list, tuple)) else [found]
        known = "\n\n".join(str(text)[:LONGEST_DOCUMENT] for text in texts) or "none"
        return f"Question: {question_of(query)}\n\nDocuments so far:\n{known}\n\nNext search query:"


class LLMGeneratorFormatter(Formatter):
    """Asks the question without documents."""

    task = "Answer the question in a few words."

    def asked(self, query: Query) -> str:
        return f"Question: {question_of(query)}"


class MonolithFormatter(Formatter):
    """Asks one model for everything: whether documents fit, the answer, and whether it is supported, as JSON."""

    task = (
        "Judge whether the documents fit the question; answer it from them in a few words, or with an empty text if "
        "they do not fit; then judge whether the answer claims anything that they do not support. Output a JSON "
        'object alone: {"relevance_grade": "yes" or "no", "answer": "...", "hallucination_check": "yes" or "no"}.'
    )

    def asked(self, query: Query) -> str:
        return f"{documents_of(query)}\n\nQuestion: {question_of(query)}"
