"""search.json: the probes of a search and its result."""

from dataclasses import dataclass, field

from seamark.model.results.trial_metrics import ObjectiveResult
from seamark.model.results.values import Count, Moment, Number, Word
from seamark.model.scenario import Searched, Slo
from seamark.model.server_identity import ServerRecord


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One load to measure, at `level`. `look` counts those of its level from 1, `attempt` those of a look. Its length
    is `times` the scenario's duration."""

    level: int | float
    look: int = 1
    attempt: int = 1
    times: int = 1


@dataclass(frozen=True, kw_only=True)
class ProbeResult(Probe):
    """A probe that was measured: the verdict of the search after it, its figures, and the seconds that it took with
    their derivation. `trial_verdict` and `reasons` are those of its metrics; `folder` is relative to the trial's."""

    verdict: str = ""
    why: str = ""
    slos: tuple[ObjectiveResult, ...] = ()
    requests: Count = None
    achieved_rps: Number = None
    over_saturated_at_s: Number = None
    trial_verdict: Word = None
    reasons: tuple[str, ...] = ()
    spent_s: float = 0.0
    folder: str = ""


@dataclass(frozen=True, kw_only=True)
class RunningProbe:
    """The probe that is measured now, by its number from 1."""

    probe: int
    level: float
    folder: str = ""
    at: Moment = None


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """A search and its probes so far. `outcome` is None until it has ended; `bracket` holds the highest level that
    passed and the lowest one that failed."""

    schema_version: int = 1
    trial: Word = None
    trial_id: Word = None
    config_hash: Word = None
    server_identity: ServerRecord | None = None
    setting: Searched
    from_level: Number = field(default=None, metadata={"key": "from"})
    to_level: Number = field(default=None, metadata={"key": "to"})
    within: Number = None
    confirm: Count = None
    slos: tuple[Slo, ...] = ()
    budget_s: Number = None
    spent_s: float = 0.0
    outcome: Word = None
    found: Number = None
    confirmed: bool = False
    bracket: tuple[Number, Number] = (None, None)
    confidence: Number = None
    running: RunningProbe | None = None
    probes: tuple[ProbeResult, ...] = ()
