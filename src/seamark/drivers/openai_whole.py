"""A reply of the OpenAI API that comes whole: read when it is complete. No clock."""

from seamark.drivers.openai_chunk import read_chunk
from seamark.load.engine.http import HttpDecoder
from seamark.model.failure import Failure


class WholeDecoder(HttpDecoder):
    """Reads one reply after another. `units` is what the server counted (`counted`), else one for each choice that
    has tokens; `prompt_units` is what it counted of the prompts, None where it did not.

    A reply without any token is empty, one with an error in it the server's, what is no JSON object wrong; so is a
    count of tokens that is no whole number from 0, or more than both the `most_units` that a request asks for and the
    bytes that came.
    """

    __slots__ = ("_most_units", "counted", "prompt_units")

    def __init__(self, most_units: int = 0) -> None:
        self._most_units = most_units
        super().__init__()
        self._keep = True

    def reset(self) -> None:
        """Make ready for the next reply on the same connection."""
        super().reset()
        self.counted = False
        self.prompt_units: int | None = None

    def _whole(self) -> bool:
        if not 200 <= self.status < 300:
            return super()._whole()
        try:
            chunk = read_chunk(b"".join(self._body))
        except ValueError:
            self.failure = Failure.WRONG_REPLY
            return True
        units, absurd = 0, False
        if chunk.usage is not None:
            self.prompt_units = chunk.usage.prompt
            units = chunk.usage.completion or 0
            absurd = chunk.usage.absurd or units > max(self._most_units, self.body_bytes)
        self.counted = units > 0 and not absurd
        self.units = units if self.counted else chunk.carriers
        if chunk.failed:
            self.failure = Failure.SERVER_ERROR
        elif absurd:
            self.failure = Failure.WRONG_REPLY
        elif not self.units:
            self.failure = Failure.EMPTY_REPLY
        return True
