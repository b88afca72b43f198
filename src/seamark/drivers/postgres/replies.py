"""Replies in PostgreSQL's protocol (version 3), and categories of errors by SQLSTATE (appendix A of the manual).

A message is a letter, its length and content. Needs no client library.
"""

import struct

from seamark.model.sample import Failure

SINGLE = {
    "57014": Failure.TIMEOUT,  # cancelled, by statement_timeout
    "55P03": Failure.TIMEOUT,  # waited too long for a lock
    "57P01": Failure.RESET,  # the server is shut down
    "57P02": Failure.RESET,  # it crashes
    "57P03": Failure.CONNECT,  # it starts
    "40001": Failure.SERIALIZATION_FAILURE,
    "40P01": Failure.DEADLOCK_DETECTED,
}
OURS = ("22", "23", "42")
"""Classes that blame the statement. Others, such as 53, 54, 58 and XX, are the server's."""


def category(sqlstate: str) -> Failure:
    """Return the category of an error of the server's."""
    return SINGLE.get(sqlstate) or (Failure.CLIENT_ERROR if sqlstate[:2] in OURS else Failure.SERVER_ERROR)


READY = b"Z\0\0\0\5"
IDLE = b"I"
HEADER_BYTES = 5
MAX_REPLY_BYTES = 1 << 24
"""Size limit of a reply: more than the rows of any statement here."""


class ReplyDecoder:
    """Decodes the replies to one request after another; `tag` is the server's completion tag of a successful
    statement."""

    streams = False
    counted = True
    keep_alive = True
    status = 0

    def __init__(self, tag: str) -> None:
        ended_tag = tag.encode() + b"\0"
        self._tag = ended_tag
        self._good_end = b"C" + struct.pack("!i", 4 + len(ended_tag)) + ended_tag + READY + IDLE
        """Nothing else can end so: values are text, which has no byte of zero."""
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.units = 0
        self.failure = Failure.NONE
        self.error: tuple[str, str] | None = None
        """SQLSTATE and message of an error of the server's."""

    def reset(self) -> None:
        """Make ready for the next reply on the same connection."""
        self._held, self._held_bytes = [], 0
        self.units = 0
        self.failure = Failure.NONE
        self.error = None

    def feed(self, data: bytes) -> bool:
        """Take bytes as they arrived; return True when the server is ready for the next request."""
        end = data
        if self._held and len(data) < len(self._good_end):  # it may have begun in the pieces before
            end = b"".join([*self._held, data])
            self._held = [end]
        else:
            self._held.append(data)
        self._held_bytes += len(data)
        if end.endswith(self._good_end):
            self.units = 1
            return True
        if end[-6:-1] == READY and self._read(b"".join(self._held)):
            return True
        if self._held_bytes > MAX_REPLY_BYTES:
            self.failure = Failure.REPLY_TOO_LARGE
            self._held = []
            return True
        return False

    def _read(self, data: bytes) -> bool:
        """Go through all messages; return whether the last is ReadyForQuery. What they say is `units`, `failure`."""
        at, kind, failure, right = 0, b"", Failure.NONE, False
        while at + HEADER_BYTES <= len(data):
            kind = data[at : at + 1]
            end = at + 1 + int.from_bytes(data[at + 1 : at + HEADER_BYTES], "big")
            content = data[at + HEADER_BYTES : end]
            if kind == b"E":
                self.error = _field(content, b"C"), _field(content, b"M")
                failure = category(self.error[0])
            elif kind == b"C":
                right = content == self._tag
            at = end
        if kind != b"Z" or at != len(data):
            return False
        self.failure = failure or (Failure.NONE if right else Failure.WRONG_REPLY)
        self.units = 0 if self.failure else 1
        return True


def _field(content: bytes, letter: bytes) -> str:
    """Return a field of an ErrorResponse: fields are a letter, text and a zero."""
    return next((field[1:].decode(errors="replace") for field in content.split(b"\0") if field[:1] == letter), "")
