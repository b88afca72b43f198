"""The repetitions of a treatment beside each other: reasons that a trial has by its twins, not by its own files."""

from collections.abc import Sequence
from dataclasses import replace

from seamark.analysis.checks.repetitions import RESPONSE_FACTOR, THROUGHPUT_FACTOR, spread
from seamark.analysis.metrics.objectives import look_up
from seamark.analysis.summary.outcome import Outcome


def compared(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes of one treatment's trials, each with what its twins say against it.

    Throughput is compared in every load; the median response time where the rate is given, since a closed loop has
    one by the other. Trials without figures take no part.
    """
    throughput = _values(outcomes, "throughput.value")
    of_open = [outcome for outcome in outcomes if outcome.trial.settings.get("pattern") != "closed"]
    reasons = spread(_values(of_open, "latency_ms.p50"), "median response time", "ms", RESPONSE_FACTOR)
    reasons |= spread(throughput, "throughput", _unit(outcomes), THROUGHPUT_FACTOR)
    return [
        replace(outcome, by_twins=(reasons[outcome.trial.id].to_json(),)) if outcome.trial.id in reasons else outcome
        for outcome in outcomes
    ]


def _values(outcomes: Sequence[Outcome], path: str) -> dict[str, float]:
    found = {}
    for outcome in outcomes:
        value = look_up(outcome.metrics, path) if outcome.ok and outcome.metrics is not None else None
        if isinstance(value, int | float):
            found[outcome.trial.id] = float(value)
    return found


def _unit(outcomes: Sequence[Outcome]) -> str:
    units = (outcome.metrics["throughput"]["unit"] for outcome in outcomes if outcome.ok and outcome.metrics)
    return str(next(units, "")).replace("_per_", "/")
