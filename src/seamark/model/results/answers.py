"""answers.json: how the kept replies of a trial were scored. The scores themselves are in answers.parquet."""

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

    `quality_version` is the dotted path of the scoring function with a digest of its module, `answers_sha256` a digest
    of what was answered to each item.
    """

    schema_version: int = 1
    status: Literal["ok", "failed", "skipped"]
    reason: Word = None
    quality_version: str = ""
    answers: int = 0
    clusters: Count = None
    answers_sha256: Word = field(default=None, metadata=OPTIONAL)
    scores: Mapping[str, Score] = field(default_factory=dict)
