"""The text of an answer as its tokens come: whole characters alone, cut at the first stop string."""

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream


class TextStream:
    """Decodes token by token. `is_stopped`: a stop string came; it and all after it are not part of the text.

    Text that may be the beginning of a stop string is held back until the next token decides. All pieces together are
    what the tokenizer makes of all tokens at once, incomplete characters at the end included.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._backend = tokenizer.backend_tokenizer
        self._decoding = DecodeStream(skip_special_tokens=True)
        self._stop = tuple(stop)
        self._tokens: list[int] = []
        self._decoded = 0
        self._held = ""
        self.is_stopped = False

    def add(self, token: int) -> str:
        """Take a token; return the text that is certain now, often that of the token, sometimes none."""
        self._tokens.append(token)
        new = self._decoding.step(self._backend, token) or ""
        self._decoded += len(new)
        self._held += new
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            text, self._held = self._held[: min(found)], ""
            return text
        keep = max((_begun(self._held, stop) for stop in self._stop), default=0)
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text

    def rest(self) -> str:
        """Return the text that was held back, with characters that no token completed: no more tokens come."""
        if self.is_stopped:
            return ""
        text: str = self._held + self._backend.decode(self._tokens, skip_special_tokens=True)[self._decoded :]
        self._held, self._decoded = "", self._decoded + len(text)
        return text


def _begun(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` with which `stop` begins."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
