"""Reads what one trial left for a summary. A missing or damaged file is a finding about that trial, not an error."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamark.analysis.checks import verdict_of, worst
from seamark.analysis.metrics import marked
from seamark.analysis.summary.treatments import each, spread
from seamark.model.trial import Trial
from seamark.stats.histogram import Histogram, from_json
from seamark.storage.paths import TrialFolder, read_json

Document = dict[str, Any]
NEEDED = ("response_ns", "service_ns")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One trial as its files tell it. `metrics` is None when there are none that can be read. `histograms` of known
    times and `censored`, lower bounds of those that are not known, have the same names.

    `by_twins` are reasons that it has by the other repetitions of its treatment, as metrics.json has reasons.
    """

    trial: Trial
    metrics: Document | None
    histograms: Mapping[str, Histogram]
    censored: Mapping[str, Histogram] = field(default_factory=dict)
    status: str
    category: str | None = None
    reason: str | None = None
    by_twins: Sequence[Document] = ()

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def verdict(self) -> str:
        """The verdict of metrics.json, or a graver one by its twins; INVALID without figures."""
        if not self.ok or self.metrics is None:
            return "INVALID"
        return worst([str(self.metrics["verdict"]), *map(verdict_of, self.by_twins)])

    @property
    def reasons(self) -> Sequence[Document]:
        """Why the trial is not simply valid, as metrics.json and its twins say; for one that has none, why it has
        none."""
        if self.metrics is not None:
            return [*(self.metrics.get("reasons") or ()), *self.by_twins]
        remedy = "`bench retry` measures it again." if self.status == "missing" else "Remove the file and run again."
        text = self.reason or self.status
        return [{"code": str(self.category), "severity": "invalid", "text": text, "remedy": remedy}]


def read_outcome(trial: Trial, folder: TrialFolder) -> Outcome:
    """Read what one trial left; a fault of its files is its outcome and not an error."""
    try:
        metrics = read_metrics(folder)
        status = str(metrics["status"])
        if status != "ok":
            category, reason = metrics.get("category"), metrics.get("reason")
            return Outcome(
                trial=trial, metrics=metrics, histograms={}, status=status, category=category, reason=reason
            )
        histograms, censored = read_histograms(folder)
    except FileNotFoundError as missing:
        name = str(missing.filename or folder.metrics).rsplit("/", 1)[-1]
        status = "missing" if name == folder.metrics.name else "damaged"
        reason = f"no {name}: the trial was not measured" if status == "missing" else f"{name} is missing"
        return Outcome(
            trial=trial, metrics=None, histograms={}, status=status, category=f"{status}_file", reason=reason
        )
    except (ValueError, OSError) as damage:
        reason = " ".join(str(damage).split())
        return Outcome(
            trial=trial, metrics=None, histograms={}, status="damaged", category="damaged_file", reason=reason
        )
    return Outcome(trial=trial, metrics=metrics, histograms=histograms, censored=censored, status="ok")


def read_histograms(folder: TrialFolder) -> tuple[dict[str, Histogram], dict[str, Histogram]]:
    """Return a trial's histograms of known times and of lower bounds, by name; ValueError that names the file when it
    is damaged. A file of an older version has no lower bounds."""
    document = read_json(folder.histogram)
    try:
        found = {name: from_json(part) for name, part in document["histograms"].items()}
        censored = {name: from_json(part) for name, part in (document.get("censored") or {}).items()}
        missing = [name for name in NEEDED if name not in found]
    except (ValueError, KeyError, AttributeError, TypeError) as cause:
        raise ValueError(f"{folder.histogram}: {cause}. Remove the file; the next run makes it again.") from cause
    if missing:
        raise ValueError(f"{folder.histogram}: it lacks {', '.join(missing)}. Remove the file and run again.")
    return found, censored


def read_metrics(folder: TrialFolder) -> Document:
    """Return a trial's metrics.json, marked when an older version made it; ValueError that names the file when it
    lacks what a summary is made from."""
    document = read_json(folder.metrics)
    wrong = next(_lacks(document), None)
    if wrong is not None:
        raise ValueError(f"{folder.metrics}: {wrong}. Remove the file; the next run makes it again.")
    return marked(document)


def _lacks(document: Document) -> Iterator[str]:
    reasons = document.get("reasons")
    if not isinstance(document.get("status"), str):
        yield "it has no status"
    if not isinstance(reasons, list) or not all(map(_is_reason, reasons)):
        yield "it has no list of reasons"
    if document.get("status") != "ok":
        return
    for name in ("throughput", "resource", "quality", "counts", "errors", "config", "telemetry"):
        if not isinstance(document.get(name), dict):
            yield f"'{name}' is not an object"
    for name in ("ok", "failed", "lost"):
        if not isinstance(document["counts"].get(name), int):
            yield f"counts.{name} is not a number"
    if not isinstance(document["throughput"].get("unit"), str):
        yield "throughput has no unit"
    if not isinstance(document.get("verdict"), str):
        yield "it has no verdict"


def _is_reason(reason: Any) -> bool:
    return isinstance(reason, dict) and all(isinstance(reason.get(name), str) for name in ("code", "severity"))


COUNTS = ("requests", "ok", "failed", "units")
TIMES = ("latency_ms", "service_time_ms", "ttft_ms", "tpot_ms")


def kinds_of(good: Sequence[Document]) -> dict[str, Document] | None:
    """Return the figures of each kind of request; None where all are alike.

    Counts are those of all trials together, times the spread of the trials' own figures: one that a trial withholds,
    having too few samples for it, is withheld. `requests_per_s` are good requests that were due in the window.
    """
    names = dict.fromkeys(name for metrics in good for name in metrics.get("by_kind") or {})
    return {name: _kind(name, [m for m in good if name in (m.get("by_kind") or {})]) for name in names} or None


def _kind(name: str, trials: Sequence[Document]) -> Document:
    figures = [metrics["by_kind"][name] for metrics in trials]
    counts = {count: sum(kind[count] for kind in figures) for count in COUNTS}
    ended = counts["ok"] + counts["failed"]
    rates = [
        kind["ok"] / length_s
        for kind, metrics in zip(figures, trials, strict=True)
        if (length_s := _length_s(metrics)) is not None
    ]
    return {
        **counts,
        "requests_per_s": spread(rates),
        "errors": {"rate": counts["failed"] / ended if ended else None},
        **{group: _times(figures, group) for group in TIMES},
    }


def _length_s(metrics: Document) -> float | None:
    window = metrics.get("window") or {}
    start_s, end_s = window.get("start_s"), window.get("end_s")
    return end_s - start_s if start_s is not None and end_s is not None and end_s > start_s else None


def _times(figures: Sequence[Mapping[str, Any]], group: str) -> Document | None:
    """Return the spread of every figure of a group; None where no trial has the group.

    `censored` is the sum over the trials; `lower_bounds` names what is a lower bound in any trial: so is its median.
    """
    names = dict.fromkeys(name for kind in figures for name in kind.get(group) or {})
    for name in ("censored", "lower_bounds"):
        names.pop(name, None)
    found = {name: each(figures, group, name) for name in names}
    bounds = [name for kind in figures for name in (kind.get(group) or {}).get("lower_bounds") or ()]
    spreads = {name: spread(values if len(values) == len(figures) else ()) for name, values in found.items()}
    censored = sum((kind.get(group) or {}).get("censored") or 0 for kind in figures)
    return {**spreads, "censored": censored, "lower_bounds": list(dict.fromkeys(bounds))} if spreads else None
