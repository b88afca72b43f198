"""What passes between the loads of short trials of one run: the orchestrator's own time."""

from itertools import pairwise

import pytest
from study_folder import StudyFolder

from seamark.model.results.load_record import LoadRecord
from seamark.storage.documents import read

MOST_S = 1.5
"""Of a trial of 30 s, 5 %."""


@pytest.mark.sweep
@pytest.mark.serial
@pytest.mark.e2e
@pytest.mark.covers("E-NFR01")
def test_the_gaps_between_twelve_null_trials_are_less_than_a_second_and_a_half_each(study: StudyFolder) -> None:
    study.write(repetitions=6)
    study.bench("submit", "-c", "config/scenarios/try.yaml", code=0)
    spans = sorted(read(trial / "load.json", LoadRecord).span_s or (0.0, 0.0) for trial in study.trials())
    assert len(spans) == 12
    gaps_s = [began - ended for (_, ended), (began, _) in pairwise(spans)]
    assert min(gaps_s) > 0, "the loads of one deployment take turns"
    assert sum(gaps_s) / len(gaps_s) < MOST_S
