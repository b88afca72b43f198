"""The errors that are printed without a traceback, and 'did you mean'. Nothing else lives here."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """One or more mistakes of the user's: each a line that says what, where, what is allowed and the remedy."""

    exit_code = 2

    def __init__(self, *mistakes: str) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class SiteError(UserError):
    """The machine lacks what the run needs (no Slurm, no image, no space): not the scenario's fault."""

    exit_code = 3


def did_you_mean(word: object, allowed: Iterable[object]) -> str:
    """Return " Did you mean 'x'?" for the nearest allowed word, or "" when none is near."""
    near = get_close_matches(str(word), [str(name) for name in allowed], n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""
