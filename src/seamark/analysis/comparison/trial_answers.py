"""Scored answers of a trial for a comparison: what answers.json says, and answers.parquet when it is needed."""

from seamark.analysis.comparison.scored import ScoredItems, TrialAnswers
from seamark.analysis.trial_view import TrialView
from seamark.model.results.answers import AnswersRecord

SEED = "seed"


def trial_answers(view: TrialView) -> TrialAnswers | None:
    """Return the scored answers of a trial; None where its replies were not scored."""
    record, path = view.answers, view.folder.answers
    if record is None or record.status != "ok" or not path.exists():
        return None

    def scored() -> ScoredItems | None:  # holds the path alone: a summary keeps the answers of all trials
        from seamark.analysis.answers import read_scored  # imports pyarrow

        return read_scored(path)

    return TrialAnswers(
        scores=tuple(record.scores),
        read=scored,
        unanswered=view.unanswered,
        seeds={
            name: value for name, value in view.trial.settings.items() if name == SEED or name.endswith(f"_{SEED}")
        },
        key=record.key_sha256,
    )


def whole_answers(view: TrialView) -> AnswersRecord | None:
    """Return what answers.json says of a trial whose replies were scored, None where an item has no answer: scores of
    a part of the items are those of another task, in a report as in a comparison."""
    return view.answers if view.answers and view.answers.status == "ok" and not view.unanswered else None
