"""Contexts that are longer than a limit lose tokens: from their middle, as in LongBench, or from their end."""

from collections.abc import Sequence
from typing import Literal, get_args

from seamark.servers.attention.errors import CONTEXT_TOO_LONG, RequestError

Truncate = Literal["middle", "end", "error"]
TRUNCATIONS = get_args(Truncate)


def truncated(ids: Sequence[int], limit_tokens: int, how: Truncate) -> list[int]:
    """Return at most `limit_tokens` of a context's tokens.

    `middle` keeps as many of its first as of its last tokens, one more of the last for an odd limit (LongBench's
    pred.py, https://github.com/THUDM/LongBench, which drops that one). `end` keeps its first. Raises RequestError
    for `error`.
    """
    if len(ids) <= limit_tokens:
        return list(ids)
    if how == "error":
        raise RequestError(
            400,
            CONTEXT_TOO_LONG,
            f"context: {len(ids)} tokens, of which {limit_tokens} fit. "
            "Shorten it, or set 'truncate' to 'middle' or 'end'.",
        )
    head = limit_tokens if how == "end" else limit_tokens // 2
    tail = limit_tokens - head
    return [*ids[:head], *ids[len(ids) - tail :]]
