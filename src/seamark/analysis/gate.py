"""Gate of results for a pipeline of tests: passed, or each reason against it. Decides from records; reads no file.

A gate is not passed by a trial that failed or is INVALID, by an objective that is missed, and by one that is not
known to be met, as where the limit lies between the two ends of its value. What is merely SUSPECT passes, and the
line says how many trials are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seamark.analysis.metrics.distribution import QUANTILES
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.plurals import counted
from seamark.model.results.summary import ObjectiveSummary, Summary
from seamark.model.results.trial_metrics import ObjectiveResult, TrialMetrics, VerdictReason
from seamark.stats.quantiles import FEWEST, samples_needed

SHOWN = 3
"""Reasons that the line names; the others are counted."""
TOO_FEW = "too_few_samples"
WITHHELD = "percentile_withheld"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The outcome over some `trials` with `objectives`; `reasons` against it, none if it is passed. `suspect` is the
    number of trials that are SUSPECT."""

    trials: int
    objectives: int
    suspect: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons

    @property
    def text(self) -> str:
        """The outcome in one line."""
        if self.reasons:
            more = len(self.reasons) - SHOWN
            rest = [f"and {counted(more, 'more reason')}"] if more > 0 else []
            return f"Gate not passed: {'; '.join([*self.reasons[:SHOWN], *rest])}."
        objectives = f"{counted(self.objectives, 'objective')} met" if self.objectives else "no objective is set"
        suspect = f", {self.suspect} of them SUSPECT" if self.suspect else ""
        return f"Gate passed: {counted(self.trials, 'trial')}{suspect}; {objectives}."


Slo = ObjectiveSummary | ObjectiveResult


def gate_of_summary(summary: Summary, unmeasured: int = 0) -> Gate:
    """Return the gate of a scenario. `unmeasured` is the number of its trials that were not measured as planned."""
    failed = {failure.trial for failure in summary.failed}
    reasons = []
    if unmeasured:
        reasons.append(f"{unmeasured} of {counted(summary.trials, 'trial')} not measured")
    if summary.failed:
        first = summary.failed[0]
        why = f"{first.trial}: {first.reason or first.category or first.status}"
        reasons.append(f"{len(failed)} of {counted(summary.trials, 'trial')} failed ({why})")
    for row in summary.treatments:
        name = " ".join([row.workload, *(f"{factor}={level}" for factor, level in row.factors.items())])
        invalid = sum(
            verdict == "INVALID" and trial not in failed
            for trial, verdict in zip(row.trials, row.trial_verdicts, strict=True)
        )
        if invalid or (row.verdict == "INVALID" and row.repetitions):
            reasons.append(f"{name}: INVALID{_in(invalid, row.repetitions)} ({_gravest(row.reasons)})")
        objectives = [(slo, slo.of - slo.met, row.repetitions - slo.of) for slo in row.slos]
        reasons += [f"{name}: {reason}" for reason in _against(objectives, row.repetitions, row.reasons)]
    return Gate(
        trials=summary.trials,
        objectives=sum(len(row.slos) for row in summary.treatments),
        suspect=summary.verdicts.get("SUSPECT", 0),
        reasons=tuple(reasons),
    )


def gate_of_trial(metrics: TrialMetrics) -> Gate:
    """Return the gate of one trial, as `bench load` measures it."""
    reasons = [f"INVALID ({_gravest(metrics.reasons)})"] if metrics.verdict == "INVALID" else []
    if metrics.ok:
        objectives = [(slo, int(slo.met is False), int(slo.met is None)) for slo in metrics.slos]
        reasons += _against(objectives, 1, metrics.reasons)
    return Gate(
        trials=1,
        objectives=len(metrics.slos),
        suspect=int(metrics.verdict == "SUSPECT"),
        reasons=tuple(reasons),
    )


def _against(objectives: Sequence[tuple[Slo, int, int]], trials: int, reasons: Iterable[VerdictReason]) -> list[str]:
    """Return what speaks against passing, by objectives over so many trials, each with how many miss it and in how
    many it is not known, and by the reasons of the trials."""
    by_code = {reason.code: reason for reason in reasons}
    against = [_missed(slo, _in(missed, trials)) for slo, missed, _ in objectives if missed]
    withheld = WITHHELD in by_code
    against += [_unknown(slo, _in(unknown, trials), withheld=withheld) for slo, _, unknown in objectives if unknown]
    if objectives and TOO_FEW in by_code:
        against.append(f"{by_code[TOO_FEW].text}, too few to know whether an objective is met")
    return against


def _missed(slo: Slo, where: str) -> str:
    text, value = f"{_text(slo)} missed", slo.known
    if value is None:
        return f"{text}{where}"
    if isinstance(slo, ObjectiveResult) or not where:
        return f"{text}, is {value.text}"
    worst = value.low if slo.op == ">=" else value.high
    if worst is None and slo.value is not None:  # no end above: the greatest of the lower ones
        return f"{text}{where}, at worst at least {slo.value.max:.4g}"
    return f"{text}{where}, at worst {worst:.4g}"


def _unknown(slo: Slo, where: str, *, withheld: bool) -> str:
    statistic = slo.metric.removesuffix("_s").rpartition("_")[2]
    probability = QUANTILES.get(statistic, QUANTILES["p99"] if slo.metric in REQUEST_OBJECTIVES else None)
    if slo.known is not None:
        why = f"its value is {slo.known.text}"
        if withheld and probability is not None:
            why += f": {samples_needed(probability):,} samples in a trial give it as a number"
    elif withheld and probability is not None:
        why = f"too few samples, {FEWEST} in a trial give a range and {samples_needed(probability):,} a number"
    else:
        why = "it has no value"
    return f"whether {_text(slo)} is met is not known{where} ({why})"


def _text(slo: Slo) -> str:
    return f"{slo.metric} {slo.op} {slo.limit:g}"


def _in(count: int, of: int) -> str:
    return f" in {count} of {counted(of, 'trial')}" if of > 1 and count else ""


def _gravest(reasons: Sequence[VerdictReason]) -> str:
    """Return the text of the first reason that makes a result INVALID; its code where it has none."""
    first = next((reason for reason in reasons if reason.severity == "invalid"), None)
    return "no reason is recorded" if first is None else first.text or first.code
