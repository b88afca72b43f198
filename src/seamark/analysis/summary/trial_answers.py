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
        unanswered=record.unanswered(load.items if load is not None else None),
        seeds={name: value for name, value in trial.settings.items() if name == SEED or name.endswith(f"_{SEED}")},
    )
