"""The JSON Schema of metrics.json, derived from the table of metrics.

`python -m seamark.analysis.metrics.schema` prints it.
"""

import json
from collections.abc import Mapping
from typing import Any, get_args

from seamark.analysis.checks import Reason, verdict_of, worst
from seamark.analysis.metrics.distribution import QUANTILES
from seamark.analysis.metrics.document import OPTIONAL
from seamark.analysis.metrics.evidence import SHOWN
from seamark.analysis.metrics.metric import Metric
from seamark.analysis.metrics.table import BOUNDED, METRICS, STATISTICS, VERSION
from seamark.model.search import Outcome
from seamark.model.trial import SCHEMA_VERSION

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WORD: Schema = {"type": ["string", "null"]}
MEASURED: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 1}
NUMBER: Schema = {"type": ["number", "null"]}
SETTING: Schema = {"type": ["string", "number", "boolean", "null"]}


def _object(properties: Mapping[str, Schema], *, closed: bool = True) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": not closed,
    }


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


LOWER_BOUNDS: Schema = {
    "type": "array",
    "items": {"enum": [name for name in STATISTICS if name != "mean"]},
    "description": "statistics that are lower bounds: they reach into requests that have no answer",
}
OF_KIND: Mapping[str, Schema] = dict.fromkeys(("mean", *QUANTILES), NUMBER)
BOUNDED_OF_KIND: Mapping[str, Schema] = {**OF_KIND, "censored": {"type": "integer"}, "lower_bounds": LOWER_BOUNDS}

PART: Schema = {
    **_object(
        {
            **dict.fromkeys(("start_s", "end_s"), MEASURED),
            **{name: {"type": "integer"} for name in ("requests", "ok", "failed")},
            **dict.fromkeys(("error_rate", "requests_per_s", "throughput"), NUMBER),
            "latency_ms": _object(
                {
                    **dict.fromkeys(("mean", *SHOWN), NUMBER),
                    "censored": {"type": "integer"},
                    "lower_bounds": LOWER_BOUNDS,
                }
            ),
        }
    ),
    "type": ["object", "null"],
}
"""Metrics of a part of a load."""

REASON = _object({"code": TEXT, "severity": {"enum": ["invalid", "suspect", "note"]}, "text": TEXT, "remedy": TEXT})

ENVELOPE: Mapping[str, Schema] = {
    "schema_version": {"const": SCHEMA_VERSION},
    "metrics_version": {"const": VERSION},
    "trial_id": {"type": "string", "format": "uuid"},
    "trial": TEXT,
    "scenario": TEXT,
    "treatment": TEXT,
    "timestamp": {"type": ["string", "null"], "format": "date-time", "description": "start of the load"},
    "component": {"enum": ["storage", "inference", "vectordb", "http", "null"]},
    "service": TEXT,
    "status": {"enum": ["ok", "failed"]},
    "category": WORD,
    "reason": WORD,
    "repetition": COUNT,
    "block": COUNT,
    "position": COUNT,
    "config": {
        **_object(dict.fromkeys(("gpus", "batch", "concurrency", "nodes"), SETTING)),
        "additionalProperties": SETTING,
    },
    "changed": _map(SETTING),
}
"""Identity of a trial."""

TRAILER: Mapping[str, Schema] = {
    "window": _object({"start_s": NUMBER, "end_s": NUMBER, "rule": WORD}),
    "warmup_auto": {
        **_object(
            {
                "limit_s": MEASURED,
                "cut_s": MEASURED,
                "reason": TEXT,
                "part": {**PART, "description": "figures of what was cut off, which are in none of the others"},
            }
        ),
        "type": ["object", "null"],
        "description": "what `warmup_s: auto` cut off; null where the warm-up was given",
    },
    "steady_state": {
        **_object(
            {
                "steady": {"type": ["boolean", "null"], "description": "null: it cannot be told"},
                "reason": WORD,
                "rule": WORD,
                "advised_warmup_s": {"type": ["number", "null"], "description": "a warm-up that covers the start-up"},
                "outages": {
                    "type": "array",
                    "items": _object(
                        {
                            **dict.fromkeys(("start_s", "end_s"), MEASURED),
                            **{name: {"type": "integer"} for name in ("missed", "failed")},
                        }
                    ),
                    "description": "times in which nothing was answered well, or more failed than was answered",
                },
                "part": {**PART, "description": "figures of the steady part, beside those of the window"},
            }
        ),
        "type": ["object", "null"],
        "description": "a verdict on the window; it takes nothing out of any figure",
    },
    "over_saturated_at_s": {
        "type": ["number", "null"],
        "description": "when the load was ended since the server fell behind for good, from the start of load",
    },
    "search": {
        **_object(
            {
                "setting": TEXT,
                "outcome": {"enum": list(get_args(Outcome))},
                "found": NUMBER,
                "confirmed": {"type": "boolean"},
                "bracket": {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2},
                "confidence": NUMBER,
                "probes": {"type": "integer"},
                "spent_s": {"type": "number"},
            }
        ),
        "type": ["object", "null"],
        "description": "the search that found this trial's load; null where its load was given",
    },
    "energy_reason": {"type": ["string", "null"], "description": "why nothing is known of energy"},
    "percentiles": _object({"method": {"enum": ["exact", "histogram"]}, "relative_error": {"type": "number"}}),
    "by_kind": {
        "type": ["object", "null"],
        "additionalProperties": _object(
            {
                **{name: {"type": "integer"} for name in ("requests", "ok", "failed", "units")},
                **{name: _object(BOUNDED_OF_KIND) for name in ("latency_ms", "service_time_ms")},
                "ttft_ms": {**_object(BOUNDED_OF_KIND), "type": ["object", "null"]},
                "tpot_ms": {**_object(OF_KIND), "type": ["object", "null"]},
            }
        ),
    },
    "slos": {
        "type": "array",
        "items": _object(
            {
                "metric": TEXT,
                "op": {"enum": ["<=", ">="]},
                "limit": {"type": "number"},
                "value": NUMBER,
                "lower_bound": {"type": "boolean"},
                "met": {"type": ["boolean", "null"]},
            }
        ),
    },
    "quality": _map(NUMBER),
    "own": {
        **_map(
            {
                **_object({"value": NUMBER, **dict.fromkeys(("unit", "better", "meaning", "source"), TEXT)}),
                "additionalProperties": TEXT,
            }
        ),
        "description": "metrics of the scenario's author; `error` says why one has no value",
    },
    "own_checks": {"type": "array", "items": TEXT, "description": "checks of the scenario's author, with digests"},
    "telemetry": _map(
        _object(
            {
                "unit": TEXT,
                "n": {"type": "integer"},
                **dict.fromkeys(("min", "mean", "p50", "p95", "max"), MEASURED),
            }
        )
    ),
    "verdict": {"enum": ["VALID", "SUSPECT", "INVALID"]},
    "reasons": {"type": "array", "items": REASON},
    "notes": WORD,
}
"""The verdict on the metrics."""


def metrics_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of metrics.json."""
    properties: dict[str, Schema] = dict(ENVELOPE)
    for metric in METRICS:
        _place(properties, metric)
    properties["throughput"]["properties"]["unit"] = {"type": "string", "pattern": "_per_s$"}
    properties["throughput"]["required"].append("unit")
    properties["energy"]["properties"] |= {"scope": {"enum": ["gpu", "package", "node"]}, "method": TEXT}
    properties["energy"]["required"] += ["scope", "method"]
    for name in BOUNDED:
        properties[name]["properties"]["lower_bounds"] = LOWER_BOUNDS
        properties[name]["required"].append("lower_bounds")
    for name in OPTIONAL:
        properties[name]["type"] = ["object", "null"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "metrics.json of one trial",
        "description": "Made from the table of metrics in the package; do not edit. null: not known.",
        **_object({**properties, **TRAILER}),
    }


def _place(properties: dict[str, Schema], metric: Metric) -> None:
    *groups, last = metric.path.split(".")
    for group in groups:
        inner = properties.setdefault(group, _object({}))
        properties = inner["properties"]
        known = inner["required"]
        following = metric.path.split(".")[groups.index(group) + 1]
        if following not in known:
            known.append(following)
    kind = "boolean" if metric.unit == "yes or no" else "number"
    properties[last] = {"type": [kind, "null"], "description": f"{metric.meaning} ({metric.unit})"}


def schema_text() -> str:
    """Return the schema as in workflow/schemas."""
    return json.dumps(metrics_schema(), indent=1) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")


Document = dict[str, Any]

RENAMED_CODES: Mapping[str, str] = {
    "users_idle": "client_underdriven",
    "machine_full": "host_cpu_saturated",
    "rate_not_asked": "offered_rate_mismatch",
    "fits_cache": "served_from_page_cache",
    "times_disordered": "timestamp_order",
}
"""Codes of reasons in results of older versions -> current codes."""


def is_older(document: Mapping[str, Any]) -> bool:
    """Return whether a metrics.json or summary.json has metrics of an older version, with another meaning."""
    version = document.get("metrics_version")
    return not isinstance(version, int) or version < VERSION


def with_present_codes(document: Document) -> Document:
    """Return a metrics.json, or a treatment of a summary.json, with the current codes of its reasons."""
    reasons = document.get("reasons")
    if not isinstance(reasons, list):
        return document
    present = [
        reason | {"code": RENAMED_CODES[reason["code"]]} if reason.get("code") in RENAMED_CODES else reason
        for reason in reasons
    ]
    return document | {"reasons": present}


def marked(document: Document) -> Document:
    """Return a metrics.json with current codes, and with the reason `older_rule` for metrics of an older version."""
    document = with_present_codes(document)
    if document.get("status") != "ok" or not is_older(document):
        return document
    reason = _reason(document).to_json()
    verdict = worst([str(document.get("verdict") or "INVALID"), verdict_of(reason)])
    return document | {"reasons": [*(document.get("reasons") or ()), reason], "verdict": verdict}


def _reason(document: Mapping[str, Any]) -> Reason:
    window = document.get("window")
    known = window if isinstance(window, Mapping) else {}
    text = f"figures by the rule '{known.get('rule')}' of version {document.get('metrics_version')} of the metrics"
    if isinstance(start_s := known.get("start_s"), (int, float)):
        text += f": what was due before {start_s:.3g} s is in none of them"
    return Reason(
        code="older_rule",
        severity="suspect",
        text=text,
        remedy="Its samples are gone: do not compare it with others, or measure it again with `bench retry`.",
    )
