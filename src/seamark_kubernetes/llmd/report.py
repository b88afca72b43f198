"""Trials in the form of llm-d-benchmark: its benchmark report 0.2 (`llmd-benchmark-report` on PyPI)."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import seamark
from seamark.analysis.metrics.samples import open_samples
from seamark.analysis.trial_view import TrialView
from seamark.config.secrets import secrets_of
from seamark.model.harness import HARNESS, SEAMARK, harness_of
from seamark.model.origin import MEASURED
from seamark.model.results.times import Times
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.service import Value
from seamark.model.trial import Trial
from seamark.storage.redaction import redacted, without

VERSION = "0.2.1"
TOKENS = "tokens_per_s"
TOOLS = {"vllm_bench": "vllm-benchmark"}
"""Names of tools in a report, where they differ from ours."""
STATISTICS = {name: name for name in ("mean", "min", "p50", "p90", "p95", "p99", "max")} | {"p99p9": "p999"}
"""Statistic of a report -> ours."""
LATENCIES = {
    "time_to_first_token": ("ttft_ms", "ms"),
    "normalized_time_per_output_token": ("normalised_latency_ms", "ms/token"),
    "time_per_output_token": ("tpot_ms", "ms/token"),
    "request_latency": ("service_time_ms", "ms"),
}
"""Times of a report, which are from the send on -> ours. A time between chunks is none between tokens."""
SHAPES = ("fixed", "uniform")


def why_not(view: TrialView) -> str | None:
    """Return why a trial has no report, None for one that has."""
    if view.origin != MEASURED:
        return "not measured, but simulated"
    if view.good is None or view.verdict == "INVALID":
        return f"{view.verdict}: {view.reason or ', '.join(view.codes)}"
    return None if view.good.throughput.unit == TOKENS else "its unit is no token"


def report_of(view: TrialView, locks: Path) -> dict[str, Any]:
    """Return the report of a trial for which `why_not` is None, without secrets. `locks` has the locks of
    environments, which name the versions of tools. Raises DamagedError for samples that cannot be read."""
    metrics, trial = view.good, view.trial
    assert metrics is not None
    stack = {
        "metadata": {"label": trial.deployment, "cfg_id": _identity(view)},
        "standardized": {"kind": "generic", "tool": trial.service, **_service(view)},
        "native": {},
    }
    document = {
        "version": VERSION,
        "run": {
            "uid": trial.trial_id,
            "eid": metrics.scenario,
            "time": _time(view),
            "description": _description(view, metrics),
        },
        "scenario": {"stack": [stack], "load": _load(trial, locks)},
        "results": {"request_performance": {"aggregate": dict(_aggregate(view, metrics))}},
    }
    return without(redacted(document), secrets_of(trial.settings))


def _identity(view: TrialView) -> str:
    server = view.load.server_identity if view.load is not None else None
    return server.digest if server is not None and server.digest else view.trial.deployment


def _service(view: TrialView) -> dict[str, Any]:
    settings, meta = view.trial.settings, view.meta
    model = settings.get("served_model") or settings.get("model")
    found = {"tool_version": (meta.service_version if meta else None) or "unknown", "gpus": settings.get("gpus", 0)}
    return found | ({} if model is None else {"model": {"name": str(model)}})


def _time(view: TrialView) -> dict[str, str]:
    """Return start, end and duration of the load with its warm-up."""
    if view.started_at is None or view.load_s is None:
        return {}
    start = datetime.fromisoformat(view.started_at)
    end = start + timedelta(seconds=view.load_s)
    return {"start": start.isoformat(), "end": end.isoformat(), "duration": f"PT{view.load_s:.9g}S"}


def _description(view: TrialView, metrics: TrialMetrics) -> str:
    """Return the name of the trial, its verdict, and what its figures leave out."""
    codes = [reason.code for reason in view.reasons if reason.severity != "note"]
    text = f"{view.id}: {view.verdict}" + (f" ({', '.join(codes)})" if codes else "")
    left = metrics.service_time_ms.unanswered
    return text + (f". Means are without {left} requests that had no answer." if left else "")


def _load(trial: Trial, locks: Path) -> dict[str, Any]:
    settings, profile = trial.settings, trial.load
    harness, tool = harness_of(settings), str(settings.get(HARNESS) or SEAMARK)
    version = seamark.__version__
    if harness is not None:
        lock = (locks / f"{harness.environment}.lock").read_text(encoding="utf-8")
        match = re.search(rf"^{harness.environment}(?:-cpu)?==(\S+)", lock, re.MULTILINE)
        version = match[1] if match else "unknown"
    standardized: dict[str, Any] = {
        "tool": TOOLS.get(tool, tool),
        "tool_version": version,
        "source": "sampled" if settings.get("dataset") else "random",
        "input_seq_len": _length(settings, "prompt_len"),
        "output_seq_len": _length(settings, "gen_tokens"),
        "concurrency": profile.concurrency,
    }
    if (rate_rps := profile.parameters.get("rate_rps")) is not None:
        standardized["rate_qps"] = rate_rps
    metadata = {"cfg_id": trial.config_hash, "treatment": trial.treatment}
    return {"metadata": metadata, "standardized": standardized, "native": {"config": dict(settings)}}


def _length(settings: Mapping[str, Value], name: str) -> dict[str, Any]:
    """Return a distribution of lengths; one of another shape than a report knows is 'other'."""
    shape = str(settings.get(f"{name}_shape") or "fixed")
    return {"distribution": shape if shape in SHAPES else "other", "value": settings.get(name) or 0}


def _aggregate(view: TrialView, metrics: TrialMetrics) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield figures of the measured window, without any that is known between two ends alone."""
    counts = metrics.counts
    requests: dict[str, Any] = {"total": counts.sent, "failures": counts.failed, "incomplete": counts.unfinished}
    if (mean := _units_each(view)) is not None:
        requests["output_length"] = {"units": "count", "mean": mean}
    yield "requests", {name: value for name, value in requests.items() if value is not None}
    latency = {name: _statistics(metrics.at(path), unit) for name, (path, unit) in LATENCIES.items()}
    yield "latency", {name: statistics for name, statistics in latency.items() if statistics}
    rates = {
        "output_token_rate": ("tokens/s", metrics.throughput.value),
        "request_rate": ("queries/s", metrics.requests_per_s),
    }
    throughput = {name: {"units": unit, "mean": mean} for name, (unit, mean) in rates.items() if mean is not None}
    yield "throughput", throughput


def _statistics(times: object, unit: str) -> dict[str, Any] | None:
    """Return the statistics that are numbers; None without a mean, which a report must have."""
    if not isinstance(times, Times) or times.statistic("mean") is None:
        return None
    known = {name: None if times.is_range(ours) else times.statistic(ours) for name, ours in STATISTICS.items()}
    known["mean"] = times.statistic("mean")
    return {"units": unit} | {name: value for name, value in known.items() if value is not None}


def _units_each(view: TrialView) -> float | None:
    """Return the mean number of tokens of good replies to requests that were due in the window."""
    if view.window_s is None:
        return None
    start_ns, end_ns = (time_s * 1e9 for time_s in view.window_s)
    units = count = 0
    for batch in open_samples(view.folder.samples).batches():
        inside = batch.good & (batch.due >= start_ns) & (batch.due < end_ns)
        units, count = units + int(batch.units[inside].sum()), count + int(inside.sum())
    return units / count if count else None
