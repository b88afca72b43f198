"""What the load generator itself can do on a machine: the most that a trial's client could have reached."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The most that all workers of a load reach together against a server without work of its own.

    A request costs the client a fixed time, and more for each byte and each chunk of its reply; the rates are one
    over these times. A chunk that comes in a read of its own costs 1 / `chunks_per_s`, one that comes in the same
    read as the chunk before it 1 / `joined_chunks_per_s`. None: not measured, and taken as free.
    """

    requests_per_s: float
    bytes_per_s: float | None = None
    chunks_per_s: float | None = None
    joined_chunks_per_s: float | None = None

    def for_replies(self, reply_bytes: float, reply_reads: float = 0.0, reply_joined: float = 0.0) -> float:
        """Return the most requests/s for replies of that mean size in bytes, with so many chunks in reads of their
        own and so many that came along with another."""
        cost_s = 1 / self.requests_per_s
        cost_s += reply_bytes / self.bytes_per_s if self.bytes_per_s else 0.0
        cost_s += reply_reads / self.chunks_per_s if self.chunks_per_s else 0.0
        cost_s += reply_joined / self.joined_chunks_per_s if self.joined_chunks_per_s else 0.0
        return 1 / cost_s
