"""Prompts computed in chunks: halved when the device has too little memory for one, with the same answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from seamark.servers.attention.errors import is_out_of_memory
from seamark.servers.attention.key_value_cache import KeyValueCache

Forward = Callable[[Sequence[int]], torch.Tensor]
"""Computes tokens after those of the cache; returns the logits of the last one, [vocabulary]."""


@dataclass(kw_only=True)
class Chunks:
    """The number of tokens computed at a time. Halved on out-of-memory, and left so: the next prompt would need as
    much again."""

    tokens: int
    halvings: int = 0

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
