"""A trial as seen: the records of its folder, read when they are asked for. Damage of a file is part of it."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from seamark.analysis.checks import gravest_first, worst
from seamark.analysis.metrics.table import VERSION
from seamark.model.origin import MEASURED, HasOrigin, Origin
from seamark.model.results.answers import AnswersRecord
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.summary import Summary
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.results.trial_metrics import (
    HistogramRecord,
    Histograms,
    MeasuredWindow,
    TrialMetrics,
    Verdict,
    VerdictReason,
)
from seamark.model.trial import Trial
from seamark.stats.histogram import Histogram, require_buckets
from seamark.storage.documents import read, read_or_none
from seamark.storage.paths import ScenarioFolder, TrialFolder

NEEDED = ("response_ns", "service_ns")
KnownAndBounds = tuple[Mapping[str, Histogram], Mapping[str, Histogram]]
"""Histograms of known times, and under the same names of lower bounds of those not known."""


@dataclass(frozen=True, kw_only=True)
class TrialView(HasOrigin):
    """One trial by the files of its folder, each read once, when it is first asked for.

    A record is None where its file is missing or damaged. `against` are the reasons that a summary found beside those
    of metrics.json: the other repetitions, or a damaged histogram.
    """

    trial: Trial
    folder: TrialFolder
    against: tuple[VerdictReason, ...] = ()

    @classmethod
    def of(cls, trial: Trial, scenario: ScenarioFolder) -> Self:
        """Return a trial of a scenario's folder."""
        return cls(trial=trial, folder=scenario.trial(trial.id))

    @property
    def id(self) -> str:
        return self.trial.id

    @property
    def treatment(self) -> str:
        return self.trial.treatment

    @cached_property
    def load(self) -> LoadRecord | None:
        return read_or_none(self.folder.load, LoadRecord)

    @property
    def meta(self) -> TrialMeta | None:
        """The record of meta.json; it is large, and not kept."""
        return read_or_none(self.folder.meta, TrialMeta)

    @cached_property
    def answers(self) -> AnswersRecord | None:
        return read_or_none(self.folder.answers_record, AnswersRecord)

    @cached_property
    def _metrics(self) -> TrialMetrics | ValueError | OSError:
        try:
            return marked(read(self.folder.metrics, TrialMetrics))
        except (ValueError, OSError) as damage:
            return damage.with_traceback(None)

    @property
    def metrics(self) -> TrialMetrics | None:
        """The record of metrics.json, with the reason `older_rule` where an older version made it."""
        return self._metrics if isinstance(self._metrics, TrialMetrics) else None

    @property
    def good(self) -> TrialMetrics | None:
        """The metrics of a trial with figures, None for one without."""
        return self.metrics if self.metrics is not None and self.metrics.ok else None

    @property
    def ok(self) -> bool:
        """Whether the trial has figures."""
        return self.good is not None

    @property
    def status(self) -> str:
        """`ok`, `failed` or `timeout`; without metrics `missing` or `damaged`."""
        if isinstance(self._metrics, TrialMetrics):
            return self._metrics.status
        return "missing" if isinstance(self._metrics, FileNotFoundError) else "damaged"

    @property
    def category(self) -> str | None:
        return self.metrics.category if self.metrics is not None else f"{self.status}_file"

    @property
    def reason(self) -> str | None:
        """Why a trial has no figures."""
        if isinstance(self._metrics, TrialMetrics):
            return self._metrics.reason
        if self.status == "missing":
            return f"no {self.folder.metrics.name}: the trial was not measured"
        return " ".join(str(self._metrics).split())

    @property
    def origin(self) -> Origin:  # type: ignore[override]  # other nouns have it as a field
        record = self.metrics or self.load
        return MEASURED if record is None else record.origin

    @property
    def verdict(self) -> Verdict:
        """The verdict of metrics.json, or a graver one of a summary; INVALID without figures."""
        if self.good is None:
            return "INVALID"
        return worst([self.good.verdict, *(reason.verdict for reason in self.against)])

    @property
    def reasons(self) -> tuple[VerdictReason, ...]:
        """The reasons of metrics.json and of a summary; of a trial without metrics why it has none."""
        if self.metrics is not None:
            return (*self.metrics.reasons, *self.against)
        remedy = "`bench retry` measures it again." if self.status == "missing" else "Remove the file and run again."
        text = self.reason or self.status
        return (VerdictReason(code=str(self.category), severity="invalid", text=text, remedy=remedy),)

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(reason.code for reason in self.reasons)

    @property
    def window_s(self) -> tuple[float, float] | None:
        """The measured window from the start of the load."""
        window = self.metrics.window if self.metrics is not None else MeasuredWindow()
        return None if window.start_s is None or window.end_s is None else (window.start_s, window.end_s)

    @property
    def started_at(self) -> str | None:
        return self.load.started_at if self.load is not None else None

    @property
    def load_s(self) -> float | None:
        """Length of the load with its warm-up."""
        return (self.load.warmup_s or 0.0) + self.load.duration_s if self.load and self.load.duration_s else None

    @property
    def unanswered(self) -> int:
        """Number of items without a good answer; 0 without scores, or where the number of items is not known."""
        return 0 if self.answers is None or self.load is None else self.answers.unanswered(self.load.items)

    @cached_property
    def histograms(self) -> KnownAndBounds:
        """The histograms of its times. Raises as `read_histograms`."""
        return read_histograms(self.folder)

    @property
    def histogram_damage(self) -> VerdictReason | None:
        """The reason of a trial with figures whose histograms cannot be read."""
        try:
            self.histograms  # noqa: B018 - kept for those who read them next
        except (ValueError, OSError) as damage:
            missing = isinstance(damage, FileNotFoundError)
            return VerdictReason(
                code="damaged_file",
                severity="suspect",
                text="histogram.json is missing" if missing else " ".join(str(damage).split()),
                remedy="`bench collect` derives it again from the samples; pooled percentiles are without it until"
                " then.",
            )
        return None

    def with_reasons(self, against: Iterable[VerdictReason]) -> Self:
        """Return the trial with these reasons of a summary; what was read of it stays read."""
        view = copy(self)
        object.__setattr__(view, "against", tuple(against))
        return view


def of_figures(trials: Sequence[TrialView]) -> list[TrialView]:
    """Return the trials of a treatment whose figures are summed up: those that are not INVALID, or if all are,
    all that have figures."""
    good = [trial for trial in trials if trial.ok]
    return [trial for trial in good if trial.verdict != "INVALID"] or good


def read_histograms(folder: TrialFolder) -> KnownAndBounds:
    """Return a trial's histograms of times, by name. Raises ValueError that names a damaged
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
    reasons = gravest_first([*(earlier for earlier in metrics.reasons if earlier.code != code), reason])
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
