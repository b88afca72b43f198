"""Checks of the result: whether it exists, is steady, and can be compared."""

from seamark.analysis.checks.checked_trial import CheckedTrial, check
from seamark.analysis.metrics.distribution import QUANTILES
from seamark.analysis.metrics.energy import is_gpu
from seamark.analysis.metrics.table import BOUNDED
from seamark.model.failure_categories import FAILURE_CATEGORIES
from seamark.model.harness import harness_of
from seamark.model.plurals import counted, in_percent, unit_of_times
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.trial_metrics import PartFigures, Severity, TrialMetrics, VerdictReason
from seamark.patterns.table import has_rate
from seamark.stats.quantiles import samples_needed
from seamark.stats.range import Range

BUSY_GPU = 0.5
"""Utilisation from which on a GPU is expected to run at its highest clock."""

MANY_OUTAGES = 5
"""More than this are typical of the service, like pauses of a garbage collector, and not an accident of one trial."""


def trial_failed(category: str, why: str, remedy: str | None = None) -> VerdictReason:
    """Return the reason of a trial without figures, which no check looks at; `remedy` over that of its category."""
    known = FAILURE_CATEGORIES.get(category)
    return VerdictReason(
        code=category,
        severity="invalid",
        text=why or "the trial ended as failed",
        remedy=remedy or (known.remedy if known else "See the trial's log, then retry."),
    )


@check(
    "invalid",
    "See errors.by_category; a duration_s shorter than one reply has the same effect, and so have as many "
    "warmup_items as items.",
)
def no_replies(view: CheckedTrial) -> str | None:
    """No good reply arrived inside the window."""
    if view.counts.ok:
        return None
    return f"none of the {counted(view.counts.due, 'request')} of the window has a good reply"


@check("suspect", "Raise duration_s, or give a finite load more items.", "requests", "finite")
def too_few_samples(view: CheckedTrial) -> str | None:
    """Even a median needs ten replies on each side."""
    return f"only {view.counts.ok} good replies in the window" if 0 < view.counts.ok < 20 else None


@check("invalid", "The driver or the machine's clock is faulty; report it with the samples.")
def timestamp_order(view: CheckedTrial) -> str | None:
    """A reply cannot end before its request was sent."""
    if not view.counts.disordered:
        return None
    return f"times out of order in {counted(view.counts.disordered, 'sample')}: the end comes before the beginning"


@check(("invalid", "suspect"), "See errors.by_category; lower the load or raise timeout_s.")
def error_rate(view: CheckedTrial) -> tuple[Severity, str] | None:
    """Failures have durations of their own: the good replies no longer represent the load."""
    rate, most = view.metrics.errors.rate, view.load.most_errors()
    if rate is None or rate <= 0.01 or not view.counts.ok:
        return None
    severity: Severity = "invalid" if rate > 0.5 else "suspect"
    return severity, f"{in_percent(rate, 1)} of the requests failed" + (f", most with {most}" if most else "")


@check("invalid", "See the trial's log. `bench retry` measures the trial again.")
def incomplete_work(view: CheckedTrial) -> str | None:
    """Figures of a part of the items cannot be compared with figures of all."""
    items = view.load.items or 0
    left = items - view.counts.rows
    return f"{left} of {counted(items, 'item')} were not done" if left > 0 else None


@check("note", "Where speed is compared, measure the trial again: `bench retry TRIAL`.")
def resumed(view: CheckedTrial) -> str | None:
    """Caches and clocks differ between sessions, and the last second before a kill was done twice."""
    sessions = len(view.load.sessions)
    if sessions <= 1:
        return None
    return (
        f"the load was broken off and went on: it ran in {sessions} sessions, whose times stand in "
        "load.json; throughput counts only time in which one ran"
    )


@check(("suspect", "note"), "All of it is in the figures. See the server's log and the telemetry of that time.")
def outage(view: CheckedTrial) -> tuple[Severity, str] | None:
    """The service was down for a part of the time; one trial cannot tell how often that happens."""
    outages = view.metrics.steady_state.outages if view.metrics.steady_state else ()
    if not outages or not view.counts.ok:
        return None
    more = len(outages) - 1
    severity: Severity = "suspect" if more < MANY_OUTAGES else "note"
    return severity, outages[0].text + (f"; {more} more outage{'s' if more > 1 else ''}" if more else "")


@check("note", "Where trials are compared, give all of them the same warmup_s as a number.")
def warmup_cut(view: CheckedTrial) -> str | None:
    """The part that was cut is in no other metric."""
    start_up = view.metrics.warmup_auto
    if start_up is None or start_up.part is None:
        return None
    return f"warmup_s: auto cut off the first {start_up.cut_s:.3g} s, {start_up.reason}: {_of_part(start_up.part)}"


def no_steady_state(view: CheckedTrial) -> VerdictReason | None:
    """The mean of a changing quantity depends on the observed interval."""
    state, changing = view.metrics.steady_state, has_rate(view.trial.load.pattern, "changing")
    if view.kind != "requests" or state is None or state.steady or not view.counts.ok:
        return None
    if state.outages and not changing:
        return None
    after = "" if state.part is None else f"; after it {_of_part(state.part)}"
    warmup_s = state.advised_warmup_s
    return VerdictReason(
        code="no_steady_state",
        severity="note" if state.steady is None else "suspect",
        text=f"{state.reason or 'no steady part was found'}{after}",
        remedy="A load that changes is read from series.csv."
        if changing
        else f"Raise warmup_s to {warmup_s:.3g}."
        if warmup_s is not None
        else "Raise duration_s, and see series.csv for when it changed.",
    )


@check("suspect", "Look at temperature and power limit; measure again when cool.")
def gpu_throttled(view: CheckedTrial) -> str | None:
    """A busy GPU below its own clock is too hot or short of power."""
    busy_gpus = []
    for path, clock_hz in view.metrics.telemetry.items():
        source, _, name = path.rpartition(".")
        used, highest_hz = view.metrics.telemetry.get(f"{source}.util_ratio"), max(view.gpu_hz or 0.0, clock_hz.max)
        if name == "clock_hz" and is_gpu(source) and used is not None and used.mean >= BUSY_GPU and highest_hz > 0:
            busy_gpus.append((clock_hz.mean / highest_hz, used.mean))
    clock, busy = min(busy_gpus, default=(1.0, 0.0))
    if clock >= 0.9:
        return None
    return f"the mean clock of a GPU that was {in_percent(busy)} busy was {in_percent(clock)} of its highest"


@check(("note", "suspect"), "Use direct I/O or a data set larger than memory, if the device is the question.")
def served_from_page_cache(view: CheckedTrial) -> tuple[Severity, str] | None:
    """Reads from memory are not reads from a disk."""
    ratio = view.metrics.quality.get("page_cache_ratio")
    if ratio is None or ratio < 0.2:
        return None
    severity: Severity = "note" if view.trial.settings.get("direct") == "cached" else "suspect"
    return severity, f"{in_percent(ratio)} of the data lay in the page cache after the load"


@check(
    ("note", "suspect"),
    "Set 'direct: cached' if the page cache is meant; else use another 'directory' or 'block_bytes'.",
)
def o_direct_refused(view: CheckedTrial) -> tuple[Severity, str] | None:
    """Reads are dropped from the page cache block by block; writes, and reads of another tool, go through it."""
    settings = view.trial.settings
    if settings.get("direct") != "auto" or view.metrics.quality.get("o_direct") != 0:
        return None
    cold = harness_of(settings) is None and (settings.get("operation") == "read" or settings.get("fsync") == "each")
    return "note" if cold else "suspect", "the file system refused O_DIRECT with blocks of this size"


@check("note", "Take its quality alone, or measure it with 'kernel: gathered'.")
def speed_not_of_method(view: CheckedTrial) -> str | None:
    """A mask over dense attention computes every key: its times are those of dense attention and of the mask."""
    if not view.metrics.quality.get("speed_not_of_method"):
        return None
    return "attention was masked: every key was computed, so the times are not those of the method"


@check("suspect", "Do not compare its speed with results of a better quality; change the search settings.")
def quality_floor(view: CheckedTrial) -> str | None:
    """Speeds are comparable only at equal quality."""
    missed = _missed(view.metrics, quality=True)
    return f"quality objective missed: {'; '.join(missed)}" if missed else None


@check("suspect", "Measure trials there and fit again, or simulate inside of the fit's ranges.")
def extrapolated(view: CheckedTrial) -> str | None:
    """A fit knows nothing of loads and lengths that none of its trials had."""
    outside = _told(view.load, "extrapolated_")
    return f"outside of the trials of the fit: {', '.join(outside)}" if outside else None


@check("suspect", "Remove the cause, measure those trials again, and fit again.")
def suspect_sources(view: CheckedTrial) -> str | None:
    """A fit repeats what was wrong with its trials."""
    codes = _told(view.load, "suspect_sources_")
    return f"the model was fitted to SUSPECT trials: {', '.join(codes)}" if codes else None


@check("suspect", "Compare with the other repetitions, or measure the trial again: bench retry TRIAL.")
def server_restarted(view: CheckedTrial) -> str | None:
    """A server with cold caches differs from that of the other repetitions."""
    return f"{view.load.server_restarted} and was started anew" if view.load.server_restarted is not None else None


@check("note", "Lower the load, or change the deployment.")
def slo_missed(view: CheckedTrial) -> str | None:
    """This is a result, not a fault of the measurement."""
    missed = _missed(view.metrics, quality=False)
    return f"objective missed: {'; '.join(missed)}" if missed else None


def percentile_lower_bound(view: CheckedTrial) -> VerdictReason | None:
    """A request without an answer took at least as long as was waited, so percentiles are known as ranges."""
    counts = view.counts
    ranges = [
        f"{group.removesuffix('_ms').replace('_', ' ')} {name} {_in_time(limits)}"
        for group in BOUNDED
        if (times := getattr(view.metrics, group)) and times.censored
        for name in QUANTILES
        if times.is_range(name) and (limits := times.range_of(name))
    ]
    if not ranges:
        return None
    causes = [
        (f"{count:,} of {counted(counts.due, 'request')} {what}", remedy)
        for count, what, remedy in (
            (counts.timeouts, "timed out", "Raise timeout_s above the times that matter."),
            (counts.cancelled, "had no answer when the load ended", "A longer duration_s makes their share smaller."),
            (counts.unsent, "were never sent", "Offer less load, or give the client more connections or workers."),
        )
        if count
    ]
    return VerdictReason(
        code="percentile_lower_bound",
        severity="note",
        text=f"{', '.join(text for text, _ in causes)}, so percentiles are ranges: {'; '.join(ranges)}. Means "
        "are of answered requests only",
        remedy=" ".join(remedy for _, remedy in causes),
    )


@check(
    "note",
    "Raise duration_s, or give a finite load more items; the summary pools the repetitions.",
    "requests",
    "finite",
)
def percentile_withheld(view: CheckedTrial) -> str | None:
    """A percentile with fewer than ten samples beyond it depends on single samples."""
    samples = view.counts.response.count
    needed = {name: samples_needed(quantile) for name, quantile in QUANTILES.items()}
    needs = ", ".join(f"{name} needs {count:,}" for name, count in needed.items() if samples < count)
    if not needs or not view.counts.ok:
        return None
    return f"{counted(samples, 'sample')} give no number: {needs}"


def _of_part(part: PartFigures) -> str:
    times = part.latency_ms
    shown = [f"{name} {_in_time(limits)}" for name in ("p50", "p99") if (limits := times.range_of(name))]
    rate = f"{part.requests_per_s:.4g}/s"
    return ", ".join([counted(part.requests, "request"), f"{part.failed} failed", rate, *shown])


def _in_time(found_ms: Range) -> str:
    unit, factor = unit_of_times(found_ms.low)
    return f"{found_ms.times(factor).text} {unit}"


def _missed(metrics: TrialMetrics, *, quality: bool) -> list[str]:
    """Return the missed objectives on a quality, or all others, each with the trial's value."""
    return [
        f"{slo.metric} {slo.op} {slo.limit:g}" + (f", is {slo.known.text}" if slo.known else "")
        for slo in metrics.slos
        if slo.met is False and (slo.metric in metrics.quality) is quality
    ]


def _told(load: LoadRecord, prefix: str) -> list[str]:
    """Return the figures of a simulation that begin with `prefix`, each as the rest of its name and its value."""
    return [
        f"{name.removeprefix(prefix)} {value:.4g}"
        for name, value in load.quality.items()
        if load.virtual_clock and name.startswith(prefix) and value is not None
    ]
