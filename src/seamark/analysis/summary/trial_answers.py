"""Scored answers of a trial for a comparison: what answers.json says, and answers.parquet when it is needed."""

from seamark.analysis.comparison.scored import ScoredItems, TrialAnswers
from seamark.model.results.answers import AnswersRecord
from seamark.model.results.load_record import LoadRecord
from seamark.model.trial import Trial
from seamark.storage.documents import read_or_none
from seamark.storage.paths import TrialFolder

SEED = "seed"


def trial_answers(trial: Trial, folder: TrialFolder, load: LoadRecord | None) -> TrialAnswers | None:
    """Return the scored answers of a trial; None where its replies were not scored."""
    record = read_or_none(folder.answers_record, AnswersRecord)
    if record is None or record.status != "ok" or not folder.answers.exists():
        return None

    def scored() -> ScoredItems | None:
        from seamark.analysis.answers import read_scored  # imports pyarrow

        return read_scored(folder.answers)

    return TrialAnswers(
        scores=tuple(record.scores),
        read=scored,
        unanswered=_unanswered(record, load),
        seeds={name: value for name, value in trial.settings.items() if name == SEED or name.endswith(f"_{SEED}")},
        key=record.key_sha256,
    )


def whole_answers(folder: TrialFolder) -> AnswersRecord | None:
    """Return what answers.json says of a trial whose replies were scored, None where an item has no answer: scores of
    a part of the items are those of another task, in a report as in a comparison."""
    record = read_or_none(folder.answers_record, AnswersRecord)
    if record is None or record.status != "ok" or _unanswered(record, read_or_none(folder.load, LoadRecord)):
        return None
    return record


def _unanswered(record: AnswersRecord, load: LoadRecord | None) -> int:
    """Return how many items of a load have no answer; 0 where their number is not known."""
    return record.unanswered(load.items if load is not None else None)
