"""Keys and values of all positions so far, in buffers that grow by doubling: a step copies its own keys alone.

Transformers' DynamicCache copies all keys and values at every token, which costs more than the attention of a method
that reads a part of them. The context that was computed last is kept for its further questions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from seamark_evaluate.server.errors import CancelledRequestError

FIRST_CAPACITY = 64


class GrowingLayer(DynamicLayer):  # type: ignore[misc, unused-ignore]
    """Keys and values of one layer, [1, kv_heads, positions, head_dim] each, as views of larger buffers."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None
        self._length = 0
        self._wanted = 0

    def reserve(self, positions: int) -> None:
        """Reserve room for a total number of positions at the next keys, so that buffers do not grow step by step."""
        self._wanted = positions

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values; return those of all positions. Raises torch.OutOfMemoryError, then unchanged."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length = self._length + key_states.shape[-2]
        keys, values = self._roomy(key_states, value_states, length)
        keys[:, :, self._length : length].copy_(key_states)
        values[:, :, self._length : length].copy_(value_states)
        self._length = length
        return self._views()

    def get_seq_length(self) -> int:
        """Return the number of positions."""
        return self._length

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last positions: their number is negative, as in transformers since 5.18."""
        if tokens_to_remove > 0:
            raise ValueError("crop takes the number of tokens to remove, as a negative number")
        self._length = max(self._length + tokens_to_remove, 0)
        if self._buffers is not None:
            self._views()

    def free(self) -> None:
        """Give the memory back."""
        self._buffers, self._length = None, 0
        self.keys = self.values = None

    def _views(self) -> tuple[torch.Tensor, torch.Tensor]:
        assert self._buffers is not None
        self.keys, self.values = (buffer[:, :, : self._length] for buffer in self._buffers)
        return self.keys, self.values

    def _roomy(
        self, key_states: torch.Tensor, value_states: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return buffers of at least `length` positions with the present ones in them."""
        old = self._buffers
        if old is not None and old[0].shape[-2] >= length:
            return old
        doubled = 2 * old[0].shape[-2] if old is not None and self._wanted < length else 0
        capacity = max(self._wanted, length, doubled, FIRST_CAPACITY)
        if not self._length:
            self.free()  # what is cropped away need not lie beside its successor
            old = None
        new = [
            states.new_empty((*states.shape[:-2], capacity, states.shape[-1]))
            for states in (key_states, value_states)
        ]
        if old is not None:
            for grown, buffer in zip(new, old, strict=True):
                grown[:, :, : self._length] = buffer[:, :, : self._length]
        self._buffers = (new[0], new[1])
        return self._buffers


class KeyValueCache(Cache):  # type: ignore[misc, unused-ignore]
    """The layers of one sequence. `positions` is their length; `crop` takes a negative number."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers=[GrowingLayer() for _ in range(layers)])

    @property
    def positions(self) -> int:
        """The number of positions whose keys and values every layer has."""
        return min(int(layer.get_seq_length()) for layer in self.layers)

    def reserve(self, positions: int) -> None:
        """Make room for a total number of positions."""
        for layer in self.layers:
            layer.reserve(positions)

    def crop_to(self, positions: int) -> None:
        """Forget all positions from `positions` on, in each layer: after a failure they may differ in length."""
        for layer in self.layers:
            layer.crop(min(positions - layer.get_seq_length(), 0))

    def free(self) -> None:
        """Forget all positions and give the memory back."""
        for layer in self.layers:
            layer.free()


def keeps_keys_and_values_alone(config: Any) -> bool:
    """Return whether a model of this configuration needs no other states, such as those of recurrent layers."""
    return all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in DynamicCache(config=config).layers
    )


class ContextCache:
    """Keys and values of one context. Reused up to where a chunk began, so that a context has the same numbers
    whether it is reused in part, as a whole, or computed anew."""

    def __init__(self, layers: int) -> None:
        self.keys_values = KeyValueCache(layers)
        self._ids: Sequence[int] = ()
        self._began: list[int] = []
        self._computed_as: object = None

    def bring(
        self,
        ids: Sequence[int],
        *,
        computed_as: object,
        reserve: int,
        reuse: bool,
        compute: Callable[[Sequence[int], KeyValueCache, list[int]], None],
    ) -> int:
        """Make the cache hold exactly the context `ids`; return how many of its tokens were there already.

        `computed_as` is what its numbers depend on besides the tokens: a context of another kind is not reused.
        `reserve` is the number of positions, with question and answer, for which there is to be room. `compute`
        computes tokens, and appends to the list the position at which each chunk begins. What it raises leaves the
        cache empty, but for an end of the request: the chunks that are done stay for a further question.
        """
        there = self._shared(ids) if reuse and computed_as == self._computed_as else 0
        self.keys_values.crop_to(there)
        self._began = [at for at in self._began if at < there]
        self._ids, self._computed_as = ids[:there], computed_as
        self.keys_values.reserve(reserve)
        if there < len(ids):
            try:
                compute(ids[there:], self.keys_values, self._began)
            except (CancelledRequestError, TimeoutError):
                self._ids = ids[: self.keys_values.positions]
                self._began.append(len(self._ids))  # where the next chunk is to begin
                raise
            except BaseException:
                self.forget()
                raise
        self._ids = ids
        return there

    def crop(self) -> None:
        """Forget what came after the context: a question and its answer."""
        self.keys_values.crop_to(len(self._ids))

    def forget(self) -> None:
        """Forget the context too, and give its memory back."""
        self._ids, self._began = (), []
        self.keys_values.free()

    def _shared(self, ids: Sequence[int]) -> int:
        """Return how many first tokens are those of the context that is kept, up to where a chunk of it began."""
        count = min(len(ids), len(self._ids))
        differs = np.flatnonzero(np.asarray(ids[:count]) != np.asarray(self._ids[:count]))
        same = int(differs[0]) if differs.size else count
        if same == len(ids) == len(self._ids):
            return same
        return max((at for at in self._began if at <= same), default=0)
