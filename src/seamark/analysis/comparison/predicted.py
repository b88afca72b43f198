"""What a model predicted of a scenario's trials, held against what they measured."""

from collections.abc import Sequence

from seamark.analysis.metrics.objectives import value_of
from seamark.analysis.trial_view import TrialView
from seamark.model.results.prediction_score import PredictionScore, ScoredFigure, ScoredLoad
from seamark.model.scenario import PredictedLoad, Prediction
from seamark.model.trial import Plan
from seamark.storage.paths import ScenarioFolder


def score_of(plan: Plan, folder: ScenarioFolder) -> PredictionScore | None:
    """Return how a scenario's prediction did on what its trials measured; None for a scenario without one."""
    if plan.prediction is None:
        return None
    trials = [TrialView.of(trial, folder) for trial in plan.measured]
    return _score(plan.scenario, plan.prediction, trials)


def _score(scenario: str, prediction: Prediction, results: Sequence[TrialView]) -> PredictionScore:
    """Count the figures of trials that lie in their predicted intervals, and the loads with the predicted verdict.

    A figure that is a lower bound, or that a trial has too few requests for, is not counted, and no INVALID trial.
    """
    loads = tuple(
        _load(each, [result for result in results if result.trial.settings.get("rate_rps") == each.rate_rps])
        for each in prediction.loads
    )
    figures = [figure for load in loads for figure in load.figures]
    return PredictionScore(
        scenario=scenario,
        fit=prediction.fit,
        interval=prediction.interval,
        inside=sum(each.inside for each in figures),
        compared=sum(len(each.measured) for each in figures),
        right=sum(each.right is True for each in loads),
        judged=sum(each.right is not None for each in loads),
        loads=loads,
    )


def _load(predicted: PredictedLoad, results: Sequence[TrialView]) -> ScoredLoad:
    good = [each for each in results if each.good is not None and each.verdict != "INVALID"]
    doubtful = [each for each in good if each.verdict != "VALID"]
    verdicts = [verdict for each in good if (verdict := _met(each)) is not None]
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
            dict.fromkeys(reason.code for each in doubtful for reason in each.reasons if reason.verdict != "VALID")
        ),
        figures=tuple(_figure(name, numbers, good) for name, numbers in predicted.figures.items()),
        suspect=predicted.suspect,
    )


def _met(result: TrialView) -> bool | None:
    """Return whether a trial met all of its objectives, None where one of them could not be judged."""
    assert result.good is not None
    verdicts = [each.met for each in result.good.slos]
    if any(each is False for each in verdicts):
        return False
    return None if not verdicts or None in verdicts else True


def _figure(name: str, numbers: Sequence[float], results: Sequence[TrialView]) -> ScoredFigure:
    value, low, high = numbers
    found = [value_of(name, each.good) for each in results if each.good is not None]
    measured = tuple(one.low for one in found if one is not None and one.is_narrow)
    return ScoredFigure(
        figure=name,
        value=value,
        low=low,
        high=high,
        measured=measured,
        inside=sum(low <= each <= high for each in measured),
    )
