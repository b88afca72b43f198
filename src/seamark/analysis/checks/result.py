"""Checks of the result: whether it exists, is steady, and can be compared."""

from seamark.analysis.checks.inputs import BUSY_GPU, CheckInputs, of_loads
from seamark.model.failure_categories import FAILURE_CATEGORIES
from seamark.model.plurals import counted, in_percent
from seamark.model.results.trial_metrics import VerdictReason

MANY_OUTAGES = 5
"""More than this are typical of the service, like pauses of a garbage collector, and not an accident of one trial."""


LOW_TPOT_NOTE, LOW_TPOT = 0.01, 0.05
"""Ratios by which a time per token may be too low, without any reason and without doubt about it."""


SHORT_REPLIES = 0.9
"""Ratio of the units asked for below which replies are another load than the one that was asked for."""


def trial_failed(inputs: CheckInputs) -> VerdictReason | None:
    """There are no metrics at all."""
    if inputs.status == "ok":
        return None
    category = inputs.category or "failed"
    known = FAILURE_CATEGORIES.get(category)
    text = inputs.failure or f"the trial ended as {inputs.status}"
    return VerdictReason(
        code=category,
        severity="invalid",
        text=text,
        remedy=inputs.remedy or (known.remedy if known else "See the trial's log, then retry."),
    )


def no_replies(inputs: CheckInputs) -> VerdictReason | None:
    """No good reply arrived inside the window."""
    if inputs.status != "ok" or inputs.ok:
        return None
    return VerdictReason(
        code="no_replies",
        severity="invalid",
        text=f"none of the {counted(inputs.requests, 'request')} of the window has a good reply",
        remedy="See errors.by_category; a duration_s shorter than one reply has the same effect, and so have as many "
        "warmup_items as items.",
    )


@of_loads("requests", "finite")
def too_few_samples(inputs: CheckInputs) -> VerdictReason | None:
    """Even a median needs ten replies on each side."""
    if inputs.status != "ok" or not 0 < inputs.ok < 20:
        return None
    return VerdictReason(
        code="too_few_samples",
        severity="suspect",
        text=f"only {inputs.ok} good replies in the window",
        remedy="Raise duration_s, or give a finite load more items.",
    )


def timestamp_order(inputs: CheckInputs) -> VerdictReason | None:
    """A reply cannot end before its request was sent."""
    if not inputs.disordered:
        return None
    return VerdictReason(
        code="timestamp_order",
        severity="invalid",
        text=f"times out of order in {counted(inputs.disordered, 'sample')}: the end comes before the beginning",
        remedy="The driver or the machine's clock is faulty; report it with the samples.",
    )


def error_rate(inputs: CheckInputs) -> VerdictReason | None:
    """Failures have durations of their own: the good replies no longer represent the load."""
    if inputs.error_rate is None or inputs.error_rate <= 0.01 or not inputs.ok:
        return None
    most = inputs.most_errors and f", most with {inputs.most_errors}"
    return VerdictReason(
        code="error_rate",
        severity="invalid" if inputs.error_rate > 0.5 else "suspect",
        text=f"{in_percent(inputs.error_rate, 1)} of the requests failed{most or ''}",
        remedy="See errors.by_category; lower the load or raise timeout_s.",
    )


def incomplete_work(inputs: CheckInputs) -> VerdictReason | None:
    """Figures of a part of the items cannot be compared with figures of all."""
    if inputs.status != "ok" or not inputs.items_left:
        return None
    return VerdictReason(
        code="incomplete_work",
        severity="invalid",
        text=f"{inputs.items_left} of {counted(inputs.items, 'item')} were not done",
        remedy="See the trial's log. `bench retry` measures the trial again.",
    )


def resumed(inputs: CheckInputs) -> VerdictReason | None:
    """Caches and clocks differ between sessions, and the last second before a kill was done twice."""
    if inputs.status != "ok" or inputs.sessions <= 1:
        return None
    return VerdictReason(
        code="resumed",
        severity="note",
        text=f"the load was broken off and went on: it ran in {inputs.sessions} sessions, whose times stand in "
        "load.json; throughput counts only time in which one ran",
        remedy="Where speed is compared, measure the trial again: `bench retry TRIAL`.",
    )


def outage(inputs: CheckInputs) -> VerdictReason | None:
    """The service was down for a part of the time; one trial cannot tell how often that happens."""
    if inputs.status != "ok" or not inputs.outages or not inputs.ok:
        return None
    more = len(inputs.outages) - 1
    return VerdictReason(
        code="outage",
        severity="suspect" if more < MANY_OUTAGES else "note",
        text=inputs.outages[0] + (f"; {more} more outage{'s' if more > 1 else ''}" if more else ""),
        remedy="All of it is in the figures. See the server's log and the telemetry of that time.",
    )


def warmup_cut(inputs: CheckInputs) -> VerdictReason | None:
    """The part that was cut is in no other metric."""
    if not inputs.cut:
        return None
    return VerdictReason(
        code="warmup_cut",
        severity="note",
        text=inputs.cut,
        remedy="Where trials are compared, give all of them the same warmup_s as a number.",
    )


@of_loads("requests")
def no_steady_state(inputs: CheckInputs) -> VerdictReason | None:
    """The mean of a changing quantity depends on the observed interval."""
    if inputs.status != "ok" or inputs.steady or not inputs.ok or (inputs.outages and not inputs.changing):
        return None
    warmup_s = inputs.advised_warmup_s
    return VerdictReason(
        code="no_steady_state",
        severity="note" if inputs.steady is None else "suspect",
        text=inputs.steady_reason or "no steady part was found",
        remedy="A load that changes is read from series.csv."
        if inputs.changing
        else f"Raise warmup_s to {warmup_s:.3g}."
        if warmup_s is not None
        else "Raise duration_s, and see series.csv for when it changed.",
    )


def gpu_throttled(inputs: CheckInputs) -> VerdictReason | None:
    """A busy GPU below its own clock is too hot or short of power."""
    if inputs.gpu_clock_ratio is None or inputs.gpu_util_ratio is None:
        return None
    if inputs.gpu_util_ratio < BUSY_GPU or inputs.gpu_clock_ratio >= 0.9:
        return None
    busy, clock = inputs.gpu_util_ratio, inputs.gpu_clock_ratio
    return VerdictReason(
        code="gpu_throttled",
        severity="suspect",
        text=f"the mean clock of a GPU that was {in_percent(busy)} busy was {in_percent(clock)} of its highest",
        remedy="Look at temperature and power limit; measure again when cool.",
    )


def served_from_page_cache(inputs: CheckInputs) -> VerdictReason | None:
    """Reads from memory are not reads from a disk."""
    if inputs.page_cache_ratio is None or inputs.page_cache_ratio < 0.2:
        return None
    return VerdictReason(
        code="served_from_page_cache",
        severity="note" if inputs.wants_cache else "suspect",
        text=f"{in_percent(inputs.page_cache_ratio)} of the data lay in the page cache after the load",
        remedy="Use direct I/O or a data set larger than memory, if the device is the question.",
    )


def speed_not_of_method(inputs: CheckInputs) -> VerdictReason | None:
    """A mask over dense attention computes every key: its times are those of dense attention and of the mask."""
    if not inputs.speed_not_of_method:
        return None
    return VerdictReason(
        code="speed_not_of_method",
        severity="note",
        text="attention was masked: every key was computed, so the times are not those of the method",
        remedy="Take its quality alone, or measure it with 'kernel: gathered'.",
    )


def quality_floor(inputs: CheckInputs) -> VerdictReason | None:
    """Speeds are comparable only at equal quality."""
    if not inputs.quality_missed:
        return None
    return VerdictReason(
        code="quality_floor",
        severity="suspect",
        text=f"quality objective missed: {'; '.join(inputs.quality_missed)}",
        remedy="Do not compare its speed with results of a better quality; change the search settings.",
    )


def wrong_answers(inputs: CheckInputs) -> VerdictReason | None:
    """The speed of wrong answers is meaningless."""
    if not inputs.wrong_answers:
        return None
    return VerdictReason(
        code="wrong_answers",
        severity="invalid",
        text=f"answers were wrong: {'; '.join(inputs.wrong_answers)}",
        remedy="Do not use this number. Look for the cause in the server's log and in the driver.",
    )


def answers_not_scored(inputs: CheckInputs) -> VerdictReason | None:
    """Speed without the quality that belongs to it."""
    if inputs.not_scored is None:
        return None
    return VerdictReason(
        code="answers_not_scored",
        severity="suspect",
        text=f"the replies could not be scored: {inputs.not_scored.splitlines()[0]}",
        remedy="Correct the function `judge` of the recipe, then `bench submit`: nothing is measured again.",
    )


def answers_incomplete(inputs: CheckInputs) -> VerdictReason | None:
    """Scores of a part of the items are those of another, mostly easier, task."""
    if not inputs.unanswered:
        return None
    stated = ", ".join(f"{count} {code}" for code, count in inputs.stated_errors.items())
    return VerdictReason(
        code="answers_incomplete",
        severity="suspect",
        text=f"invalid for quality: {inputs.unanswered} of {counted(inputs.items, 'item')} have no answer"
        f"{f' ({stated})' if stated else ''}, so its scores are withheld and in no average",
        remedy="See the errors of the load. `bench retry` measures the trial again.",
    )


def extrapolated(inputs: CheckInputs) -> VerdictReason | None:
    """A fit knows nothing of loads and lengths that none of its trials had."""
    if inputs.status != "ok" or not inputs.extrapolated:
        return None
    return VerdictReason(
        code="extrapolated",
        severity="suspect",
        text=f"outside of the trials of the fit: {', '.join(inputs.extrapolated)}",
        remedy="Measure trials there and fit again, or simulate inside of the fit's ranges.",
    )


def suspect_sources(inputs: CheckInputs) -> VerdictReason | None:
    """A fit repeats what was wrong with its trials."""
    if inputs.status != "ok" or not inputs.suspect_sources:
        return None
    return VerdictReason(
        code="suspect_sources",
        severity="suspect",
        text=f"the model was fitted to SUSPECT trials: {', '.join(inputs.suspect_sources)}",
        remedy="Remove the cause, measure those trials again, and fit again.",
    )


def server_restarted(inputs: CheckInputs) -> VerdictReason | None:
    """A server with cold caches differs from that of the other repetitions."""
    if inputs.server_restarted is None:
        return None
    return VerdictReason(
        code="server_restarted",
        severity="suspect",
        text=f"{inputs.server_restarted} and was started anew",
        remedy="Compare with the other repetitions, or measure the trial again: bench retry TRIAL.",
    )


def slo_missed(inputs: CheckInputs) -> VerdictReason | None:
    """This is a result, not a fault of the measurement."""
    if not inputs.slos_missed:
        return None
    return VerdictReason(
        code="slo_missed",
        severity="note",
        text=f"objective missed: {'; '.join(inputs.slos_missed)}",
        remedy="Lower the load, or change the deployment.",
    )


def replies_short(inputs: CheckInputs) -> VerdictReason | None:
    """Good replies with less than 90 % of the tokens asked for are a lighter load, unless `ignore_eos` is false."""
    replies = inputs.replies - inputs.uncounted
    if replies <= 0 or inputs.counted_units >= SHORT_REPLIES * inputs.asked_units:
        return None
    mean, asked = inputs.counted_units / replies, inputs.asked_units / replies
    return VerdictReason(
        code="replies_short",
        severity="suspect",
        text=f"good replies have {mean:.4g} {inputs.unit}s (mean), {in_percent(mean / asked)} of the {asked:.4g} "
        "asked for",
        remedy="Ask for what the server sends (gen_tokens), or set ignore_eos to false where replies may end by "
        "themselves.",
    )


def tokens_not_counted(inputs: CheckInputs) -> VerdictReason | None:
    """A chunk is not a token: servers join several in one, and send chunks without any."""
    if not inputs.uncounted:
        return None
    seen = (
        f"of {inputs.uncounted:,} of {inputs.replies:,} good replies the server does not say how many {inputs.unit}s"
    )
    kept = f"they count with one {inputs.unit} a chunk in throughput, and not at all in times per {inputs.unit}"
    withheld = f"throughput is in chunks, and times per {inputs.unit} are withheld"
    return VerdictReason(
        code="tokens_not_counted",
        severity="note" if inputs.counts_units else "suspect",
        text=f"{seen} they have: {kept if inputs.counts_units else withheld}",
        remedy="Have the server send its usage (stream_options.include_usage), or set tokenizer to the model's.",
    )


def first_chunk_not_counted(inputs: CheckInputs) -> VerdictReason | None:
    """Time per token excludes the first chunk, which counts as one token if its tokens are unknown."""
    if inputs.tpot_low_ratio < LOW_TPOT_NOTE or inputs.first_chunk_tokens is None or not inputs.counts_units:
        return None
    return VerdictReason(
        code="first_chunk_not_counted",
        severity="suspect" if inputs.tpot_low_ratio >= LOW_TPOT else "note",
        text=f"chunks have {inputs.first_chunk_tokens:.3g} tokens (mean), and the server does not say how many the "
        f"first has: it counts as one, so TPOT is about {in_percent(inputs.tpot_low_ratio)} too low",
        remedy="Have the server list its tokens or count them in each chunk (extra_body: stream_options."
        "continuous_usage_stats), or set tokenizer to the model's.",
    )


def percentile_lower_bound(inputs: CheckInputs) -> VerdictReason | None:
    """A request without an answer took at least as long as was waited, so percentiles are known as ranges."""
    if not inputs.ranges:
        return None
    causes = [
        (f"{count:,} of {counted(inputs.requests, 'request')} {what}", remedy)
        for count, what, remedy in (
            (inputs.timeouts, "timed out", "Raise timeout_s above the times that matter."),
            (inputs.cancelled, "had no answer when the load ended", "A longer duration_s makes their share smaller."),
            (inputs.unsent, "were never sent", "Offer less load, or give the client more connections or workers."),
        )
        if count
    ]
    return VerdictReason(
        code="percentile_lower_bound",
        severity="note",
        text=f"{', '.join(text for text, _ in causes)}, so percentiles are ranges: {'; '.join(inputs.ranges)}. Means "
        "are of answered requests only",
        remedy=" ".join(remedy for _, remedy in causes),
    )


@of_loads("requests", "finite")
def percentile_withheld(inputs: CheckInputs) -> VerdictReason | None:
    """A percentile with fewer than ten samples beyond it depends on single samples."""
    if not inputs.withheld or not inputs.ok:
        return None
    needs = ", ".join(f"{name} needs {count:,}" for name, count in inputs.withheld.items())
    return VerdictReason(
        code="percentile_withheld",
        severity="note",
        text=f"{counted(inputs.samples, 'sample')} give no number: {needs}",
        remedy="Raise duration_s, or give a finite load more items; the summary pools the repetitions.",
    )
