"""Makes metrics.json of one trial from the files of its load. Writes nothing; faulty files raise nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from seamark.analysis.checks import Findings, Reason, judge
from seamark.analysis.metrics.distribution import QUANTILES, Distribution
from seamark.analysis.metrics.energy import Energy
from seamark.analysis.metrics.evidence import Recorded, evidence_of, series_of
from seamark.analysis.metrics.findings import findings
from seamark.analysis.metrics.metric import Evidence, own_metrics
from seamark.analysis.metrics.objectives import CHUNKS, judged_objectives
from seamark.analysis.metrics.resources import Ceiling
from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.metrics.startup import StartUp
from seamark.analysis.metrics.steady import SteadyState
from seamark.analysis.metrics.table import BOUNDED, METRICS, VERSION
from seamark.analysis.metrics.tally import KindTally
from seamark.analysis.metrics.telemetry import Seen
from seamark.analysis.metrics.timeline import Second
from seamark.analysis.metrics.window import Window
from seamark.model.dotted import mark_of
from seamark.model.plurals import plural
from seamark.model.results.load_record import LoadRecord
from seamark.model.trial import SCHEMA_VERSION, Deployment, Trial
from seamark.stats.histogram import Histogram
from seamark.storage.codec import encode
from seamark.storage.redaction import redacted

Document = dict[str, Any]
STREAMS = ("ttft_ms", "ttft_response_ms", "ttfo_ms", "tpot_ms", "inter_chunk_ms", "normalised_latency_ms")
OPTIONAL = ("sessions", "bandwidth", *STREAMS, "schedule_lag_ms", "goodput", "energy")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Everything derived from one trial's samples. `series` and `histograms` are empty if the samples cannot be read.
    `censored` are lower bounds of the times of unanswered requests, under the names of `histograms`."""

    document: Document
    series: Sequence[Second]
    histograms: Mapping[str, Histogram]
    censored: Mapping[str, Histogram] = field(default_factory=dict)


def compute(
    trial: Trial,
    load: LoadRecord,
    folder: Recorded,
    *,
    scenario: str,
    deployment: Deployment | None = None,
    client_is_server: bool | None = None,
    ceiling: Ceiling | None = None,
) -> Document:
    """Return the metrics.json document of a trial; `measure` also returns the series and histograms."""
    return measure(
        trial,
        load,
        folder,
        scenario=scenario,
        deployment=deployment,
        client_is_server=client_is_server,
        ceiling=ceiling,
    ).document


def measure(
    trial: Trial,
    load: LoadRecord,
    folder: Recorded,
    *,
    scenario: str,
    deployment: Deployment | None = None,
    client_is_server: bool | None = None,
    ceiling: Ceiling | None = None,
) -> Measured:
    """Derive everything from a trial's load.json, samples and telemetry.

    `client_is_server`: the service runs inside the client; None: decided by the absence of server telemetry.
    `ceiling` is the highest rate of the client. A failed load or damaged samples give a document of status failed,
    with nulls and a reason.
    """
    envelope = _envelope(trial, load, scenario, deployment)
    try:
        samples = open_samples(folder.samples, trial.config_hash)
        series = series_of(samples, trial)
        if not load.ok:
            return Measured(document=_failed(envelope, trial, load, None), series=series, histograms={})
        found = evidence_of(trial, load, samples, folder, deployment)
    except DamagedError as damage:
        return Measured(document=_failed(envelope, trial, load, damage), series=(), histograms={})
    if not found.tally.rows:
        return Measured(
            document=_failed(envelope, trial, load, DamagedError("no request was recorded")), series=(), histograms={}
        )
    document = _figures(envelope, found, load)
    document |= {"own": own_metrics(trial.metrics, found), "own_checks": [mark_of(path) for path in trial.checks]}
    document["saturated"] = document["saturated"] or document["over_saturated_at_s"] is not None
    document["slos"] = judged_objectives(trial.slos, document)
    facts = findings(trial, load, document, found, client_is_server=client_is_server, ceiling=ceiling)
    verdict, reasons = judge(facts, trial.checks)
    document |= {"verdict": verdict, "reasons": [reason.to_json() for reason in reasons]}
    counted = found.tally
    times = {
        "response_ns": counted.response,
        "service_ns": counted.service,
        "ttft_ns": counted.ttft,
        "ttft_response_ns": counted.ttft_response,
        "ttfo_ns": counted.ttfo,
        "tpot_ns": counted.tpot,
        "inter_chunk_ns": counted.inter_chunk,
    }
    return Measured(
        document=_rounded(document),
        series=series,
        histograms={name: each.histogram for name, each in times.items()},
        censored={name: each.bounds for name, each in times.items() if each.bounds.count},
    )


def _envelope(trial: Trial, load: LoadRecord, scenario: str, deployment: Deployment | None) -> Document:
    batch = trial.settings.get("batch", trial.settings.get("batch_size"))
    return {
        "schema_version": SCHEMA_VERSION,
        "metrics_version": VERSION,
        "trial_id": trial.trial_id,
        "trial": trial.id,
        "scenario": scenario,
        "treatment": trial.treatment,
        "timestamp": load.started_at or load.finished_at,
        "component": trial.component,
        "service": trial.service,
        "status": "ok",
        "category": None,
        "reason": None,
        "repetition": trial.repetition,
        "block": trial.block,
        "position": trial.position,
        "config": {
            **redacted(trial.settings),
            "gpus": deployment.gpus if deployment else None,
            "batch": batch,
            "concurrency": trial.load.concurrency,
            "nodes": deployment.nodes if deployment else None,
        },
        "changed": redacted(trial.changed),
    }


def _failed(envelope: Document, trial: Trial, load: LoadRecord, damage: DamagedError | None) -> Document:
    """The document of a trial without metrics; countable facts come from load.json."""
    if load.ok:
        category, reason = "no_samples", str(damage)
    else:
        category = load.category or ("timeout" if load.status == "timeout" else "client_died")
        reason = load.reason or (str(damage) if damage else f"the load ended as {load.status}")
    document = envelope | {"status": "failed", "category": category, "reason": reason}
    for metric in METRICS:
        _put(document, metric.path, None)
    for group in BOUNDED:
        document[group]["lower_bounds"] = []
    failures = load.failures
    document["counts"] |= {"requests": load.sent, "failed": sum(failures.values()) if failures else None}
    for name, count in failures.items():
        if name in document["errors"]["by_category"]:
            document["errors"]["by_category"][name] = count
    _, reasons = judge(Findings(status="failed", category=category, failure=reason))
    own = {"own": own_metrics(trial.metrics, None), "own_checks": [mark_of(path) for path in trial.checks]}
    return _closed(document, load, None, "INVALID", reasons) | own


def _figures(envelope: Document, found: Evidence, load: LoadRecord) -> Document:
    document = dict(envelope)
    for metric in METRICS:
        _put(document, metric.path, metric.value(found))
    for group, pick in BOUNDED.items():
        document[group]["lower_bounds"] = pick(found.tally).lower_bounds()
    document = _closed(document, load, found.window, "VALID", ())
    if not found.tally.counts_units:
        document["throughput"]["unit"] = CHUNKS
    document["warmup_auto"] = found.start_up and _start_up(found.start_up, found.cut_part)
    document["steady_state"] = _steady(found.steady, found.steady_part)
    document |= _of_energy(document["energy"], found.energy)
    kinds = load.kinds
    if len(found.tally.by_kind) > 1:
        document["by_kind"] = {
            kinds[number] if number < len(kinds) else str(number): _kind(counted)
            for number, counted in sorted(found.tally.by_kind.items())
        }
    if not found.tally.response.exact:
        document["percentiles"] |= {
            "method": "histogram",
            "relative_error": found.tally.response.histogram.relative_error,
        }
    document["telemetry"] = {
        f"{source}.{name}": _seen(seen) for (source, name), seen in sorted(found.telemetry.items())
    }
    return document


def _of_energy(figures: Document | None, found: Energy) -> Document:
    """Add scope and method to the energy metrics, or the reason for their absence."""
    chosen = found.chosen
    if figures is None or chosen is None:
        return {"energy": None, "energy_reason": found.reason}
    return {"energy": figures | {"scope": chosen.scope, "method": chosen.method}, "energy_reason": None}


def _kind(counted: KindTally) -> Document:
    """Metrics of one kind of request; those of streams are null without streams."""
    return {
        "requests": counted.due,
        "ok": counted.ok,
        "failed": counted.failed,
        "units": counted.units,
        "latency_ms": _bounded(counted.response),
        "service_time_ms": _bounded(counted.service),
        "ttft_ms": _bounded(counted.ttft) if counted.ttft.count else None,
        "tpot_ms": _quantiles(counted.tpot) if counted.tpot.count else None,
    }


def _quantiles(times: Distribution) -> Document:
    found = {name: times.statistic(name) for name in ("mean", *QUANTILES)}
    return {name: None if each is None else each.value / 1e6 for name, each in found.items()}


def _bounded(times: Distribution) -> Document:
    bounds = [name for name in times.lower_bounds() if name in QUANTILES]
    return {**_quantiles(times), "censored": times.bounds.count, "lower_bounds": bounds}


def _closed(
    document: Document,
    load: LoadRecord,
    window: Window | None,
    verdict: str,
    reasons: Sequence[Reason],
) -> Document:
    """Add the parts that are not metrics, and null for unknown groups."""
    document["throughput"]["unit"] = f"{plural(load.unit or 'reply')}_per_s"
    for name in OPTIONAL:
        if all(value is None or value == [] for value in document[name].values()):
            document[name] = None
    return document | {
        "window": {
            "start_s": window.start_ns / 1e9 if window else None,
            "end_s": window.end_ns / 1e9 if window else None,
            "rule": window.rule if window else None,
        },
        "warmup_auto": None,
        "steady_state": None,
        "over_saturated_at_s": load.over_saturated_at_s,
        "search": encode(load.search),
        "percentiles": {"method": "exact", "relative_error": 0.0},
        "energy_reason": None,
        "by_kind": None,
        "slos": [],
        "quality": dict(load.quality),
        "telemetry": {},
        "verdict": verdict,
        "reasons": [reason.to_json() for reason in reasons],
        "notes": None,
    }


def _start_up(start_up: StartUp, part: Mapping[str, Any] | None) -> Document:
    return {
        "limit_s": start_up.limit_ns / 1e9,
        "cut_s": start_up.cut_ns / 1e9,
        "reason": start_up.reason,
        "part": part,
    }


def _steady(state: SteadyState, part: Mapping[str, Any] | None) -> Document:
    return {
        "steady": state.steady,
        "reason": state.reason,
        "rule": state.rule,
        "advised_warmup_s": state.advised_warmup_s,
        "part": part,
        "outages": [asdict(outage) for outage in state.outages],
    }


def _seen(seen: Seen) -> dict[str, Any]:
    figures = {"min": seen.minimum, "mean": seen.mean, "p50": seen.p50, "p95": seen.p95, "max": seen.maximum}
    return {"unit": seen.unit, "n": seen.n, **figures}


def _put(document: Document, path: str, value: Any) -> None:
    *groups, last = path.split(".")
    for group in groups:
        document = document.setdefault(group, {})
    document[last] = value


def _rounded(value: Any) -> Any:
    """Nine significant digits: more were not measured, and the files stay small and readable."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
