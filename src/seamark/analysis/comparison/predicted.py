"""What a model predicted of a scenario's trials, held against what they measured."""

from collections.abc import Sequence

from seamark.analysis.metrics.objectives import value_of
from seamark.analysis.trial_view import TrialView
from seamark.model.results.comparison import PredictionScore, ScoredFigure, ScoredLoad
from seamark.model.scenario import PredictedLoad
from seamark.model.trial import Plan
from seamark.storage.paths import ScenarioFolder


def score_of(plan: Plan, folder: ScenarioFolder) -> PredictionScore | None:
    """Return how a scenario's prediction did on what its trials measured; None for a scenario without one.

    It counts the figures of trials that lie in their predicted intervals, and the loads with the predicted verdict. A
    figure that is a lower bound, or that a trial has too few requests for, is not counted, and no INVALID trial.
    """
    prediction = plan.prediction
    if prediction is None:
        return None
    trials = [TrialView.of(trial, folder) for trial in plan.measured]
    loads = tuple(
        _load(load, [view for view in trials if view.trial.settings.get("rate_rps") == load.rate_rps])
        for load in prediction.loads
    )
    figures = [figure for load in loads for figure in load.figures]
    return PredictionScore(
        scenario=plan.scenario,
        fit=prediction.fit,
        interval=prediction.interval,
        inside=sum(figure.inside for figure in figures),
        compared=sum(len(figure.measured) for figure in figures),
        right=sum(load.right is True for load in loads),
        judged=sum(load.right is not None for load in loads),
        loads=loads,
    )


def _load(predicted: PredictedLoad, results: Sequence[TrialView]) -> ScoredLoad:
    good = [result for result in results if result.good is not None and result.verdict != "INVALID"]
    doubtful = [result for result in good if result.verdict != "VALID"]
    verdicts = [verdict for result in good if (verdict := _met(result)) is not None]
    met = sum(verdicts)
    right = None
    if verdicts and 2 * met != len(verdicts):
        right = (2 * met > len(verdicts)) == (predicted.met >= 0.5)
    return ScoredLoad(
        rate_rps=predicted.rate_rps,
        predicted_met=predicted.met,
        met=met,
        judged=len(verdicts),
        right=right,
        unmeasured=len(results) - len(good),
        doubtful=len(doubtful),
        codes=tuple(
            dict.fromkeys(
                reason.code for result in doubtful for reason in result.reasons if reason.verdict != "VALID"
            )
        ),
        figures=tuple(_figure(name, numbers, good) for name, numbers in predicted.figures.items()),
        suspect=predicted.suspect,
    )


def _met(result: TrialView) -> bool | None:
    """Return whether a trial met all of its objectives, None where one of them could not be judged."""
    assert result.good is not None
    verdicts = [slo.met for slo in result.good.slos]
    if any(verdict is False for verdict in verdicts):
        return False
    return None if not verdicts or None in verdicts else True


def _figure(name: str, numbers: Sequence[float], results: Sequence[TrialView]) -> ScoredFigure:
    value, low, high = numbers
    figures = [value_of(name, result.good) for result in results if result.good is not None]
    measured = tuple(figure.low for figure in figures if figure is not None and figure.is_narrow)
    return ScoredFigure(
        figure=name,
        value=value,
        low=low,
        high=high,
        measured=measured,
        inside=sum(low <= observed <= high for observed in measured),
    )
