"""Prompts computed in chunks: halved when the device has too little memory for one, with the same answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from seamark_evaluate.server.errors import is_out_of_memory
from seamark_evaluate.server.key_value_cache import KeyValueCache

Forward = Callable[[Sequence[int]], torch.Tensor]
"""Computes tokens after those of the cache; returns the logits of the last one, [vocabulary]."""


@dataclass(kw_only=True)
class Chunks:
    """The number of tokens computed at a time. Halved on out-of-memory, and left so within a scope, such as one load:
    its next prompt would need as much again. Another scope begins with the number that was asked for."""

    tokens: int
    halvings: int = 0
    _asked_for: int = field(init=False)
    _scope: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self._asked_for = self.tokens

    def enter(self, scope: str) -> None:
        """Begin anew unless the last prompt was of the same scope."""
        if scope != self._scope:
            self.tokens, self._scope = self._asked_for, scope

    def compute(
        self, ids: Sequence[int], cache: KeyValueCache, forward: Forward, *, began: list[int] | None = None
    ) -> torch.Tensor:
        """Compute all of `ids` (at least one) after the positions of `cache`; return the logits of the last one.

        `began` gets the position at which each chunk begins. Raises what `forward` raises; for a device without
        memory only once a single token does not fit.
        """
        done, logits = 0, None
        start = cache.positions
        while done < len(ids):
            chunk = ids[done : done + self.tokens]
            try:
                logits = forward(chunk)
            except Exception as error:
                cache.crop_to(start + done)
                if not is_out_of_memory(error) or len(chunk) == 1:
                    raise
                self.tokens = (len(chunk) + 1) // 2
                self.halvings += 1
                _release()
                continue
            if began is not None:
                began.append(start + done)
            done += len(chunk)
        assert logits is not None
        return logits


def _release() -> None:
    """Give cached blocks of the allocator back to the device: they may be too small for the next chunk."""
    accelerator: Any = torch.cuda
    if accelerator.is_available():
        accelerator.empty_cache()
