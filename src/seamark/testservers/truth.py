"""Reader of a truth file, as arrays to compare with a client's samples."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seamark.model.sample import MISSING_NS
from seamark.testservers.journal import Outcome

Integers = npt.NDArray[np.int64]
TIMES = ("read_ns", "due_ns", "first_ns", "answer_ns", "last_ns")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Requests in the order in which the server read them, n of each; times are ns of the machine's CLOCK_MONOTONIC.

    A client on the same machine compares its own CLOCK_MONOTONIC with them: the true TTFT is `first_ns - read_ns`,
    and a measured one may only be larger, by the client's error and the round trip. Timestamps of writes are taken
    just before the write, `read_ns` when the last bytes of the request arrived. A time that does not exist is
    MISSING_NS.

    - `ids`: the x-request-id of each request, else its number. A client that sends the same bytes again repeats ids.
    - `number`: from 1, as counted by `--error-every` and the like.
    - `read_ns`: the complete request was read.
    - `due_ns`: deadline of its first token (or of its reply, if it is not streamed).
    - `first_ns`, `answer_ns`, `last_ns`: write of the first chunk with a token, of the first one after the reasoning,
      and of the last one with a token. All equal for a reply that is not streamed.
    - `chunks`, `tokens`: number of chunks with tokens, and of tokens, over all choices.
    - `outcome`: see journal.OUTCOMES.
    """

    ids: npt.NDArray[np.str_]
    number: Integers
    read_ns: Integers
    due_ns: Integers
    first_ns: Integers
    answer_ns: Integers
    last_ns: Integers
    chunks: Integers
    tokens: Integers
    outcome: npt.NDArray[np.str_]

    def of_outcome(self, outcome: Outcome) -> npt.NDArray[np.bool_]:
        """Return which requests ended so, n truth values."""
        return np.equal(self.outcome, outcome)


def read_truth(path: Path) -> Truth:
    """Read a truth file, also of a running server: a partial last line is ignored.

    Raises OSError, and ValueError for a file of another kind.
    """
    text = path.read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    try:
        rows.sort(key=lambda row: int(row["number"]))
        return Truth(
            ids=np.array([str(row["id"]) for row in rows], dtype=np.str_),
            outcome=np.array([row["outcome"] for row in rows], dtype=np.str_),
            **{
                name: np.array([MISSING_NS if row[name] is None else row[name] for row in rows], dtype=np.int64)
                for name in ("number", *TIMES, "chunks", "tokens")
            },
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a truth file of the reference server ({error!r})") from error
