"""Checks of the replies: whether they are right and scored, and how many units they have."""

from seamark.analysis.checks.checked_trial import CheckedTrial, check
from seamark.model.plurals import counted, in_percent
from seamark.model.results.trial_metrics import Severity

LOW_TPOT_NOTE, LOW_TPOT = 0.01, 0.05
"""Ratios by which a time per token may be too low, without any reason and without doubt about it."""
SHORT_REPLIES = 0.9
"""Ratio of the units asked for below which replies are another load than the one that was asked for."""


@check("invalid", "Do not use this number. Look for the cause in the server's log and in the driver.")
def wrong_answers(view: CheckedTrial) -> str | None:
    """The speed of wrong answers is meaningless."""
    wrong = [
        f"{name} is {value:g}"
        for name, value in view.metrics.quality.items()
        if (name == "right_ratio" or name.endswith("_consistent")) and value is not None and value < 1
    ]
    return f"answers were wrong: {'; '.join(wrong)}" if wrong else None


@check("suspect", "Correct the function `judge` of the recipe, then `bench submit`: nothing is measured again.")
def answers_not_scored(view: CheckedTrial) -> str | None:
    """Speed without the quality that belongs to it."""
    answers = view.answers
    if answers is None or answers.status != "failed" or answers.reason is None:
        return None
    return f"the replies could not be scored: {answers.reason.splitlines()[0]}"


@check("suspect", "See the errors of the load. `bench retry` measures the trial again.")
def answers_incomplete(view: CheckedTrial) -> str | None:
    """Scores of a part of the items are those of another, mostly easier, task."""
    unanswered = 0 if view.answers is None else view.answers.unanswered(view.load.items)
    if view.answers is None or not unanswered:
        return None
    stated = ", ".join(f"{count} {code}" for code, count in view.answers.errors.items())
    return (
        f"invalid for quality: {unanswered} of {counted(view.load.items or 0, 'item')} have no answer"
        f"{f' ({stated})' if stated else ''}, so its scores are withheld and in no average"
    )


@check(
    "suspect",
    "Ask for what the server sends (gen_tokens), or set ignore_eos to false where replies may end by themselves.",
)
def replies_short(view: CheckedTrial) -> str | None:
    """Good replies with less than 90 % of the tokens asked for are a lighter load, unless `ignore_eos` is false."""
    counts, workers = view.counts, view.load.workers
    replies = counts.whole_good - counts.uncounted
    asked_units = sum(worker.asked_units or 0 for worker in workers)
    not_all = len(view.load.sessions) > 1 or any(not worker.ok or worker.asked_units is None for worker in workers)
    if replies <= 0 or not_all or counts.counted_units >= SHORT_REPLIES * asked_units:
        return None
    mean, asked = counts.counted_units / replies, asked_units / replies
    return (
        f"good replies have {mean:.4g} {view.load.unit or 'reply'}s (mean), {in_percent(mean / asked)} of the "
        f"{asked:.4g} asked for"
    )


@check(
    ("note", "suspect"),
    "Have the server send its usage (stream_options.include_usage), or set tokenizer to the model's.",
)
def tokens_not_counted(view: CheckedTrial) -> tuple[Severity, str] | None:
    """A chunk is not a token: servers join several in one, and send chunks without any."""
    counts, unit = view.counts, view.load.unit or "reply"
    if not counts.uncounted:
        return None
    seen = f"of {counts.uncounted:,} of {counts.whole_good:,} good replies the server does not say how many {unit}s"
    kept = f"they count with one {unit} a chunk in throughput, and not at all in times per {unit}"
    withheld = f"throughput is in chunks, and times per {unit} are withheld"
    severity: Severity = "note" if counts.counts_units else "suspect"
    return severity, f"{seen} they have: {kept if counts.counts_units else withheld}"


@check(
    ("suspect", "note"),
    "Have the server list its tokens or count them in each chunk (extra_body: stream_options."
    "continuous_usage_stats), or set tokenizer to the model's.",
)
def first_chunk_not_counted(view: CheckedTrial) -> tuple[Severity, str] | None:
    """Time per token excludes the first chunk, which counts as one token if its tokens are unknown."""
    first = view.counts.first_chunk
    if first is None or first.too_low_ratio < LOW_TPOT_NOTE or not view.counts.counts_units:
        return None
    severity: Severity = "suspect" if first.too_low_ratio >= LOW_TPOT else "note"
    return severity, (
        f"chunks have {first.tokens_in_chunk:.3g} tokens (mean), and the server does not say how many the "
        f"first has: it counts as one, so TPOT is about {in_percent(first.too_low_ratio)} too low"
    )
