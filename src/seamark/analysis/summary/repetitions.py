"""Checks across trials: agreement of the repetitions of a treatment, and of the nodes of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from seamark.analysis.checks.findings import Reason
from seamark.analysis.checks.nodes import Seen, add_machine, nodes_differ
from seamark.analysis.metrics.objectives import look_up
from seamark.analysis.summary.outcome import Outcome
from seamark.model.results.trial_meta import TrialMeta
from seamark.storage.paths import TrialFolder, read_or_none

THROUGHPUT_FACTOR = 1.5
RESPONSE_FACTOR = 2.0
"""How many times more or less than the median a repetition may have. With a coefficient of variation of 10 % between
repetitions, 0.1 % of treatments of three and 0.4 % of treatments of two are beyond 1.5; at 5 % none of 100,000."""


def spread(values: Mapping[str, float], what: str, unit: str, factor: float) -> dict[str, Reason]:
    """Return a reason for each trial whose value is more than `factor` times above or below the median of all.

    `values` are those of the repetitions of one treatment, by trial. Of two that differ by more than `factor` both
    have a reason: nothing tells which of them is the odd one. Nothing comes of one value, or of a median of 0.
    """
    if len(values) < 2:
        return {}
    if len(values) == 2:
        low, high = sorted(values.values())
        odd = dict(values) if high > factor * low else {}
    else:
        middle = median(values.values())
        odd = {name: value for name, value in values.items() if middle > 0 and _beyond(value, middle, factor)}
    return {name: _reason(name, values, what, unit) for name in odd}


def _beyond(value: float, middle: float, factor: float) -> bool:
    return value > factor * middle or value * factor < middle


def _reason(name: str, values: Mapping[str, float], what: str, unit: str) -> Reason:
    value, others = values[name], [other for each, other in values.items() if each != name]
    if len(others) == 1:
        of = f"that of the other repetition {others[0]:.4g} {unit}"
    else:
        middle = median(values.values())
        of = f"the median of {len(values)} repetitions {middle:.4g} {unit} ({value / middle:.0%} of it)"
    return Reason(
        code="spread",
        severity="suspect",
        text=f"its {what} was {value:.4g} {unit}, {of}",
        remedy="See what else ran then, and the trial's other reasons; `bench retry TRIAL` measures it again.",
    )


def compared(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes of one treatment's trials, each with what its twins say against it.

    Throughput is compared in every load; the median response time where the rate is given, since a closed loop has
    one by the other. Trials without figures take no part.
    """
    throughput = _values(outcomes, "throughput.value")
    of_open = [outcome for outcome in outcomes if not outcome.trial.load.closed]
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


Document = dict[str, Any]


class ComparedNodes:
    """What is known of the machines of each group of treatments that are compared. Holds facts, not documents."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}

    def add(self, group: str, folder: TrialFolder) -> None:
        """Note the nodes of a good trial; of one without a readable meta.json nothing is known."""
        meta = read_or_none(folder.meta, TrialMeta)
        for name, node in meta.all_nodes().items() if meta else ():
            if node.machine is not None:
                add_machine(self._seen.setdefault(group, {}), name, node.machine)

    def reasons(self, group: str, trials: int) -> list[Document]:
        """Return what stands against comparing the treatments of a group, as summary.json has reasons."""
        reason = nodes_differ(self._seen.get(group, {}))
        return [] if reason is None else [{**reason.to_json(), "count": trials}]
