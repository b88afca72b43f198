"""Retrieval: documents by BM25 or by vectors in FAISS, and an index that takes documents in."""

import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.query import Query

DIMENSIONS = 4096
"""Length of the vector of a text in a FAISS index: TF-IDF of its words, hashed."""


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


def words_of(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


def _place_of(word: str) -> int:
    return zlib.crc32(word.encode()) % DIMENSIONS


def passages_of(context: Any) -> list[str]:
    """Return the passages of a row in HotpotQA's form: titles, and the sentences below each."""
    inner = context.get("context", context) if isinstance(context, Mapping) else {}
    pairs = zip(inner.get("title", ()), inner.get("sentences", ()), strict=False)
    return [f"{title}\n{''.join(sentences)}".strip() for title, sentences in pairs]


INDEXES: Mapping[str, type[Bm25] | type[Vectors]] = {"bm25": Bm25, "faiss": Vectors}


class Retriever(Stage):
    """Finds the `top_k` documents that are nearest to the question in `data`, and adds them to those found before.

    `corpus_dataset` has name, split, text_column and max_docs, or context_column for passages that lie with their
    questions, as in HotpotQA. `index` is `bm25`, or `faiss`: the inner product of TF-IDF vectors.
    """

    index: ClassVar[str] = "bm25"

    def prepare(self) -> None:
        from seamark_pipelines.stages.huggingface_data import rows_of

        config: Mapping[str, Any] = self.extra_config["corpus_dataset"]
        rows = rows_of(config, config.get("split", "train"))
        most = int(config.get("max_docs", 5000))
        nested = config.get("context_column")
        if nested:
            rows = rows.select(range(min(len(rows), int(config.get("max_context_rows", most)))))
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


class Ingest(Stage):
    """Adds the texts in `data` to an index, as a service that takes documents does: 16 KB a text in `faiss`, while
    `bm25` ranks all texts again each time."""

    counts = "item"

    def prepare(self) -> None:
        self._lock = Lock()
        self._index = INDEXES[self.extra_config.get("index", "faiss")]()

    def run(self, query: Query) -> dict[int, Query]:
        texts = [query.data] if isinstance(query.data, str) else list(query.data)
        with self._lock:
            self._index.add(texts)
        self.count(len(texts))
        return super().run(query)
