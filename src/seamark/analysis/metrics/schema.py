"""JSON Schema of metrics.json, made from its nouns and from the table of metrics.

`python -m seamark.analysis.metrics.schema` prints it.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from seamark.analysis.metrics.table import METRICS, SELDOM, VERSION
from seamark.model.annotations import hints, shape_of
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.scenario import Outcome
from seamark.model.service import Component
from seamark.model.trial import SCHEMA_VERSION

Schema = dict[str, Any]

TYPES: Mapping[Any, str] = {float: "number", int: "integer", str: "string", bool: "boolean", type(None): "null"}
COUNT = {"type": "integer", "minimum": 1}
DESCRIPTIONS: Mapping[str, str] = {
    "timestamp": "start of the load",
    "warmup_auto": "what `warmup_s: auto` cut off; null where the warm-up was given",
    "warmup_auto.part": "figures of what was cut off, which are in none of the others",
    "steady_state": "a verdict on the window; it takes nothing out of any figure",
    "steady_state.steady": "null: unknown",
    "steady_state.advised_warmup_s": "a warm-up that covers the start-up",
    "steady_state.outages": "times in which nothing was answered well, or more failed than was answered",
    "steady_state.part": "figures of the steady part, beside those of the window",
    "over_saturated_at_s": "when the load was ended since the server fell behind for good, from the start of load",
    "search": "the search that found this trial's load; null where its load was given",
    "energy_reason": "why nothing is known of energy",
    "own": "metrics of the scenario's author; `error` says why one has no value",
    "own_checks": "checks of the scenario's author, with digests",
    **{metric.path: f"{metric.meaning} ({metric.unit})" for metric in METRICS},
}
"""Path -> description."""
RANGES = "figures known between two ends alone, [low, high]: requests had no answer, or a percentile few samples"
NARROWER: Mapping[str, Schema] = {
    "schema_version": {"const": SCHEMA_VERSION},
    "metrics_version": {"const": VERSION},
    "trial_id": {"type": "string", "format": "uuid"},
    "timestamp": {"format": "date-time"},
    "component": {"enum": [*get_args(Component), "http"]},
    "status": {"enum": ["ok", "failed"]},
    **dict.fromkeys(("repetition", "block", "position"), COUNT),
    "throughput.unit": {"pattern": "_per_s$"},
    "energy.scope": {"enum": ["gpu", "package", "node"]},
    "search.outcome": {"enum": list(get_args(Outcome))},
    "percentiles.method": {"enum": ["exact", "histogram"]},
}
"""Path -> what metrics.json of this version has, where the noun also reads others."""
CONFIG = ("gpus", "batch", "concurrency", "nodes")
"""Settings that every metrics.json names."""


def metrics_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of metrics.json."""
    schema = _schema(TrialMetrics, "")
    setting = schema["properties"]["config"]["additionalProperties"]
    schema["properties"]["config"] |= {"properties": dict.fromkeys(CONFIG, setting), "required": list(CONFIG)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "metrics.json of one trial",
        "description": "Made from the table of metrics in the package; do not edit. null: not known.",
        **schema,
    }


def _schema(hint: Any, path: str) -> Schema:
    schema = _of_type(hint, path)
    if path.endswith(".ranges"):
        schema |= {"description": RANGES}
    if path in NARROWER:
        schema = {**({} if {"const", "enum"} & NARROWER[path].keys() else schema), **NARROWER[path]}
    return schema | ({"description": DESCRIPTIONS[path]} if path in DESCRIPTIONS else {})


def _of_type(hint: Any, path: str) -> Schema:
    kind, parts = shape_of(hint)
    if kind == "checked":
        return _of_type(parts[0], path)
    if kind == "literal":
        return {"enum": list(parts)}
    if kind == "union":
        plain = [TYPES[part] for part in parts if part in TYPES]
        schema = next((_schema(part, path) for part in parts if part not in TYPES), {})
        return schema | {"type": [*([schema["type"]] if schema else []), *plain]}
    if kind == "dataclass":
        written = [part.name for part in fields(hint) if not part.metadata.get("optional")]
        properties = {name: _schema(part, f"{path}.{name}".lstrip(".")) for name, part in hints(hint).items()}
        return _object(properties, written)
    if kind == "list":
        _, entry, count = parts
        length = {} if count is None else {"minItems": count, "maxItems": count}
        return {"type": "array", "items": _schema(entry, f"{path}[]"), **length}
    if kind == "mapping":
        named = [metric.path for metric in METRICS if metric.path.rpartition(".")[0] == path]
        values = {name.rpartition(".")[2]: _schema(parts[0], name) for name in named}
        return (
            _object(values, [name for name in values if name not in SELDOM])
            if named
            else {"type": "object", "additionalProperties": _schema(parts[0], f"{path}.*")}
        )
    return {"type": TYPES[hint]}


def _object(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def schema_text() -> str:
    """Return the schema as in workflow/schemas."""
    return json.dumps(metrics_schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
