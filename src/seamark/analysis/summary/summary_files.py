"""Writes summary.json, and summary.csv and summary.parquet with one row for each planned trial."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seamark.analysis.checks import verdict_of, worst
from seamark.analysis.metrics import METRICS
from seamark.analysis.metrics.objectives import look_up
from seamark.analysis.metrics.table import BOUNDED
from seamark.analysis.summary.knees import FOUND, row_of_search
from seamark.analysis.summary.outcome import Document, read_metrics
from seamark.analysis.summary.summary import summarise
from seamark.analysis.summary.trial_files import lower_bounds
from seamark.model.service import Value
from seamark.model.trial import Plan, levels_of
from seamark.storage.paths import ScenarioFolder, replacing, write_json

IDENTITY = ("trial", "treatment", "workload", "service", "component", "deployment")
PLACE = ("repetition", "block", "position")
STATE = ("server", "status", "category", "verdict", "reasons", "throughput_unit")
BOUND_COLUMNS = tuple(f"{group}_lower_bounds" for group in BOUNDED)
SEARCH_WORDS = ("search_setting", "search_outcome", "search_confirmed")

Row = dict[str, Any]


def write_summary(plan: Plan, folder: ScenarioFolder) -> Document:
    """Sum up a scenario and write its three files; return summary.json.

    The tables have a row for each planned trial, failed ones too: identity, a column `factor_NAME` for whatever
    varies within a group of treatments, status, verdict, every metric of the reference, and `quality_NAME`; where
    loads were searched for, what was found.
    """
    import pandas as pd  # not where trials are measured: this module is imported there too
    import pyarrow as pa

    summary = summarise(plan, folder)
    levels = levels_of(plan)
    qualities = list(dict.fromkeys(name for treatment in summary["treatments"] for name in treatment["quality"]))
    own = list(dict.fromkeys(name for treatment in summary["treatments"] for name in treatment["own"]))
    factors = list(dict.fromkeys(name for treatment in levels.values() for name in treatment))
    header = [
        *IDENTITY,
        *PLACE,
        *(f"factor_{name}" for name in factors),
        *STATE,
        *(metric.column for metric in METRICS),
        *BOUND_COLUMNS,
        *(f"quality_{name}" for name in qualities),
        *(f"own_{name}" for name in own),
        *(f"search_{name}" for name in FOUND if any(each["search"] for each in summary["treatments"])),
    ]
    frame = pd.DataFrame(_rows(plan, folder, levels, qualities, summary), columns=header, dtype=object)
    with replacing(folder.root / "summary.csv") as path:
        printed = frame.map(
            lambda value: f"{value:.9g}" if isinstance(value, float) else str(value), na_action="ignore"
        )
        printed.to_csv(path, index=False, lineterminator="\n")
    words = {*IDENTITY, *STATE, *SEARCH_WORDS, *BOUND_COLUMNS}
    words |= {f"factor_{name}" for name in factors if frame[f"factor_{name}"].map(type).isin((str, bool)).any()}
    typed = {
        name: own.map(str, na_action="ignore") if name in words else own.astype(float) for name, own in frame.items()
    }
    schema = pa.schema([(name, pa.string() if name in words else pa.float64()) for name in header])
    with replacing(folder.root / "summary.parquet") as path:
        pd.DataFrame(typed).to_parquet(path, index=False, schema=schema, compression="zstd")
    write_json(folder.summary, summary)
    return summary


def _rows(
    plan: Plan,
    folder: ScenarioFolder,
    levels: Mapping[str, Mapping[str, Value]],
    qualities: Sequence[str],
    summary: Document,
) -> Iterator[Row]:
    failed = {bad["trial"]: bad for bad in summary["failed"]}
    by_twins = {name: why for each in summary["treatments"] for name, why in each["by_twins"].items()}
    servers = _servers(summary)
    for trial in plan.trials:
        row: Row = {"trial": trial.id, "treatment": trial.treatment, "workload": trial.group}
        row |= {name: getattr(trial, name) for name in (*IDENTITY[3:], *PLACE)}
        row |= {f"factor_{name}": level for name, level in levels[trial.treatment].items()}
        row["server"] = servers.get(trial.id)
        bad = failed.get(trial.id)
        if bad is None:
            yield row | _figures(read_metrics(folder.trial(trial.id)), qualities, by_twins.get(trial.id, ()))
        else:
            state = {"status": bad["status"], "category": bad["category"]}
            yield row | state | {"verdict": "INVALID", "reasons": bad["category"]}


def _servers(summary: Document) -> dict[str, str]:
    """Return where each good trial was measured, in words."""
    places = {server["name"]: server["place"] or "not recorded" for server in summary["servers"]}
    return {
        trial: places[name]
        for each in summary["treatments"]
        for trial, name in zip(each["trials"], each["trial_servers"], strict=True)
        if name is not None
    }


def _figures(metrics: Document, qualities: Sequence[str], by_twins: Sequence[Document]) -> Row:
    row: Row = {
        "status": metrics["status"],
        "verdict": worst([metrics["verdict"], *map(verdict_of, by_twins)]),
        "reasons": " ".join(reason["code"] for reason in (*metrics["reasons"], *by_twins)),
        "throughput_unit": metrics["throughput"]["unit"],
    }
    row |= {metric.column: look_up(metrics, metric.path) for metric in METRICS}
    row |= lower_bounds(metrics)
    row |= {f"quality_{name}": metrics["quality"].get(name) for name in qualities}
    row |= {f"own_{name}": each["value"] for name, each in (metrics.get("own") or {}).items()}
    search = metrics.get("search")
    return row | ({f"search_{name}": value for name, value in row_of_search(search).items()} if search else {})
