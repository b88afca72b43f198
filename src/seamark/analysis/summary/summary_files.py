"""Writes summary.json, and summary.csv and summary.parquet with one row for each planned trial."""

from collections.abc import Iterator, Mapping
from typing import Any

from seamark.analysis.metrics.table import METRICS, TIMES
from seamark.analysis.summary.summary import summarise
from seamark.analysis.summary.trial_files import range_columns
from seamark.analysis.trial_view import TrialView
from seamark.model.results.summary import Summary
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.service import Value
from seamark.model.trial import Plan, levels_of
from seamark.storage.documents import replacing, write
from seamark.storage.paths import ScenarioFolder

IDENTITY = ("trial", "treatment", "workload", "service", "component", "deployment")
PLACE = ("repetition", "block", "position")
STATE = ("origin", "server", "status", "category", "verdict", "reasons", "throughput_unit")
RANGE_COLUMNS = tuple(f"{group}_ranges" for group in TIMES)
SEARCHED = ("setting", "found", "bracket_low", "bracket_high", "confidence", "outcome", "confirmed", "probes")
"""Columns of a search, without their prefix."""
SEARCH_WORDS = ("search_setting", "search_outcome", "search_confirmed")

Row = dict[str, Any]


def write_summary(plan: Plan, folder: ScenarioFolder) -> Summary:
    """Sum up a scenario, write its three files and return its summary.

    The tables have a row for each planned trial, failed ones too: identity, a column `factor_NAME` for whatever
    varies within a group of treatments, status, verdict, every metric of the reference, and `quality_NAME`; where
    loads were searched for, what was found.
    """
    import pandas as pd  # not where trials are measured: this module is imported there too
    import pyarrow as pa

    summary = summarise(plan, folder)
    levels, rows = levels_of(plan), summary.treatments
    qualities = dict.fromkeys(name for row in rows for name in row.quality)
    own_names = dict.fromkeys(name for row in rows for name in row.own)
    factors = dict.fromkeys(name for treatment in levels.values() for name in treatment)
    header = [
        *IDENTITY,
        *PLACE,
        *(f"factor_{name}" for name in factors),
        *STATE,
        *(metric.column for metric in METRICS),
        *RANGE_COLUMNS,
        *(f"quality_{name}" for name in qualities),
        *(f"own_{name}" for name in own_names),
        *(f"search_{name}" for name in SEARCHED if any(row.search for row in rows)),
    ]
    frame = pd.DataFrame(_rows(plan, folder, levels, summary), columns=header, dtype=object)
    with replacing(folder.root / "summary.csv") as path:
        printed = frame.map(
            lambda value: f"{value:.9g}" if isinstance(value, float) else str(value), na_action="ignore"
        )
        printed.to_csv(path, index=False, lineterminator="\n")
    words = {*IDENTITY, *STATE, *SEARCH_WORDS, *RANGE_COLUMNS}
    words |= {f"factor_{name}" for name in factors if frame[f"factor_{name}"].map(type).isin((str, bool)).any()}
    typed = {
        name: column.map(str, na_action="ignore") if name in words else column.astype(float)
        for name, column in frame.items()
    }
    schema = pa.schema([(name, pa.string() if name in words else pa.float64()) for name in header])
    with replacing(folder.root / "summary.parquet") as path:
        pd.DataFrame(typed).to_parquet(path, index=False, schema=schema, compression="zstd")
    write(folder.summary, summary)
    return summary


def _rows(
    plan: Plan, folder: ScenarioFolder, levels: Mapping[str, Mapping[str, Value]], summary: Summary
) -> Iterator[Row]:
    by_twins = {name: reasons for row in summary.treatments for name, reasons in row.by_twins.items()}
    servers, origins = _servers(summary), {row.treatment: row.origin for row in summary.treatments}
    for trial in plan.measured:
        row: Row = {"trial": trial.id, "treatment": trial.treatment, "workload": trial.group}
        row |= {name: getattr(trial, name) for name in (*IDENTITY[3:], *PLACE)}
        row |= {f"factor_{name}": level for name, level in levels[trial.treatment].items()}
        row["origin"] = origins[trial.treatment]
        row["server"] = servers.get(trial.id)
        view = TrialView.of(trial, folder).with_reasons(by_twins.get(trial.id, ()))
        row |= {"status": view.status, "verdict": view.verdict}
        if view.good is None:
            yield row | {"category": view.category, "reasons": view.category}
        else:
            yield row | {"reasons": " ".join(view.codes)} | _figures(view.good)


def _servers(summary: Summary) -> dict[str, str]:
    """Return the place of the server of each good trial."""
    places = {server.name: server.place or "not recorded" for server in summary.servers or ()}
    pairs = (pair for row in summary.treatments for pair in zip(row.trials, row.trial_servers, strict=True))
    return {trial: places[name] for trial, name in pairs if name is not None}


def _figures(metrics: TrialMetrics) -> Row:
    row: Row = {"throughput_unit": metrics.throughput.unit}
    row |= {metric.column: metrics.figure(metric.path) for metric in METRICS}
    row |= range_columns(metrics)
    row |= {f"quality_{name}": value for name, value in metrics.quality.items()}
    row |= {f"own_{name}": metric.value for name, metric in metrics.own.items()}
    if (search := metrics.search) is not None:
        low, high = search.bracket
        facts = {**vars(search), "bracket_low": low, "bracket_high": high}
        row |= {f"search_{name}": facts[name] for name in SEARCHED}
    return row
