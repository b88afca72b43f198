"""Reads what one trial left for a summary. A missing or damaged file is a finding about that trial, not an error."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamark.model.trial import Trial
from seamark.stats.histogram import Histogram, from_json
from seamark.store import TrialFolder, read_json

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One trial as its files tell it. `metrics` is None when there are none that can be read."""

    trial: Trial
    metrics: Document | None
    histograms: Mapping[str, Histogram]
    status: str
    category: str | None = None
    reason: str | None = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def reasons(self) -> Sequence[Document]:
        """Why the trial is not simply valid, as metrics.json says it; for one that has none, why it has none."""
        if self.metrics is not None:
            return list(self.metrics.get("reasons") or ())
        remedy = "`bench retry` measures it again." if self.status == "missing" else "Remove the file and run again."
        text = self.reason or self.status
        return [{"code": str(self.category), "severity": "invalid", "text": text, "remedy": remedy}]


def read_outcome(trial: Trial, folder: TrialFolder) -> Outcome:
    """Read what one trial left; a fault of its files is its outcome and not an error."""
    try:
        metrics = read_json(folder.metrics)
        status = str(metrics["status"])
        if status != "ok":
            category, reason = metrics.get("category"), metrics.get("reason")
            return Outcome(
                trial=trial, metrics=metrics, histograms={}, status=status, category=category, reason=reason
            )
        histograms = read_histograms(folder)
        _demand(metrics)
    except FileNotFoundError as missing:
        name = str(missing.filename or folder.metrics).rsplit("/", 1)[-1]
        status = "missing" if name == folder.metrics.name else "damaged"
        reason = f"no {name}: the trial was not measured" if status == "missing" else f"{name} is missing"
        return Outcome(
            trial=trial, metrics=None, histograms={}, status=status, category=f"{status}_file", reason=reason
        )
    except (ValueError, KeyError, TypeError, OSError) as damage:
        reason = " ".join(str(damage).split()) if isinstance(damage, (ValueError, OSError)) else repr(damage)
        return Outcome(
            trial=trial, metrics=None, histograms={}, status="damaged", category="damaged_file", reason=reason
        )
    return Outcome(trial=trial, metrics=metrics, histograms=histograms, status="ok")


def read_histograms(folder: TrialFolder) -> dict[str, Histogram]:
    """Return a trial's histograms by name; ValueError that names the file when it is damaged."""
    document = read_json(folder.histogram)
    try:
        return {name: from_json(part) for name, part in document["histograms"].items()}
    except (ValueError, KeyError, AttributeError, TypeError) as cause:
        raise ValueError(f"{folder.histogram}: {cause}. Remove the file; the next run makes it again.") from cause


def _demand(metrics: Document) -> None:
    """Raise KeyError or TypeError now for a document that lacks what is summed up below."""
    for name in ("throughput", "resource", "quality", "counts", "errors", "config"):
        if not isinstance(metrics[name], dict):
            raise TypeError(f"metrics.json: '{name}' should be an object")
    for name in ("verdict", "reasons", "requests_per_s", "bandwidth", "concurrency_mean"):
        metrics[name]
