"""What a worker of a load has said to its parent so far, however its lines came."""

import json
from typing import Any

from seamark.load.engine.saturation import Told


class Said:
    """The lines of one worker. `ready` holds what it said when it was ready, `failed` why it cannot go on, `loaded`
    whether its requests have ended, `told` how far its load is."""

    def __init__(self) -> None:
        self.ready: dict[str, Any] | None = None
        self.failed: str | None = None
        self.loaded = False
        self.told: Told | None = None

    def take(self, line: str) -> None:
        """Take in one line; words that are not known are passed over."""
        word, _, rest = line.partition(" ")
        if word == "ready":
            self.ready = json.loads(rest)
        elif word == "failed":
            self.failed = rest
        elif word == "loaded":
            self.loaded = True
        elif word == "far":
            at_ns, due, completed = map(int, rest.split())
            self.told = (at_ns, due, completed)
