"""Answers behind a comparison: they are of the trials that the comparison itself used."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from samples import a_load, a_trial

from seamark.analysis.changed_answers import scores_by_fact
from seamark.analysis.trial_view import TrialView
from seamark.model.results.answers import AnswersRecord, Score
from seamark.model.results.comparison import Compared, ComparedAnswers, ComparedSide, Comparisons
from seamark.report.page.answers import changed_table, side_by_side
from seamark.storage.documents import write
from seamark.storage.paths import TrialFolder

ASKED = 10


def answering(root: Path, block: int, scores: Sequence[float]) -> TrialView:
    """Return a trial that answered the first of ten questions with these scores."""
    folder = TrialFolder(root=root / str(len(list(root.iterdir()))))
    folder.root.mkdir()
    write(folder.load, a_load(items=ASKED))
    mean = Score(mean=sum(scores) / len(scores), scored=len(scores))
    write(folder.answers_record, AnswersRecord(status="ok", answers=len(scores), scores={"score": mean}))
    ids = [f"q{item}" for item in range(len(scores))]
    columns = {
        "id": ids,
        "cluster": ids,
        "failure": pa.array([None] * len(ids), pa.string()),
        "answer": ["x"] * len(ids),
        "score": scores,
        "fact_depth": [0.5] * len(ids),
    }
    pq.write_table(pa.table(columns), folder.answers)
    return TrialView(trial=a_trial(repetition=block), folder=folder)


def test_answers_side_by_side_are_not_of_a_trial_that_the_comparison_left_out(tmp_path: Path) -> None:
    """In block 1 the new side answered the easy questions alone, in block 2 all of them, and half as well."""
    right = [1.0] * 6 + [0.0] * 4
    sides = {
        "dense": [answering(tmp_path, block, right) for block in (1, 2)],
        "lossy": [answering(tmp_path, 1, [1.0] * 6), answering(tmp_path, 2, [1.0] * 3 + [0.0] * 7)],
    }
    of_block_2 = Compared(
        workload="w",
        factor="method",
        metric="score",
        better="higher",
        base=ComparedSide(treatment="dense", level="dense"),
        new=ComparedSide(treatment="lossy", level="lossy"),
        answers=ComparedAnswers(items=10, units=10, base_mean=0.6, new_mean=0.3, higher=0, lower=3, unusable=(0, 1)),
    )
    found = Comparisons(comparisons=(of_block_2,))
    [both] = side_by_side(found, sides.__getitem__, sides.__getitem__)
    [fact] = scores_by_fact({"dense": both.base, "lossy": both.new}, "score")
    assert (fact.items, fact.means) == (10, {"dense": 0.6, "lossy": 0.3})
    changed = changed_table(found, sides.__getitem__, sides.__getitem__)
    assert [row["id"] for row in changed] == ["q3", "q4", "q5"]
    assert list(side_by_side(found, sides.__getitem__, lambda name: sides[name][:1] if name == "lossy" else ())) == []
