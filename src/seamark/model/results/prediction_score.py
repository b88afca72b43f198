"""The document of `bench capacity --score`: what a model predicted of trials, beside what was measured."""

from dataclasses import dataclass

from seamark.model.results.values import Word


@dataclass(frozen=True, kw_only=True)
class ScoredFigure:
    """One figure at one load, in the unit of an objective: its prediction, and what each trial measured. `inside`
    counts the trials in the interval."""

    figure: str
    value: float
    low: float
    high: float
    measured: tuple[float, ...] = ()
    inside: int = 0


@dataclass(frozen=True, kw_only=True)
class ScoredLoad:
    """One load: the predicted probability that a trial meets the objectives, and how many of the judged trials did.
    `right` is whether most of them had the likelier verdict, None without any; `unmeasured` trials have no figures
    or are INVALID, and `doubtful` ones are SUSPECT, by `codes`."""

    rate_rps: float
    predicted_met: float
    met: int = 0
    judged: int = 0
    right: bool | None = None
    unmeasured: int = 0
    doubtful: int = 0
    codes: tuple[str, ...] = ()
    figures: tuple[ScoredFigure, ...] = ()
    suspect: Word = None


@dataclass(frozen=True, kw_only=True)
class PredictionScore:
    """Prediction against measurement. `inside` of `compared` figures of single trials lie in their intervals, and at
    `right` of `judged` loads the predicted verdict was that of most trials."""

    schema_version: int = 1
    scenario: str
    fit: Word = None
    interval: float
    inside: int
    compared: int
    right: int
    judged: int
    loads: tuple[ScoredLoad, ...] = ()
