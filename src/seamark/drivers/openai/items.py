"""Replies of /embeddings and /rerank: an item is worth counting if it is there, with finite numbers."""

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any

from seamark.load.engine.http import MAX_BODY_BYTES, HttpDecoder

UNITS = {"embeddings": "embedding", "rerank": "document"}
"""Endpoints whose replies are no text -> one unit of a reply."""
ITEM_BYTES = 1 << 17
"""Embedding of 4,096 dimensions as JSON, with room."""


def item_decoder(endpoint: str, batch: int, *, all_ranked: bool) -> HttpDecoder:
    """Return a decoder of replies for `batch` texts. Without `all_ranked`, a reply may rank the best documents only;
    its units are still the documents that were compared."""

    def units(status: int, body: bytes) -> int:
        try:
            document = json.loads(body)
            if endpoint == "embeddings":
                _require_embeddings(document["data"], batch)
            else:
                _require_scores(document["results"], batch, all_ranked=all_ranked)
        except (LookupError, TypeError, RecursionError) as cause:
            raise ValueError(f"not a reply of /{endpoint}: {body[:200]!r}") from cause
        return batch

    return HttpDecoder(units, most_bytes=MAX_BODY_BYTES + batch * ITEM_BYTES)


def _require_embeddings(items: Sequence[Any], batch: int) -> None:
    """Raise ValueError, LookupError or TypeError unless there is one vector for each text, all of one length."""
    if len(items) != batch or {item.get("index", at) for at, item in enumerate(items)} != set(range(batch)):
        raise ValueError(f"{len(items)} embeddings for {batch} texts")
    vectors = [item["embedding"] for item in items]
    if not vectors[0] or len({len(vector) for vector in vectors}) != 1:
        raise ValueError("embeddings of several lengths, or empty ones")
    # a text is base64, if the request asked for it
    if not all(isinstance(vector, str) or isfinite(sum(vector)) for vector in vectors):
        raise ValueError("an embedding that is not finite")


def _require_scores(items: Sequence[Any], batch: int, *, all_ranked: bool) -> None:
    """Raise ValueError, LookupError or TypeError unless different documents have finite scores."""
    ranked = {item["index"] for item in items}
    if not ranked or len(ranked) != len(items) or not ranked <= set(range(batch)):
        raise ValueError(f"scores of {sorted(ranked)} for {batch} documents")
    if all_ranked and len(ranked) != batch:
        raise ValueError(f"{len(ranked)} scores for {batch} documents")
    if not all(isfinite(item["relevance_score"]) for item in items):
        raise ValueError("a score that is not finite")
