"""run.json: the note on a run that was set aside for the history of its scenario."""

from dataclasses import dataclass

from seamark.model.results.values import Moment, Word


@dataclass(frozen=True, kw_only=True)
class KeptRun:
    """A run of a scenario under a name of its own. `commit` is that of the measured service, as its user gave it."""

    schema_version: int = 1
    scenario: str
    run: str
    kept_at: Moment = None
    commit: Word = None
