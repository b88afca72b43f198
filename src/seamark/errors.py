"""The errors that are printed without a traceback, and 'did you mean'. Nothing else lives here."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

Code = Literal[
    "conflict",
    "invalid",
    "missing",
    "newer_form",
    "no_study",
    "no_such_file",
    "no_value",
    "not_a_choice",
    "not_yaml",
    "out_of_limits",
    "unknown_key",
    "unknown_name",
    "unreadable",
    "worded",
    "written_twice",
    "wrong_form",
    "wrong_type",
]
"""Kinds of mistakes. `invalid` is a value that does not fit the rest of its file; `worded` is a line given whole."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A mistake of the user's: `text` says what is wrong, what is allowed and the remedy.

    `path` is the dotted part of the file, or an option of the command line; None where there is none.
    """

    code: Code
    file: str | None = None
    line: int | None = None
    path: str | None = None
    text: str

    @classmethod
    def at(cls, where: str, text: str, code: Code) -> "Mistake":
        """Return a mistake at a place in the form of `__str__`: "file.yaml:12: workload.batch"."""
        place, _, path = where.partition(": ")
        file, _, line = place.rpartition(":")
        known = bool(file) and line.isdigit()
        return cls(code=code, file=file if known else place, line=int(line) if known else None, path=path, text=text)

    def __str__(self) -> str:
        """Return the line that is printed: "file.yaml:12: workload.batch: unknown key."."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.path, self.text) if part)


class UserError(Exception):
    """One or more mistakes of the user's. A mistake that is given as text is a record with the code `worded`."""

    exit_code = 2

    def __init__(self, *mistakes: str | Mistake) -> None:
        self.mistakes = tuple(
            mistake if isinstance(mistake, Mistake) else Mistake(code="worded", text=mistake) for mistake in mistakes
        )
        super().__init__("\n".join(self.lines))

    @property
    def lines(self) -> tuple[str, ...]:
        """The mistakes as they are printed."""
        return tuple(map(str, self.mistakes))


class SiteError(UserError):
    """The machine lacks what the run needs (no Slurm, no image, no space): not the scenario's fault."""

    exit_code = 3


def did_you_mean(word: object, allowed: Iterable[object]) -> str:
    """Return " Did you mean 'x'?" for the nearest allowed word, or "" when none is near.

    A word without its unit stands for the one with it: rate_rps is nearer to rate than trace.
    """
    names = [str(name) for name in allowed]
    with_unit = [name for name in names if word and name.startswith(f"{word}_")]
    near = with_unit if len(with_unit) == 1 else get_close_matches(str(word), names, n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""
