"""Why a request has no good reply: the categories, and nothing else."""

from enum import IntEnum


class Failure(IntEnum):
    """The number is what a raw segment holds, the lower-case name what is shown."""

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
