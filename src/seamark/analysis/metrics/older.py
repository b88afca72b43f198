"""Figures of an older version of the metrics: how to know them, and how they are marked where samples are gone."""

from collections.abc import Mapping
from typing import Any

from seamark.analysis.checks import Reason, verdict_of, worst
from seamark.analysis.metrics.table import VERSION

Document = dict[str, Any]

RENAMED_CODES: Mapping[str, str] = {
    "users_idle": "client_underdriven",
    "machine_full": "host_cpu_saturated",
    "rate_not_asked": "offered_rate_mismatch",
    "fits_cache": "served_from_page_cache",
    "times_disordered": "timestamp_order",
}
"""Codes of reasons in results of older versions, and their present names."""


def is_older(document: Mapping[str, Any]) -> bool:
    """Return whether a metrics.json or summary.json has figures of an older version, which mean something else."""
    version = document.get("metrics_version")
    return not isinstance(version, int) or version < VERSION


def with_present_codes(document: Document) -> Document:
    """Return a metrics.json, or a treatment of a summary.json, with the present codes of its reasons."""
    reasons = document.get("reasons")
    if not isinstance(reasons, list):
        return document
    present = [
        reason | {"code": RENAMED_CODES[reason["code"]]} if reason.get("code") in RENAMED_CODES else reason
        for reason in reasons
    ]
    return document | {"reasons": present}


def marked(document: Document) -> Document:
    """Return a metrics.json with present codes, and with the reason `older_rule` for figures of an older version."""
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
