"""A reply of the OpenAI API that comes whole: read when it is complete. No clock."""

from seamark.drivers.openai_chunk import read_chunk
from seamark.load.http import HttpDecoder
from seamark.model.failure import Failure


class WholeDecoder(HttpDecoder):
    """Reads one reply after another. `units` is what the server counted (`counted`), else one for each choice that
    has tokens; `prompt_units` is what it counted of the prompts, None where it did not.

    A reply without any token is empty, one with an error in it the server's, what is no JSON object wrong.
    """

    __slots__ = ("counted", "prompt_units")

    def __init__(self) -> None:
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
        if chunk.usage is not None:
            self.prompt_units = chunk.usage.prompt
            self.units = chunk.usage.completion or 0
        self.counted = self.units > 0
        self.units = self.units or chunk.carriers
        if chunk.failed:
            self.failure = Failure.SERVER_ERROR
        elif not self.units:
            self.failure = Failure.EMPTY_REPLY
        return True
