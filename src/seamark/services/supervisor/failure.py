"""The two ways in which a deployment comes to its end: there was a reason to end it, or it never came up."""


class EndedError(Exception):
    """There is a reason to end a deployment: crash, stop, sigterm, lease, endpoint-removed, evicted, teardown."""

    def __init__(self, why: str, reason: str) -> None:
        super().__init__(f"{why}: {reason}")
        self.why = why
        self.reason = reason


class FailedError(Exception):
    """A deployment did not come up: setup_failed, port_taken or server_never_healthy."""

    def __init__(self, category: str, reason: str, log_tail: list[str] | None = None) -> None:
        super().__init__(f"{category}: {reason}")
        self.category = category
        self.reason = reason
        self.log_tail = log_tail or []
