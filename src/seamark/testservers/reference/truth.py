"""Reads what a known-answer server wrote down of its requests, as arrays to compare a client's samples with."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seamark.model.sample import MISSING_NS
from seamark.testservers.reference.journal import Outcome

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Requests in the order in which the server read them, n of each; times are ns of the machine's CLOCK_MONOTONIC.

    A client on the same machine compares its own CLOCK_MONOTONIC with them: its true TTFT is `first_ns - read_ns`,
    and what it measured may only be larger, by its own error and the way to the server and back. Stamps of writes are
    taken just before the write, those of `read_ns` when the last bytes of the request are there. A time that does not
    exist is MISSING_NS.

    - `ids`: the x-request-id of each request, else its number. A client that sends the same bytes again repeats ids.
    - `number`: 1 and on, as `--error-every` and the like count.
    - `read_ns`: the request was there as a whole.
    - `due_ns`: when its first token (or its reply, for one that does not stream) was to be written.
    - `first_ns`, `answer_ns`, `last_ns`: the write of the first chunk with a token, of the first one that is not
      reasoning, and of the last one with a token. A reply that does not stream has all three at once.
    - `chunks`, `tokens`: how many chunks with tokens, and tokens, were written, over all choices.
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
    """Read a truth file, also of a server that still writes to it: half a last line is left out.

    Raises OSError, and ValueError for a file of another kind.
    """
    text = path.read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    try:
        rows.sort(key=lambda row: int(row["number"]))

        def integers(name: str) -> Integers:
            return np.array([MISSING_NS if row[name] is None else row[name] for row in rows], dtype=np.int64)

        return Truth(
            ids=np.array([str(row["id"]) for row in rows], dtype=np.str_),
            number=integers("number"),
            read_ns=integers("read_ns"),
            due_ns=integers("due_ns"),
            first_ns=integers("first_ns"),
            answer_ns=integers("answer_ns"),
            last_ns=integers("last_ns"),
            chunks=integers("chunks"),
            tokens=integers("tokens"),
            outcome=np.array([row["outcome"] for row in rows], dtype=np.str_),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not what a known-answer server writes ({error!r})") from error
