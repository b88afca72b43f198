"""Prefix cache of the reference server: which first tokens of a prompt it has seen, in blocks, least recently used
out first. No sockets, no clock."""

from collections.abc import Sequence
from itertools import pairwise

BLOCK_TOKENS = 16
"""Tokens of a block, as in vLLM: only whole ones are kept."""


def chained(tokens: Sequence[object]) -> tuple[int, ...]:
    """Return a name for each whole block of a prompt; it stands for the block and all before it."""
    names: list[int] = []
    for first, end in pairwise(range(0, len(tokens) + 1, BLOCK_TOKENS)):
        names.append(hash((names[-1] if names else 0, *tokens[first:end])))
    return tuple(names)


class PrefixCache:
    """Room for so many tokens. Of each prompt at least one token is computed."""

    def __init__(self, room_tokens: int) -> None:
        self._room = room_tokens // BLOCK_TOKENS
        self._blocks: dict[int, None] = {}
        self.queries = 0
        """Tokens of the prompts that were looked up."""
        self.hits = 0
        """Tokens of them that were there."""

    def clear(self) -> None:
        """Forget all blocks; the counters go on."""
        self._blocks.clear()

    def take(self, blocks: Sequence[int], prompt_tokens: int) -> int:
        """Return how many tokens of a prompt are cached, and keep all of its blocks."""
        found = 0
        for name in blocks[: max(0, prompt_tokens - 1) // BLOCK_TOKENS]:
            if name not in self._blocks:
                break
            found += 1
        for name in reversed(blocks[: self._room]):  # the last blocks leave first: nothing is kept without its prefix
            self._blocks.pop(name, None)
            self._blocks[name] = None
        while len(self._blocks) > self._room:
            del self._blocks[next(iter(self._blocks))]
        self.queries += prompt_tokens
        self.hits += found * BLOCK_TOKENS
        return found * BLOCK_TOKENS
