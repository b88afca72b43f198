"""Writes what is derived from one trial: metrics.json and .csv, series.csv, histogram.json."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from seamark.analysis.metrics import METRICS, Measured, measure
from seamark.analysis.metrics.resources import Ceiling
from seamark.analysis.metrics.table import BOUNDED
from seamark.analysis.metrics.timeline import Second
from seamark.model.results.load_record import LoadRecord
from seamark.model.trial import SCHEMA_VERSION, Deployment, Trial
from seamark.storage.paths import TrialFolder, read, write_json, write_text


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
    ceiling: Ceiling | None = None,
) -> dict[str, Any]:
    """Derive and write the four files of a trial and return metrics.json; a failed trial gets all four too.

    `scenario` is what load.json says when it is not given, and the name of the folder around the trial's after that.
    """
    try:
        load = read(folder.load, LoadRecord)
    except (ValueError, OSError) as damage:
        load = LoadRecord(status="failed", category="client_died", reason=f"load.json cannot be read: {damage}")
    measured = measure(
        trial,
        load,
        folder,
        scenario=scenario or load.scenario or folder.root.parent.name,
        deployment=deployment,
        client_is_server=client_is_server,
        ceiling=ceiling,
    )
    write_text(folder.series, csv_text([field.name for field in fields(Second)], map(asdict, measured.series)))
    write_json(folder.histogram, _histograms(measured))
    row = flat(measured.document)
    write_text(folder.metrics_csv, csv_text(list(row), [row]))
    write_json(folder.metrics, measured.document)
    return measured.document


def flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics.json as one flat row: identity, settings as `config_NAME`, figures, quality, verdict."""
    row = {name: document[name] for name in IDENTITY}
    row |= {f"config_{name}": value for name, value in document["config"].items()}
    row["throughput_unit"] = document["throughput"]["unit"]
    row |= {metric.column: _at(document, metric.path) for metric in METRICS}
    row |= lower_bounds(document)
    row |= {f"window_{name}": value for name, value in document["window"].items()}
    row |= _steady(document["steady_state"] or {})
    row |= {f"quality_{name}": value for name, value in document["quality"].items()}
    row |= {f"own_{name}": each["value"] for name, each in (document.get("own") or {}).items()}
    row["verdict"] = document["verdict"]
    row["reasons"] = " ".join(reason["code"] for reason in document["reasons"])
    return row


def _steady(state: Mapping[str, Any]) -> dict[str, Any]:
    names = {"steady": "steady", "steady_reason": "reason", "advised_warmup_s": "advised_warmup_s"}
    return {column: state.get(name) for column, name in names.items()}


def lower_bounds(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that name the statistics which are lower bounds: `latency_ms_lower_bounds` is `p999 max`."""
    groups = {group: document.get(group) or {} for group in BOUNDED}
    return {f"{group}_lower_bounds": " ".join(times.get("lower_bounds") or ()) for group, times in groups.items()}


def _at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _histograms(measured: Measured) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "trial": measured.document["trial"],
        "unit": "ns",
        "histograms": {name: counted.to_json() for name, counted in measured.histograms.items()},
        "censored": {name: counted.to_json() for name, counted in measured.censored.items()},
    }
