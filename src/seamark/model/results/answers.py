"""answers.json: how the kept replies of a trial were scored, and asked.json: what they are replies to. The scores
themselves are in answers.parquet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seamark.model.results.values import OPTIONAL, Count, Number, Word


@dataclass(frozen=True, kw_only=True)
class Score:
    """Mean of one score over the `scored` answers, with its standard error, which takes clusters into account."""

    mean: Number = None
    standard_error: Number = None
    scored: int = 0


@dataclass(frozen=True, kw_only=True)
class AnswersRecord:
    """Outcome of one scoring. `skipped`: the load has failed. Of a `failed` one `reason` says why.

    `quality_version` is the dotted path of the scoring function with a digest of its module, then those of what else
    scores, such as a task's scorer; `answers_sha256` is a digest of what was answered to each item, `key_sha256` one
    of the references and facts of a task that these were scored against, None where it has none. `answered` counts
    the items with a good reply; it and the digests are None in older files. `errors` counts replies by the code that
    the server gave their error. Where it gave most of a failed load's one that is a category of the recipe, that is
    `category`, with its `remedy`. `published` are figures of a task as its benchmark publishes them, where they are
    no means of scores.
    """

    schema_version: int = 1
    status: Literal["ok", "failed", "skipped"]
    reason: Word = None
    quality_version: str = ""
    answers: int = 0
    answered: Count = field(default=None, metadata=OPTIONAL)
    clusters: Count = None
    answers_sha256: Word = field(default=None, metadata=OPTIONAL)
    key_sha256: Word = field(default=None, metadata=OPTIONAL)
    scores: Mapping[str, Score] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict, metadata=OPTIONAL)
    published: Mapping[str, float] = field(default_factory=dict, metadata=OPTIONAL)
    category: Word = field(default=None, metadata=OPTIONAL)
    remedy: Word = field(default=None, metadata=OPTIONAL)

    @property
    def commonest_error(self) -> str | None:
        """The code that most errors have, None without any."""
        return max(self.errors, key=self.errors.__getitem__, default=None)

    def unanswered(self, items: int | None) -> int:
        """Return how many of a finite load's items have no good reply; 0 where the load has no number of items."""
        if items is None or self.status != "ok":
            return 0
        return max(0, items - (self.answers if self.answered is None else self.answered))


@dataclass(frozen=True, kw_only=True)
class AskedRecord:
    """What the kept replies of a load are replies to: by item what identifies the content of its request.

    `epoch_unix_ns` is that of the load. Written with its replies where the driver identifies its items, else by the
    first scoring, and never changed: replies are not scored against requests of another content.
    """

    schema_version: int = 1
    epoch_unix_ns: int | None = None
    asked: Mapping[str, str] = field(default_factory=dict)
