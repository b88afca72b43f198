"""Inputs of the metrics of one trial: its window, counts, times and losses of its requests, telemetry and energy."""

from dataclasses import replace

import numpy as np

from seamark.analysis.metrics.energy import energy_of
from seamark.analysis.metrics.metric import MetricInputs
from seamark.analysis.metrics.outages import LoadFacts
from seamark.analysis.metrics.samples import Samples
from seamark.analysis.metrics.stages import read_stages
from seamark.analysis.metrics.startup import AFTER_START_UP, EVERYTHING, find_start_up
from seamark.analysis.metrics.steady import state_of_items, steady_state
from seamark.analysis.metrics.stream import read_stream
from seamark.analysis.metrics.telemetry import summarise_telemetry
from seamark.analysis.metrics.waves import start_waves
from seamark.analysis.metrics.window import (
    RULE_OF_PARTIES,
    RULE_OF_REQUESTS,
    Window,
    find_window,
    window_of_arrivals,
    window_of_items,
    window_of_simulation,
)
from seamark.analysis.metrics.window_counts import WindowCounts, count_window
from seamark.model.digest import seed_for
from seamark.model.load_profile import LoadProfile
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.times import PartTimes
from seamark.model.results.trial_metrics import EnergyFigures, PartFigures
from seamark.model.sample import MISSING_NS
from seamark.model.trial import Deployment, Trial
from seamark.patterns.table import has_rate, pattern_of, schedule
from seamark.storage.paths import TrialFolder

SHOWN = ("p50", "p95", "p99")


def figures_of(counts: WindowCounts) -> PartFigures:
    """Return requests, failures, rates and response times of what was counted; None where too few samples are."""
    length_s, response = counts.window.length_s, counts.response
    return PartFigures(
        start_s=counts.window.start_ns / 1e9,
        end_s=counts.window.end_ns / 1e9,
        requests=counts.due,
        ok=counts.ok,
        failed=counts.failed,
        error_rate=counts.failed / counts.sent if counts.sent else None,
        requests_per_s=counts.replies / length_s if length_s > 0 else None,
        throughput=counts.arrived_units / length_s if length_s > 0 else None,
        latency_ms=PartTimes(
            **{name: response.statistic_ms(name) for name in (*SHOWN, "mean")},
            censored=response.bounds.count,
            ranges=response.ranges_ms((*SHOWN, "mean")),
        ),
    )


def part_figures(samples: Samples, part: Window, folder: TrialFolder) -> PartFigures:
    """Return the metrics of a part of a load, counted as those of the measured window."""
    return figures_of(count_window(samples, part, stream=read_stream(folder.chunks, samples, part)))


def metric_inputs(
    trial: Trial, load: LoadRecord, samples: Samples, folder: TrialFolder, deployment: Deployment | None
) -> MetricInputs:
    """Return the inputs of a trial's metrics. Raises DamagedError for files that cannot be read."""
    profile = trial.load
    warmup_s = profile.warmup_s if load.warmup_s is None else load.warmup_s
    duration_s = profile.duration_s if load.duration_s is None else load.duration_s
    if load.over_saturated_at_s is not None:  # end of the load
        duration_s = load.over_saturated_at_s - warmup_s
    changing = has_rate(profile.pattern, "changing")
    if load.window_s is not None:
        start_ns, end_ns = (round(at_s * 1e9) for at_s in load.window_s)
        if profile.warmup_items:
            window_of = window_of_items if profile.finite else window_of_arrivals
            own_ns = window_of(samples, warmup_items=profile.warmup_items).start_ns
            start_ns = min(max(start_ns, own_ns), end_ns)
        window = Window(start_ns=start_ns, end_ns=end_ns, rule=RULE_OF_PARTIES, own=profile.finite)
    elif load.virtual_clock:
        window = window_of_simulation(samples, trial.settings, _ran_out_ns(profile, load, samples))
    elif profile.finite:
        window = window_of_items(samples, profile.warmup_items)
    elif profile.until_last_reply:
        window = window_of_arrivals(
            samples, has_rate=not profile.closed, rule=RULE_OF_REQUESTS, warmup_items=profile.warmup_items
        )
    else:
        window = find_window(
            warmup_s=warmup_s, duration_s=duration_s, sending_ended_ns=_ran_out_ns(profile, load, samples)
        )
    start_up = None
    if profile.detects_warmup:
        limit_ns = round(warmup_s * 1e9)
        start_up = find_start_up(samples, end_ns=window.end_ns, limit_ns=limit_ns, changing=changing)
        cut = Window(start_ns=0, end_ns=round(start_up.cut_s * 1e9), rule="cut off")
        rule = AFTER_START_UP if cut.end_ns else EVERYTHING
        window = Window(start_ns=cut.end_ns, end_ns=window.end_ns, rule=rule)
        if cut.end_ns:
            start_up = replace(start_up, part=part_figures(samples, cut, folder))
    stream = read_stream(folder.chunks, samples, window)
    counted = count_window(
        samples,
        window,
        slos=trial.slos,
        kinds=len(load.kinds),
        stream=stream,
        turns=profile.turns,
        retries=trial.settings.get("max_tries") is not None,
    )
    if profile.closed and not load.virtual_clock and (latency := counted.service.statistic("p50")):
        counted.waves = start_waves(samples, window, latency.low)
    lost = lost_of(load, counted)
    finite = profile.finite and not is_simulated_load(profile, load)
    finite = finite or (profile.until_last_reply and profile.closed)
    facts = LoadFacts(
        response=counted.response.histogram,
        closed=profile.closed or finite,
        think=profile.think_time_s > 0,
        changing=changing,
        virtual=load.virtual_clock,
    )
    steady, part = (state_of_items if finite else steady_state)(samples, window, facts)
    if part is not None:
        figures = figures_of(counted) if part is window else part_figures(samples, part, folder)
        steady = replace(steady, part=figures)
    telemetry = summarise_telemetry(folder.telemetry, window.start_ns / 1e9, window.end_ns / 1e9)
    gpus, nodes = (deployment.gpus, deployment.nodes) if deployment else (None, None)
    energy = energy_of(counted, telemetry, load, gpus=gpus, nodes=nodes)
    return MetricInputs(
        counts=counted,
        window=window,
        steady=steady,
        start_up=start_up,
        open_loop=not profile.closed,
        has_objectives=_has_objectives(trial, counted),
        lost=lost,
        lost_in_window=lost_in_window(trial, counted, lost),
        telemetry=telemetry,
        energy=EnergyFigures() if isinstance(energy, str) else energy,
        energy_reason=energy if isinstance(energy, str) else None,
        stages=read_stages(folder.events, samples, window, counted.response),
    )


def is_simulated_load(profile: LoadProfile, load: LoadRecord) -> bool:
    """Return whether a simulation has an open load: it is judged as a measured load of requests."""
    return load.virtual_clock and not profile.closed


def _has_objectives(trial: Trial, counted: WindowCounts) -> bool:
    """Whether objectives decide for each request if it is good: not with one on a time per token without token
    counts."""
    names = [slo.metric for slo in trial.slos if slo.metric in REQUEST_OBJECTIVES]
    return bool(names) and (counted.counts_units or "tpot_s" not in names)


def _ran_out_ns(profile: LoadProfile, load: LoadRecord, samples: Samples) -> int | None:
    """Time of the last request, if the load ran out of requests; else None.

    It does with a limit of `requests`, and if every worker reports that its schedule ran out, as a simulation does.
    """
    limit = profile.requests
    if load.workers and all(worker.ran_out for worker in load.workers):
        limit = load.scheduled or None
    if limit is None or samples.rows < limit:
        return None
    sent, latest = 0, MISSING_NS
    for batch in samples.batches():
        sent += int((batch.sent != MISSING_NS).sum())
        latest = max(latest, int(batch.sent.max(initial=MISSING_NS)))
    return latest + 1 if sent and sent >= limit else None  # the last request belongs to the window


def lost_of(load: LoadRecord, counted: WindowCounts) -> int:
    """Return the scheduled requests without a sample, after a worker died."""
    died = not all(worker.ok for worker in load.workers)
    return max(0, (load.scheduled or 0) - counted.rows) if died else 0


def lost_in_window(trial: Trial, counted: WindowCounts, lost: int) -> int:
    """Return how many of the `lost` requests were due in the window.

    The schedule follows from the trial's seed, so what was due in the window is known. Where it does not (later
    turns of a session, the probe that a search found, a trace or pattern that is gone), the lost requests lie in the
    window as the recorded ones do.
    """
    if not lost:
        return 0
    due = _due_inside(trial, counted.window)
    if due is None:
        return round(lost * counted.due / counted.rows) if counted.rows else lost
    return min(lost, max(0, due - counted.due))


def _due_inside(trial: Trial, window: Window) -> int | None:
    """Return the requests of the whole schedule that were due in the window; None if replies, the seed of a search's
    probe or a missing file decide."""
    profile = trial.load
    if profile.turns > 1 or trial.search is not None:
        return None
    try:
        pattern = pattern_of(profile)
        if pattern is None:
            return None
        seed = seed_for(trial.seed, "arrivals")
        blocks = schedule(pattern, seed=seed, until_s=profile.length_s, requests=profile.requests)
        return sum(int(np.diff(np.searchsorted(at_ns, [window.start_ns, window.end_ns]))[0]) for at_ns in blocks)
    except (OSError, ValueError):
        return None
