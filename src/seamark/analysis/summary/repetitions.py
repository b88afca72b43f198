"""Checks across trials: agreement of the repetitions of a treatment, and the nodes of a comparison."""

from collections.abc import Mapping, Sequence
from statistics import median

from seamark.analysis.checks.nodes import Seen, add_machine
from seamark.analysis.summary.treatments import unit_of
from seamark.analysis.trial_view import TrialView
from seamark.model.plurals import counted, in_percent, unit_of_times
from seamark.model.results.trial_metrics import VerdictReason

THROUGHPUT_FACTOR = 1.5
RESPONSE_FACTOR = 2.0
"""How many times more or less than the median a repetition may have. With a coefficient of variation of 10 % between
repetitions, 0.1 % of treatments of three and 0.4 % of treatments of two are beyond 1.5; at 5 % none of 100,000."""


def disagreements(values: Mapping[str, float], what: str, unit: str, factor: float) -> dict[str, VerdictReason]:
    """Return a reason for each trial whose value is more than `factor` times above or below the median of all.

    `values` are those of the repetitions of one treatment, by trial. Of two that differ by more than `factor` both
    have a reason: nothing tells which of them is the odd one. Nothing comes of one value, or of a median of 0.
    """
    if len(values) < 2:
        return {}
    if len(values) == 2:
        low, high = sorted(values.values())
        odd = set(values) if high > factor * low else set()
    else:
        middle = median(values.values())
        beyond = {name for name, value in values.items() if value > factor * middle or value * factor < middle}
        odd = beyond if middle > 0 else set()
    return {name: _reason(name, values, what, unit) for name in values if name in odd}


def _reason(name: str, values: Mapping[str, float], what: str, unit: str) -> VerdictReason:
    unit, factor = unit_of_times(max(values.values())) if unit == "ms" else (unit, 1.0)
    value, others = factor * values[name], [factor * other for trial, other in values.items() if trial != name]
    if len(others) == 1:
        of = f"that of the other repetition {others[0]:.4g} {unit}"
    else:
        middle = factor * median(values.values())
        of = f"the median of {len(values)} repetitions {middle:.4g} {unit} ({in_percent(value / middle)} of it)"
    return VerdictReason(
        code="spread",
        severity="suspect",
        text=f"its {what} was {value:.4g} {unit}, {of}",
        remedy="See what else ran then, and the trial's other reasons; `bench retry TRIAL` measures it again.",
    )


def compared(views: Sequence[TrialView]) -> list[TrialView]:
    """Return one treatment's trials, each with the reasons by the other repetitions, and that of damaged histograms.

    Throughput is compared in every load, among those of the commonest unit; the median response time where the rate
    is given, since in a closed loop one follows from the other; answers where they were scored. Trials without
    figures are left out.
    """
    good = [view for view in views if view.ok]
    of_open = [view for view in good if not view.trial.load.closed]
    reasons = disagreements(_values(of_open, "latency_ms.p50"), "median response time", "ms", RESPONSE_FACTOR)
    unit = unit_of([view.good for view in good if view.good]) or ""
    alike = [view for view in good if view.good and view.good.throughput.unit == unit]
    throughputs = _values(alike, "throughput.value")
    reasons |= disagreements(throughputs, "throughput", unit.replace("_per_", "/"), THROUGHPUT_FACTOR)
    damaged = {view.id: reason for view in good if (reason := view.histogram_damage) is not None}
    by_check = (damaged, reasons, _answers_differ(good))
    return [view.with_reasons(check[view.id] for check in by_check if view.id in check) for view in views]


def _answers_differ(trials: Sequence[TrialView]) -> dict[str, VerdictReason]:
    """Return a reason for each trial with other answers than the first that has any. The tables are read only where
    digests differ."""
    scored = [(trial, trial.answers.answers_sha256) for trial in trials if trial.answers]
    scored = [(trial, digest) for trial, digest in scored if digest]
    odd = [trial for trial, digest in scored[1:] if digest != scored[0][1]]
    if not odd:
        return {}
    from seamark.analysis.answers import differing, read_said  # imports pyarrow

    reasons, first_trial = {}, scored[0][0]
    first = read_said(first_trial.folder.answers)
    for trial in odd:
        if first is None or (said := read_said(trial.folder.answers)) is None:
            continue
        count, both = differing(first, said)
        if count:
            reasons[trial.id] = VerdictReason(
                code="answers_differ",
                severity="note",
                text=f"{count} of {counted(both, 'item')} answered in both have another answer than in"
                f" {first_trial.id}",
                remedy="Where equal questions should have equal answers, see what depends on load, such as batching.",
            )
    return reasons


def _values(views: Sequence[TrialView], path: str) -> dict[str, float]:
    figures = {view.id: view.good.figure(path) for view in views if view.good}
    return {name: value for name, value in figures.items() if value is not None}


def add_nodes(seen: Seen, view: TrialView) -> None:
    """Add the facts of the nodes of a good trial; one without a readable meta.json adds none."""
    meta = view.meta
    for name, node in meta.all_nodes().items() if meta else ():
        if node.machine is not None:
            add_machine(seen, name, node.machine)
