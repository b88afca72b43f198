"""Sums up a scenario from the metrics.json and histogram.json of its trials: one treatment in memory at a time."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from seamark.analysis.checks import verdict_of, worst
from seamark.analysis.metrics import VERSION
from seamark.analysis.metrics.distribution import QUANTILES
from seamark.analysis.summary.knees import found_by_search, knees, point_of
from seamark.analysis.summary.outcome import Document, Outcome, kinds_of, read_outcome
from seamark.analysis.summary.repetitions import ComparedNodes, compared
from seamark.analysis.summary.servers import ComparedServers
from seamark.analysis.summary.treatments import each, known, medians, spread, telemetry
from seamark.model.scenario import factors_of_starts, why_no_p
from seamark.model.service import Value
from seamark.model.trial import SCHEMA_VERSION, Plan, Trial, levels_of
from seamark.stats import censored
from seamark.stats.histogram import RELATIVE_ERROR, merge
from seamark.stats.quantiles import samples_needed
from seamark.storage.paths import ScenarioFolder
from seamark.storage.redaction import redacted

STREAMED = {
    "ttft_ms": "ttft_ns",
    "ttft_response_ms": "ttft_response_ns",
    "ttfo_ms": "ttfo_ns",
    "tpot_ms": "tpot_ns",
    "inter_chunk_ms": "inter_chunk_ns",
}
TIMES = {"latency_ms": "response_ns", "service_time_ms": "service_ns", **STREAMED}


def summarise(plan: Plan, folder: ScenarioFolder) -> Document:
    """Return summary.json: every treatment of the plan over its good trials, and the trials that are not good.

    A missing, failed or damaged trial is named under `failed` and takes part in nothing else. Percentiles are those
    of all requests of a treatment's trials together, from their mergeable histograms (0.5 % relative error).
    """
    grouped: dict[str, list[Trial]] = {}
    for trial in plan.trials:
        grouped.setdefault(trial.treatment, []).append(trial)
    levels = levels_of(plan)
    between = factors_of_starts(plan.factors)
    treatments, failed, points, ok = [], [], [], 0
    nodes, servers = ComparedNodes(), ComparedServers()
    for trials in grouped.values():
        outcomes = compared([read_outcome(trial, folder.trial(trial.id)) for trial in trials])
        ok += sum(outcome.ok for outcome in outcomes)
        for outcome in outcomes:
            if outcome.ok:
                nodes.add(outcome.trial.group, folder.trial(outcome.trial.id))
                servers.add(outcome.trial, folder.trial(outcome.trial.id))
        failed += [
            {
                "trial": outcome.trial.id,
                "status": outcome.status,
                "category": outcome.category,
                "reason": outcome.reason,
            }
            for outcome in outcomes
            if not outcome.ok
        ]
        factors = levels[trials[0].treatment]
        treatments.append(_treatment(factors, outcomes))
        points.append(point_of(trials[0].group, factors, outcomes))
    members: dict[str, list[str]] = {}
    for treatment in treatments:
        members.setdefault(treatment["workload"], []).extend(treatment["trials"])
    treatments = [_with(treatment, nodes, servers, members[treatment["workload"]]) for treatment in treatments]
    return {
        "schema_version": SCHEMA_VERSION,
        "metrics_version": VERSION,
        "scenario": plan.scenario,
        "trials": len(plan.trials),
        "ok": ok,
        "failed": failed,
        "verdicts": dict(Counter(verdict for treatment in treatments for verdict in treatment["trial_verdicts"])),
        "generated_from": "metrics.json and histogram.json of every trial",
        "percentiles": {"method": "pooled histograms", "relative_error": RELATIVE_ERROR},
        "factors_without_p": list(between),
        "why_no_p": why_no_p(between) if between else None,
        "servers": servers.document(),
        "treatments": treatments,
        "knees": knees([point for point in points if not servers.several(members[point.workload])]),
    }


def _with(treatment: Document, nodes: ComparedNodes, servers: ComparedServers, group: Sequence[str]) -> Document:
    """Add to a treatment's reasons what stands against comparing it with the others of its group."""
    against = nodes.reasons(treatment["workload"], treatment["repetitions"]) if treatment["repetitions"] else []
    against += servers.reasons(treatment["trials"], group)
    reasons = _gravest_first([*treatment["reasons"], *against])
    verdict = worst([treatment["verdict"], *map(verdict_of, against)])
    names = servers.names_of(treatment["trials"])
    return treatment | {"reasons": reasons, "verdict": verdict, "trial_servers": names}


def _treatment(factors: Mapping[str, Value], outcomes: Sequence[Outcome]) -> Document:
    trial = outcomes[0].trial
    good = [outcome.metrics for outcome in outcomes if outcome.ok and outcome.metrics is not None]
    units = Counter(str(metrics["throughput"]["unit"]) for metrics in good)
    unit = max(units, key=lambda name: units[name], default=None)
    alike = [metrics for metrics in good if metrics["throughput"]["unit"] == unit]
    reasons = _reasons(outcomes)
    return {
        "treatment": trial.treatment,
        "workload": trial.group,
        "service": trial.service,
        "component": trial.component,
        "deployment": trial.deployment,
        "config": redacted(good[0]["config"] if good else trial.settings),
        "changed": redacted(trial.changed),
        "factors": redacted(factors),
        "repetitions": len(good),
        "planned": len(outcomes),
        "throughput": {**spread(each(alike, "throughput", "value")), "unit": unit},
        "requests_per_s": spread(each(good, "requests_per_s")),
        "bandwidth_mb_per_s": known(spread(each(good, "bandwidth", "mb_per_s"))),
        **{group: _pooled(outcomes, name) for group, name in TIMES.items()},
        "by_kind": kinds_of(good),
        "concurrency_mean": spread(each(good, "concurrency_mean")),
        "errors": {"rate": _error_rate(good)},
        "goodput": known(spread(each(good, "goodput", "ratio"))),
        "goodput_per_s": known(spread(each(good, "goodput", "per_s"))),
        "offered_rps": known(spread(each(good, "offered_rps"))),
        "achieved_rps": known(spread(each(good, "achieved_rps"))),
        "energy": _energy(good),
        "quality": medians(good, "quality"),
        "own": _own(good),
        "resource": medians(good, "resource"),
        "telemetry": telemetry(good),
        "slos": _objectives(good),
        "search": found_by_search(outcomes),
        "verdict": worst([verdict_of(reason) for reason in reasons]) if good else "INVALID",
        "trial_verdicts": [outcome.verdict for outcome in outcomes],
        "by_twins": {outcome.trial.id: list(outcome.by_twins) for outcome in outcomes if outcome.by_twins},
        "reasons": reasons,
        "trials": [outcome.trial.id for outcome in outcomes],
    }


def _pooled(outcomes: Sequence[Outcome], name: str) -> Document | None:
    """Percentiles of all requests of the good trials together; those that these are too few for are None. Of `n`
    requests `censored` have no answer: the statistics in `lower_bounds` reach into them, the mean leaves them out."""
    known = merge(outcome.histograms[name] for outcome in outcomes if name in outcome.histograms)
    bounds = merge(outcome.censored[name] for outcome in outcomes if name in outcome.censored)
    count = known.count + bounds.count
    if not count and name in STREAMED.values():
        return None
    found = {
        quantile: censored.quantile(known, bounds, q) if count >= samples_needed(q) else None
        for quantile, q in QUANTILES.items()
    }
    found |= {"min": censored.minimum(known, bounds), "max": censored.maximum(known, bounds)}
    figures = {statistic: None if each is None else _ms(each.value) for statistic, each in found.items()}
    return {
        **figures,
        "mean": None if known.mean is None else _ms(known.mean),
        "n": count,
        "censored": bounds.count,
        "lower_bounds": [statistic for statistic, each in found.items() if each is not None and each.lower_bound],
    }


def _ms(value_ns: float) -> float:
    return float(f"{value_ns / 1e6:.9g}")


def _error_rate(good: Sequence[Document]) -> float | None:
    """Failed requests of all trials over those sent in all of them."""
    failed = sum(metrics["counts"]["failed"] + metrics["counts"]["lost"] for metrics in good)
    sent = sum(metrics["counts"]["failed"] + metrics["counts"]["ok"] + metrics["counts"]["lost"] for metrics in good)
    return failed / sent if sent else None


def _energy(good: Sequence[Document]) -> Document | None:
    """Joules of the trials whose figures are of the same scope; None where there are none or where scopes differ."""
    scopes = sorted({metrics["energy"]["scope"] for metrics in good if metrics.get("energy")})
    if len(scopes) != 1:
        return None
    names = ("value_j", "per_request_j", "per_unit_j", "power_w", "idle_power_w")
    return {"scope": scopes[0], **{name: known(spread(each(good, "energy", name))) for name in names}}


def _own(good: Sequence[Document]) -> dict[str, Document]:
    """Each metric of the user's own over the trials that have it, with its unit, direction and meaning."""
    found: dict[str, Document] = {}
    for metrics in good:
        for name, one in (metrics.get("own") or {}).items():
            found.setdefault(name, {key: one[key] for key in ("unit", "better", "meaning")})
    return {
        name: about | (known(spread(each([m.get("own") or {} for m in good], name, "value"))) or {"median": None})
        for name, about in found.items()
    }


def _objectives(good: Sequence[Document]) -> list[Document]:
    """How many of the good trials meet each objective, of those in which its value is known; and these values."""
    found: dict[tuple[str, str, float], list[Document]] = {}
    for metrics in good:
        for slo in metrics.get("slos") or ():
            found.setdefault((slo["metric"], slo["op"], slo["limit"]), []).append(slo)
    return [
        {
            "metric": metric,
            "op": op,
            "limit": limit,
            "met": sum(slo["met"] is True for slo in slos),
            "of": sum(slo["met"] is not None for slo in slos),
            "value": known(spread(each(slos, "value"))),
            "lower_bounds": sum(bool(slo.get("lower_bound")) for slo in slos),
        }
        for (metric, op, limit), slos in found.items()
    ]


def _reasons(outcomes: Sequence[Outcome]) -> list[Document]:
    """Codes of all trials with how many have each, the gravest first; each with the text of its first trial.

    A trial without figures leaves the others as good as they are, but fewer than planned: that alone is SUSPECT.
    """
    some_good = any(outcome.ok for outcome in outcomes)
    found: dict[str, Document] = {}
    for outcome in outcomes:
        for reason in outcome.reasons:
            severity = "suspect" if some_good and not outcome.ok else reason["severity"]
            first = found.setdefault(reason["code"], {**reason, "severity": severity, "count": 0})
            first["count"] += 1
    return _gravest_first(found.values())


def _gravest_first(reasons: Iterable[Document]) -> list[Document]:
    grave = {"invalid": 0, "suspect": 1, "note": 2}
    return sorted(reasons, key=lambda reason: grave.get(reason["severity"], 0))
