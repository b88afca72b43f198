"""What PostgreSQL says went wrong, as categories of failures: by SQLSTATE (appendix A of its manual)."""

from seamark.model.failure import Failure

SINGLE = {
    "57014": Failure.TIMEOUT,  # cancelled, by statement_timeout
    "55P03": Failure.TIMEOUT,  # waited too long for a lock
    "57P01": Failure.RESET,  # the server is shut down
    "57P02": Failure.RESET,  # it crashes
    "57P03": Failure.CONNECT,  # it starts
}
OURS = ("22", "23", "42")
"""Classes that blame the statement. 40 (serialisation, deadlock), 53, 54, 58 and XX are the server's."""


def category(sqlstate: str) -> Failure:
    """Return the category of an error of the server's."""
    return SINGLE.get(sqlstate) or (Failure.CLIENT_ERROR if sqlstate[:2] in OURS else Failure.SERVER_ERROR)
