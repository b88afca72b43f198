"""Reader of recorded requests of a service: times and numbers of tokens, of samples.parquet or of a trace."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.errors import UserError
from seamark.patterns.trace_file import recorded_rows
from seamark_simulate.config.workloads.samples import is_samples
from seamark_simulate.simulation.schedule import Floats, Ints

MOST_REQUESTS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class RecordedRequests:
    """Times in seconds from the start of the load, in their order; tokens of prompts and replies, None where the file
    does not give them all."""

    arrival_s: Floats
    prompt_tokens: Ints | None = None
    reply_tokens: Ints | None = None


def read_requests(path: Path) -> RecordedRequests:
    """Return every request of a file that was due, whatever became of it, at the time at which it was due. Raises
    UserError."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
        requests = _of_samples(path) if is_samples(head) else _of_trace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (ValueError, pa.ArrowException, KeyError) as error:
        raise UserError(f"{path}: no samples.parquet and no trace: {' '.join(str(error).split())[:160]}.") from None
    if not len(requests.arrival_s):
        raise UserError(f"{path}: has no request.")
    if len(requests.arrival_s) > MOST_REQUESTS:
        raise UserError(f"{path}: more than {MOST_REQUESTS:,} requests.")
    return requests


def _of_samples(path: Path) -> RecordedRequests:
    names = ("due_ns", "units", "failure")
    table = pq.read_table(path, columns=list(names), page_checksum_verification=True)
    due, units, failure = (np.asarray(table[name].fill_null(-1), np.int64) for name in names)
    rows = np.flatnonzero(due >= 0)
    rows = rows[np.argsort(due[rows], kind="stable")]
    known = bool((failure[rows] == 0).all() and (units[rows] > 0).all())
    return RecordedRequests(arrival_s=due[rows] / 1e9, reply_tokens=units[rows] if known else None)


def _of_trace(path: Path) -> RecordedRequests:
    rows = list(recorded_rows(str(path)))
    prompts = [row.prompt_tokens for row in rows if row.prompt_tokens is not None]
    replies = [row.output_tokens for row in rows if row.output_tokens is not None]
    return RecordedRequests(
        arrival_s=np.asarray([row.at_s for row in rows], np.float64),
        prompt_tokens=np.asarray(prompts, np.int64) if len(prompts) == len(rows) else None,
        reply_tokens=np.asarray(replies, np.int64) if len(replies) == len(rows) else None,
    )
