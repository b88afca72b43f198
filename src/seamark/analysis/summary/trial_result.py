"""Result of one trial for a summary, read from its files. A missing or damaged file is part of the result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seamark.analysis.checks import gravest_first, worst
from seamark.analysis.metrics.table import VERSION
from seamark.model.results.summary import Summary
from seamark.model.results.trial_metrics import HistogramRecord, Histograms, TrialMetrics, Verdict, VerdictReason
from seamark.model.trial import Trial
from seamark.stats.histogram import Histogram, require_buckets
from seamark.storage.documents import read
from seamark.storage.paths import TrialFolder

NEEDED = ("response_ns", "service_ns")


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """One trial by its files. `metrics` is None when they cannot be read. `histograms` of known times and `censored`,
    lower bounds of unknown ones, have the same names. `by_twins` are its reasons by the other repetitions."""

    trial: Trial
    metrics: TrialMetrics | None = None
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    censored: Mapping[str, Histogram] = field(default_factory=dict)
    status: str
    category: str | None = None
    reason: str | None = None
    by_twins: tuple[VerdictReason, ...] = ()

    @property
    def good(self) -> TrialMetrics | None:
        """The metrics of a trial with figures, None for one without."""
        return self.metrics if self.status == "ok" else None

    @property
    def verdict(self) -> Verdict:
        """The verdict of metrics.json, or a graver one by its twins; INVALID without figures."""
        if self.good is None:
            return "INVALID"
        return worst([self.good.verdict, *(reason.verdict for reason in self.by_twins)])

    @property
    def reasons(self) -> tuple[VerdictReason, ...]:
        """The reasons of metrics.json and by its twins; of a trial without metrics why it has none."""
        if self.metrics is not None:
            return (*self.metrics.reasons, *self.by_twins)
        remedy = "`bench retry` measures it again." if self.status == "missing" else "Remove the file and run again."
        text = self.reason or self.status
        return (VerdictReason(code=str(self.category), severity="invalid", text=text, remedy=remedy),)


def of_figures(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the trials of a treatment whose figures are summed up: those that are not INVALID, or if all are,
    all that have figures."""
    good = [result for result in results if result.good]
    return [result for result in good if result.verdict != "INVALID"] or good


def read_trial_result(trial: Trial, folder: TrialFolder) -> TrialResult:
    """Read the result of a trial; damage of its files is part of it and not an error."""
    try:
        metrics = marked(read(folder.metrics, TrialMetrics))
        if not metrics.ok:
            return TrialResult(
                trial=trial,
                metrics=metrics,
                status=metrics.status,
                category=metrics.category,
                reason=metrics.reason,
            )
    except FileNotFoundError:
        reason = f"no {folder.metrics.name}: the trial was not measured"
        return TrialResult(trial=trial, status="missing", category="missing_file", reason=reason)
    except (ValueError, OSError) as damage:
        reason = " ".join(str(damage).split())
        return TrialResult(trial=trial, status="damaged", category="damaged_file", reason=reason)
    try:
        histograms, censored = read_histograms(folder)
    except (ValueError, OSError) as damage:
        text = "histogram.json is missing" if isinstance(damage, FileNotFoundError) else " ".join(str(damage).split())
        remedy = "`bench collect` derives it again from the samples; pooled percentiles are without it until then."
        return TrialResult(trial=trial, metrics=suspect(metrics, "damaged_file", text, remedy), status="ok")
    return TrialResult(trial=trial, metrics=metrics, histograms=histograms, censored=censored, status="ok")


def read_histograms(folder: TrialFolder) -> tuple[Mapping[str, Histogram], Mapping[str, Histogram]]:
    """Return a trial's histograms of known times and of lower bounds, by name. Raises ValueError that names a damaged
    file. A file of an older version has no lower bounds."""
    records = read(folder.histogram, Histograms)
    if missing := [name for name in NEEDED if name not in records.histograms]:
        raise ValueError(f"{folder.histogram}: it lacks {', '.join(missing)}. Remove the file and run again.")
    try:
        known, bounds = (
            {name: histogram_of(record) for name, record in part.items()}
            for part in (records.histograms, records.censored)
        )
    except ValueError as cause:
        raise ValueError(f"{folder.histogram}: {cause}. Remove the file; the next run makes it again.") from cause
    return known, bounds


def histogram_of(record: HistogramRecord) -> Histogram:
    """Return the histogram of a record. Raises ValueError when the record contradicts itself, or says what no
    histogram can."""
    require_buckets(record.indexes, record.relative_error)
    histogram = Histogram(
        relative_error=record.relative_error,
        zeros=record.zeros,
        buckets=dict(zip(record.indexes, record.counts, strict=True)),
        total=int(record.sum),
        minimum=record.min,
        maximum=record.max,
    )
    if histogram.count != record.count:
        raise ValueError(f"its bins hold {histogram.count} values, not the {record.count} that it names")
    return histogram


def record_of(histogram: Histogram) -> HistogramRecord:
    """Return a histogram as histogram.json has it: bins as two parallel tuples in rising order."""
    indexes = tuple(sorted(histogram.buckets))
    return HistogramRecord(
        relative_error=histogram.relative_error,
        count=histogram.count,
        sum=histogram.total,
        min=histogram.minimum,
        max=histogram.maximum,
        zeros=histogram.zeros,
        indexes=indexes,
        counts=tuple(histogram.buckets[index] for index in indexes),
    )


def is_older(path: Path, noun: type[TrialMetrics] | type[Summary]) -> bool:
    """Return whether an older version of the metrics made a file: its figures then mean something else. False for a
    damaged file."""
    try:
        return read(path, noun).metrics_version < VERSION
    except ValueError:
        return False


SAMPLES_MISSING = "samples_missing"


def without_samples(metrics: TrialMetrics, damage: str) -> TrialMetrics:
    """Return the figures of a trial whose samples cannot be read any more, with a reason. `damage` names the file."""
    text = f"{damage.rstrip('.')}: the figures stand as they were, and cannot be checked or derived again"
    return suspect(metrics, SAMPLES_MISSING, text, "Put the file back, or measure it again with `bench retry`.")


def suspect(metrics: TrialMetrics, code: str, text: str, remedy: str) -> TrialMetrics:
    """Return metrics that are SUSPECT at best, with one more reason, in place of one of its code."""
    reason = VerdictReason(code=code, severity="suspect", text=text, remedy=remedy)
    reasons = gravest_first([*(one for one in metrics.reasons if one.code != code), reason])
    return replace(metrics, reasons=reasons, verdict=worst([metrics.verdict, reason.verdict]))


def marked(metrics: TrialMetrics) -> TrialMetrics:
    """Return metrics with the reason `older_rule` where an older version made them."""
    if not metrics.ok or metrics.metrics_version >= VERSION:
        return metrics
    window = metrics.window
    text = f"figures by the rule '{window.rule}' of version {metrics.metrics_version or None} of the metrics"
    if window.start_s is not None:
        text += f": what was due before {window.start_s:.3g} s is in none of them"
    remedy = "Its samples are gone: do not compare it with others, or measure it again with `bench retry`."
    return suspect(metrics, "older_rule", text, remedy)
