"""What of a context that is too long is kept: its two ends, its beginning, or nothing. Pure, on sequences of
tokens.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar

Token = TypeVar("Token")
Truncate = Literal["middle", "end", "error"]
"""What long contexts lose: their middle, their end, or nothing, as they are an error."""


class ContextTooLongError(ValueError):
    """A context has more tokens than allowed, and `truncate` is `error`."""


def truncated(tokens: Sequence[Token], limit: int | None, truncate: Truncate = "middle") -> tuple[list[Token], int]:
    """Return the kept tokens and the number of those cut. `limit` None: all are kept.

    `middle` keeps `limit // 2` tokens of each end, so one fewer than an odd limit, as LongBench, LooGLE and the
    program for yarn-mistral of InfiniteBench do. Those for LongBench v2 and for GPT-4 of InfiniteBench keep one token
    more at the end for an odd limit (`[-max_len // 2 :]`), so give an even one. All of them cut the whole prompt;
    here the context alone is cut, so a question is never lost. Raises ContextTooLongError, and ValueError for a limit
    that keeps nothing.
    """
    least = 2 if truncate == "middle" else 1
    if limit is not None and limit < least:
        raise ValueError(f"{limit} tokens of a context cannot be kept: {least} or more.")
    if limit is None or len(tokens) <= limit:
        return list(tokens), 0
    if truncate == "error":
        raise ContextTooLongError(f"the context has {len(tokens)} tokens, {limit} at most.")
    if truncate == "end":
        kept = list(tokens[:limit])
    else:
        half = limit // 2
        kept = [*tokens[:half], *tokens[len(tokens) - half :]]
    return kept, len(tokens) - len(kept)
