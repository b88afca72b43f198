"""One request as observed: columns of a raw sample, a chunk of a streamed reply, an event inside of the request."""

from enum import IntEnum

import numpy as np

MISSING_NS = np.iinfo(np.int64).min
"""Marks a missing time in a raw segment; null in Parquet."""


SAMPLE = np.dtype(
    [
        ("index", "<i8"),  # number in the trial's schedule, from 0
        ("due_ns", "<i8"),  # intended send, from the start of load
        ("sent_ns", "<i8"),  # actual send
        ("first_ns", "<i8"),  # first unit of the reply, or MISSING_NS
        ("answer_ns", "<i8"),  # of a streamed reply, first unit that is not reasoning, or MISSING_NS
        ("last_ns", "<i8"),  # end of the reply, or detection of its failure
        ("units", "<i4"),  # the driver's count: replies, items, tokens, transactions, operations
        ("first_units", "<i4"),  # of these in the first part of a streamed reply that has any; 0: unknown
        ("uncounted", "<i1"),  # 1: the service did not count units, `units` are the parts of the reply
        ("bytes_sent", "<i8"),
        ("bytes_received", "<i8"),
        ("status", "<i2"),  # the protocol's own status (HTTP), 0 where it has none
        ("failure", "<i1"),  # a Failure
        ("kind", "<i1"),  # which of the driver's kinds of request
        ("worker", "<i2"),  # which worker process sent it
        ("retries", "<i2"),  # how often it was tried again; the times are over all tries
    ]
)

CHUNK = np.dtype(
    [
        ("index", "<i8"),  # number of the request in the trial's schedule
        ("at_ns", "<i8"),  # when the bytes were read, from the start of load
        ("events", "<i4"),  # chunks with content in this read
    ]
)

EVENT = np.dtype(
    [
        ("query", "<i8"),  # number of the request in the trial's schedule
        ("begin_ns", "<i8"),  # from the start of load
        ("end_ns", "<i8"),
        ("thread", "<i4"),  # which track of its worker recorded it
        ("visit", "<i2"),  # how often the request was in that stage before, from 0
        ("stage", "<i2"),  # number of the stage in the driver's `stages`
        ("what", "<i1"),  # an EventKind
        ("worker", "<i2"),  # which worker process recorded it
    ]
)


UNTIMED = " (untimed)"
"""End of the name of a stage outside of the region that a standard times."""
WITHOUT_EVENTS = " (no events)"
"""End of the name of a stage that records no events, as its user wishes."""


class EventKind(IntEnum):
    """What a request does in a stage. A number is the value in a raw segment, its lower-case name is displayed."""

    WAIT = 0
    """It is in the queue of the stage."""
    RUN = 1
    """The stage works on it."""
    BLOCKED = 2
    """The stage has done its work and cannot hand it on: the next queue is full."""
    FIRST_UNIT = 3
    """A moment: the first unit of its result is there."""
    PREPARE = 4
    """The stage gets ready for it: a model is loaded, data are fetched."""
    STEP = 5
    """A part of a run, such as one decoding step; its time is that of the run."""


class Failure(IntEnum):
    """The number is the value in a raw segment, the lower-case name the displayed one."""

    NONE = 0
    TIMEOUT = 1
    CONNECT = 2
    RESET = 3
    PROTOCOL = 4
    CLIENT_ERROR = 5
    SERVER_ERROR = 6
    WRONG_REPLY = 7
    EMPTY_REPLY = 8
    DRIVER = 9
    CANCELLED = 10
    REPLY_TOO_LARGE = 11
    SERIALIZATION_FAILURE = 12
    DEADLOCK_DETECTED = 13


CONFLICTS = (Failure.SERIALIZATION_FAILURE, Failure.DEADLOCK_DETECTED)
"""A transaction that failed so was rolled back because of another one, and may succeed when it is tried again."""
