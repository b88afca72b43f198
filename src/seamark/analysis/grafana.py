"""Dashboard for Grafana over the metrics that `bench export prometheus` writes: one panel a metric."""

import json
from typing import Any

from seamark.analysis.prometheus_text import HELPS, ORDER, TRIAL

FACTORS = ("scenario", "service", "trial")
"""Labels of every series that choose what is shown, by variables of the dashboard."""
UNITS = {
    "seconds": "s",
    "bytes": "bytes",
    "bytes_per_second": "Bps",
    "ratio": "percentunit",
    "joules": "joule",
    "watts": "watt",
    "requests_per_second": "reqps",
}
"""End of a name of Prometheus -> unit of Grafana."""
COLUMNS, WIDTH, HEIGHT = 3, 8, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}


def query_of(name: str) -> str:
    """Return the query of a metric: its series of the chosen scenarios, services and trials."""
    chosen = ", ".join(f'{label}=~"${label}"' for label in FACTORS)
    return f"{name}{{{chosen}}}"


def dashboard_text() -> str:
    """Return the dashboard as the JSON that Grafana imports."""
    return json.dumps(dashboard(), indent=1) + "\n"


def dashboard() -> dict[str, Any]:
    """Return the dashboard: a table of trials and their verdicts, then a panel for each metric in its base unit."""
    variables = [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
    return {
        "title": "Seamark",
        "uid": "seamark",
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [*variables, *map(_variable, FACTORS)]},
        "panels": [_panel(at, name) for at, name in enumerate(ORDER)],
    }


def _variable(label: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values({TRIAL}, {label})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(at: int, name: str) -> dict[str, Any]:
    unit = next((UNITS[end] for end in sorted(UNITS, key=len, reverse=True) if name.endswith(f"_{end}")), "short")
    target = {"refId": "A", "datasource": SOURCE, "expr": query_of(name), "instant": True, "format": "table"}
    return {
        "id": at + 1,
        "type": "table" if name == TRIAL else "barchart",
        "title": name,
        "description": HELPS[name],
        "datasource": SOURCE,
        "gridPos": {"x": at % COLUMNS * WIDTH, "y": at // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "options": {} if name == TRIAL else {"xField": "trial"},
        "targets": [target],
    }
