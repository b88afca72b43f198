"""Writes what is derived from one trial: metrics.json and .csv, series.csv, histogram.json."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from seamark.analysis.metrics.document import DerivedMetrics, derive_metrics, metrics_of_whole
from seamark.analysis.metrics.table import METRICS, TIMES
from seamark.analysis.metrics.timeline import Second
from seamark.analysis.trial_view import record_of, without_samples
from seamark.model.results.answers import AnswersRecord
from seamark.model.results.calibration import WireCeiling
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.results.trial_metrics import Histograms, SteadyVerdict, TrialMetrics
from seamark.model.trial import Deployment, Trial
from seamark.storage.documents import read, read_or_none, write, write_text
from seamark.storage.paths import TrialFolder


def csv_text(header: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows under a header; a column that a row lacks stays empty.

    Not by pandas: a trial's process would import it for these few rows.
    """
    written = io.StringIO()
    writer = csv.DictWriter(written, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return written.getvalue()


def _cell(value: Any) -> Any:
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else value


IDENTITY = (
    "trial_id",
    "trial",
    "scenario",
    "treatment",
    "timestamp",
    "component",
    "service",
    "origin",
    "status",
    "category",
    "reason",
    "repetition",
    "block",
    "position",
)


def write_metrics(
    trial: Trial,
    folder: TrialFolder,
    deployment: Deployment | None = None,
    *,
    scenario: str | None = None,
    client_is_server: bool | None = None,
    ceiling: WireCeiling | None = None,
    schedule: Callable[[], ScheduleMetrics] | None = None,
) -> TrialMetrics:
    """Derive and write the four files of a trial and return its metrics; a failed trial gets all four too.

    Where the samples of a good load cannot be read any more, its figures stay, with the reason `samples_missing`.

    `scenario` is what load.json says when it is not given, and the name of the folder around the trial's after that.
    `schedule` as that of `derive_metrics`.
    """
    load = _load(folder)
    derived = derive_metrics(
        trial,
        load,
        folder,
        scenario=scenario or load.scenario or folder.root.parent.name,
        deployment=deployment,
        client_is_server=client_is_server,
        ceiling=ceiling,
        answers=read_or_none(folder.answers_record, AnswersRecord),
        schedule=schedule,
        gpu_hz=gpu_clock_hz(read_or_none(folder.meta, TrialMeta)),
    )
    if load.ok and not derived.metrics.ok:
        was = read_or_none(folder.metrics, TrialMetrics)
        if was is not None and was.ok and was.timestamp == derived.metrics.timestamp:
            return _write_figures(folder, without_samples(was, str(derived.metrics.reason)))
    return _write(trial, folder, derived)


def gpu_clock_hz(meta: TrialMeta | None) -> float | None:
    """Return the highest clock of the GPUs of a trial; None if it is unknown, or not the same for all of them."""
    machines = [node.machine for node in meta.all_nodes().values()] if meta else []
    clocks = {gpu.most_sm_hz for machine in machines if machine for gpu in machine.gpu.devices}
    return clocks.pop() if len(clocks) == 1 else None


def write_metrics_of_whole(
    trial: Trial, folder: TrialFolder, deployment: Deployment, parties: Mapping[str, TrialMetrics]
) -> TrialMetrics:
    """Write the four files of a trial with parties, and return its metrics: no figure, the reasons of all parties."""
    load = _load(folder)
    scenario = load.scenario or folder.root.parent.name
    metrics = metrics_of_whole(trial, load, parties, scenario=scenario, deployment=deployment)
    return _write(trial, folder, DerivedMetrics(metrics=metrics))


def _load(folder: TrialFolder) -> LoadRecord:
    """Return load.json, a damaged or missing one as that of a failed load."""
    try:
        return read(folder.load, LoadRecord)
    except (ValueError, OSError) as damage:
        return LoadRecord(status="failed", category="client_died", reason=f"load.json cannot be read: {damage}")


def _write(trial: Trial, folder: TrialFolder, derived: DerivedMetrics) -> TrialMetrics:
    write_text(folder.series, csv_text([field.name for field in fields(Second)], map(asdict, derived.series)))
    histograms, censored = (
        {name: record_of(times) for name, times in part.items()} for part in (derived.histograms, derived.censored)
    )
    write(folder.histogram, Histograms(trial=trial.id, histograms=histograms, censored=censored))
    return _write_figures(folder, derived.metrics)


def _write_figures(folder: TrialFolder, metrics: TrialMetrics) -> TrialMetrics:
    row = flat(metrics)
    write_text(folder.metrics_csv, csv_text(list(row), [row]))
    write(folder.metrics, metrics)
    return metrics


def flat(metrics: TrialMetrics) -> dict[str, object]:
    """Return metrics as one flat row: identity, settings as `config_NAME`, figures, quality, verdict."""
    steady = metrics.steady_state or SteadyVerdict()
    return (
        {name: getattr(metrics, name) for name in IDENTITY}
        | {f"config_{name}": value for name, value in metrics.config.items()}
        | {"throughput_unit": metrics.throughput.unit}
        | {metric.column: metrics.at(metric.path) for metric in METRICS}
        | range_columns(metrics)
        | {f"window_{name}": value for name, value in vars(metrics.window).items()}
        | {"steady": steady.steady, "steady_reason": steady.reason, "advised_warmup_s": steady.advised_warmup_s}
        | {f"quality_{name}": value for name, value in metrics.quality.items()}
        | {f"own_{name}": metric.value for name, metric in metrics.own.items()}
        | {"verdict": metrics.verdict, "reasons": " ".join(reason.code for reason in metrics.reasons)}
    )


def range_columns(metrics: TrialMetrics) -> dict[str, str]:
    """Return the columns of what is known between two ends alone: `latency_ms_ranges` is `p99=117..125 max=130..`."""
    groups = {group: getattr(metrics, group) for group in TIMES}
    columns = {}
    for group, times in groups.items():
        ranges = times.ranges.items() if times else ()
        ends = {name: ["" if end is None else f"{end:.9g}" for end in pair] for name, pair in ranges}
        columns[f"{group}_ranges"] = " ".join(f"{name}={low}..{high}" for name, (low, high) in ends.items())
    return columns
