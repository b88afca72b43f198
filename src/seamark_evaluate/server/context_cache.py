"""The context that was computed last: kept for its further questions, and cropped back after each of them."""

from collections.abc import Callable, Sequence

import numpy as np

from seamark_evaluate.server.errors import CancelledRequestError
from seamark_evaluate.server.key_value_cache import KeyValueCache


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
