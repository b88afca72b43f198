"""Contexts longer than a limit, in a request: shortened by the rule of tasks, or refused with both lengths."""

from collections.abc import Sequence
from typing import get_args

from seamark_evaluate.server.errors import CONTEXT_TOO_LONG, RequestError
from seamark_evaluate.tasks import truncation
from seamark_evaluate.tasks.truncation import Truncate

TRUNCATIONS = get_args(Truncate)
LEAST_ENDS = 2
"""Fewest tokens of which a beginning and an end can be kept."""


def truncated(ids: Sequence[int], limit_tokens: int, how: Truncate) -> list[int]:
    """Return at most `limit_tokens` of a context's tokens, by `tasks.truncation`; of one token the first.

    Raises RequestError where `how` is `error`.
    """
    if len(ids) > limit_tokens and how == "error":
        raise RequestError(
            400,
            CONTEXT_TOO_LONG,
            f"context: {len(ids)} tokens, of which {limit_tokens} fit. "
            "Shorten it, or set 'truncate' to 'middle' or 'end'.",
        )
    if limit_tokens < LEAST_ENDS:
        return list(ids[:limit_tokens])
    return truncation.truncated(ids, limit_tokens, how)[0]
