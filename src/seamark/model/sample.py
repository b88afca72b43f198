"""One request as observed: the columns of a raw sample. No statistics here."""

import numpy as np

MISSING_NS = np.iinfo(np.int64).min
"""Stands for 'no such time' in a raw segment; null in Parquet."""


SAMPLE = np.dtype(
    [
        ("index", "<i8"),  # number in the trial's schedule, from 0
        ("due_ns", "<i8"),  # intended send, from the start of load
        ("sent_ns", "<i8"),  # actual send
        ("first_ns", "<i8"),  # first unit of the reply, or MISSING_NS
        ("last_ns", "<i8"),  # reply complete, or failure seen
        ("units", "<i4"),  # what the driver counts: replies, items, tokens, transactions, operations
        ("bytes_sent", "<i8"),
        ("bytes_received", "<i8"),
        ("status", "<i2"),  # the protocol's own status (HTTP), 0 where it has none
        ("failure", "<i1"),  # a Failure
        ("kind", "<i1"),  # which of the driver's kinds of request
        ("worker", "<i2"),  # which worker process sent it
    ]
)
