"""Comparisons as text: a line each for a terminal, a table for a merge request, and the sentence that answers a
question."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log

from seamark.model.plurals import counted, in_percent
from seamark.model.results.comparison import (
    EXACT,
    CarryOver,
    Compared,
    ComparedVerdict,
    Comparisons,
    Difference,
    Effect,
)
from seamark.report.compared_answers import answers_basis, items_text, score_text
from seamark.report.fronts import front_lines
from seamark.report.numbers import ABSENT, SATURATED, levels_text, number, side_name, unit_words, with_unit

NO_VERDICT = "no verdict"
SERVICE = "service"
RANK_SUM = (
    "Rank-sum tests are for sides that spread alike: where one spreads three times as much, intervals cover 93 to"
    " 96 %. Many equal values make p larger than it need be."
)
NO_TURNS = (
    "The two results were not measured in turns, so there is no p. Better or worse: an interval beyond the margin,"
    " widened by t(n - 1, 97.5 %) x sqrt(2) x SD of the logarithms of n earlier results, or by 1.96 x sqrt(2) x the"
    " SD that is assumed (`--between`)."
)
CONFIDENCE = 0.95
MOST_EFFECTS = 3
"""Comparisons without a difference that an answer names."""
ORDER: Sequence[ComparedVerdict] = ("worse", "better", "equivalent", "inconclusive")


def p_text(compared: Compared, family: int) -> str:
    """Return `p = 0.016 (Holm)`, or `exact`; without a p nothing."""
    p = p_number(compared)
    if compared.exact:
        return p
    return f"p = {p}{' (Holm)' if family > 1 else ''}" if p else ""


def p_number(compared: Compared) -> str:
    """Return an adjusted p as `0.016`, and `exact` in its place where nothing is drawn; without one nothing."""
    p = compared.p_adjusted
    if compared.exact:
        return EXACT
    if p is None:
        return ""
    return f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"


def contrast_text(compared: Compared, comparisons: Comparisons) -> str:
    """Return what is compared with what: `shared_buffers_mb 256 against 16 (concurrency 4)`."""
    if compared.factor is None:
        text = f"{comparisons.new} against {comparisons.base}"
    else:
        base, new = (side_name(side, compared.factor) for side in (compared.base, compared.new))
        text = f"{compared.factor} {new} against {base}"
    fixed = levels_text(compared.fixed)
    several = len({comparison.workload for comparison in comparisons.comparisons}) > 1
    return (f"{compared.workload}: " if several else "") + text + (f" ({fixed})" if fixed else "")


def effect_text(compared: Compared) -> str:
    """Return `1.07 x (1.03 to 1.12)`, or the shift of values that have no ratio; `-` without any."""
    effect, shown = _effect_of(compared)
    if effect is None:
        return "-"
    text = f"{shown(effect.value)} x" if compared.ratio is not None else shown(effect.value)
    if effect.low is None or effect.high is None:
        return text
    confidence = compared.confidence or 0.0
    at = f" at {in_percent(confidence)}" if confidence < CONFIDENCE else ""
    within = " within each result" if compared.unit_of_inference == "result" else ""
    return f"{text} ({shown(effect.low)} to {shown(effect.high)}{at}{within})"


def _effect_of(compared: Compared) -> tuple[Effect | None, Callable[[float], str]]:
    """Return the ratio, or the shift of values that have none, and how its numbers are written."""
    if compared.ratio is not None:
        return compared.ratio, partial(_times, compared.ratio)
    return compared.shift, _signed if compared.answers is None else partial(score_text, signed=True)


def _times(effect: Effect, value: float) -> str:
    if value >= 9.995:
        return number(value)
    close = effect.low is None or effect.high is None or effect.high - effect.low < 0.04
    return f"{value:.3f}" if close and 0.9 < value < 1.1 else number(value) if value < 0.1 else f"{value:.2f}"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def side_texts(compared: Compared) -> tuple[str, str]:
    """Return the medians of the values that are tested, with their unit; of answers the mean scores."""
    if compared.answers is not None:
        return score_text(compared.answers.base_mean), score_text(compared.answers.new_mean)
    base, new = (with_unit(side.median, unit_words(compared.unit)) for side in (compared.base, compared.new))
    return base, new


def origin_text(compared: Compared) -> str:
    """Return whether both sides were measured or simulated, or which was what."""
    base, new = compared.base.origin, compared.new.origin
    return base if base == new else f"{new} against {base}"


def comparison_lines(comparisons: Comparisons) -> list[str]:
    """Return one line for each comparison, then what they rest on, reasons and differences."""
    footnotes: dict[str, int] = {}
    lines = _other_services(comparisons)
    names_origins = len({origin_text(compared) for compared in comparisons.comparisons}) > 1
    for compared in comparisons.comparisons:
        parts = (
            f"{contrast_text(compared, comparisons)}: {compared.metric} {effect_text(compared)}",
            items_text(compared.answers) if compared.answers is not None else "",
            origin_text(compared) if names_origins else "",
            p_text(compared, comparisons.family),
            between_text(compared),
            verdict_text(compared) + _mark(compared, footnotes),
        )
        lines.append(", ".join(filter(None, parts)))
    lines += ["", *front_lines(comparisons.fronts)] if comparisons.fronts else []
    lines += ["", *_notes(comparisons, footnotes)]
    if comparisons.base is not None and not comparisons.environment:
        lines.append("Environment: no recorded difference of machine or software.")
    return lines


def _other_services(comparisons: Comparisons) -> list[str]:
    others = (difference for difference in comparisons.settings if difference.fact == SERVICE)
    return [f"Other service: {difference_text(difference)}" for difference in others]


def _notes(comparisons: Comparisons, footnotes: Mapping[str, int]) -> list[str]:
    """Return what comparisons rest on, their reasons, and what else differs between two results."""
    settings = [difference for difference in comparisons.settings if difference.fact != SERVICE]
    return [
        *basis(comparisons),
        *(f"[{mark}] {text}" for text, mark in footnotes.items()),
        *(f"Settings that differ: {difference_text(difference)}" for difference in settings),
        *(f"Environment: {difference_text(difference)}" for difference in comparisons.environment),
    ]


def between_text(compared: Compared) -> str:
    """Return what a ratio must exceed between two results; nothing for levels of one scenario."""
    between = compared.between
    if between is None or between.limit is None:
        return ""
    of = "assumed" if between.results is None else f"of {between.results} results"
    ratio = compared.ratio is not None and between.limit > 1
    limit = f"{between.limit:.3g} x or its inverse" if ratio else f"{between.limit:.3g}"
    return f"margin widened to {limit} (SD between results {100 * between.sd:.2g} %, {of})"


def verdict_text(compared: Compared) -> str:
    """Return the verdict, or that there is none: outside of the family, or with too few values for any."""
    if compared.verdict == "inconclusive" and compared.answers is not None and compared.answers.not_worse:
        return "not worse, else inconclusive"
    return compared.verdict or NO_VERDICT


def reason_text(compared: Compared) -> str:
    """Return reason and remedy, and what stands beside the verdict, as sentences; nothing where it needs none."""
    parts = (compared.reason, compared.remedy if compared.reason else None, compared.note)
    return " ".join(_sentence(text) for text in parts if text)


def _sentence(text: str) -> str:
    first = text.split(" ", 1)[0]
    begin = text[:1] if "_" in first or "." in first else text[:1].upper()  # a name stays as it is
    return f"{begin}{text[1:].rstrip('.')}." if text else ""


def _mark(compared: Compared, footnotes: dict[str, int]) -> str:
    text = reason_text(compared)
    return f" [{footnotes.setdefault(text, len(footnotes) + 1)}]" if text else ""


def basis(comparisons: Comparisons) -> list[str]:
    """Return the sentences that hold for all comparisons: units, intervals, family, trials left out."""
    shown, simulated = comparisons.comparisons, len(comparisons.simulated)
    tested = [compared for compared in shown if compared.confidence and compared.answers is None]
    lines = []
    if simulated:
        alike = simulated == len(shown) and all(compared.base.origin == compared.new.origin for compared in shown)
        which = "all trials" if alike else f"trials of {simulated} of {counted(len(shown), 'comparison')}"
        lines.append(f"Simulated, not measured: {which}.")
    if any(compared.exact for compared in shown):
        lines.append(
            "Exact: nothing is drawn, so that every repetition would give the same; the values are compared."
        )
    if tested:
        levels = sorted({compared.confidence or 0.0 for compared in tested})
        attained = " to ".join(dict.fromkeys(in_percent(level, 1) for level in (levels[0], levels[-1])))
        lines.append(
            f"Ratio of new to baseline (Hodges-Lehmann), with exact intervals: {attained} attained confidence."
            f" {_units(tested)}"
        )
    if any(compared.method == "rank-sum" for compared in tested):
        lines.append(RANK_SUM)
    if any(compared.between for compared in tested):
        lines.append(NO_TURNS)
    lines += answers_basis(comparisons)
    if comparisons.family:
        ratios = any(compared.p is not None and compared.answers is None for compared in shown)
        drawn = any(compared.answers is not None and compared.answers.p_error is not None for compared in shown)
        lines.append(
            f"p: {'two-sided' if drawn else 'exact and two-sided'},"
            f" {'adjusted by Holm for ' if comparisons.family > 1 else ''}a family of"
            f" {counted(comparisons.family, 'comparison')}."
            + (f" Equivalent: surely within {100 * comparisons.margin:g} % of each other." if ratios else "")
        )
    if not comparisons.declared:
        lines.append("Nobody declared these comparisons (`compare:`): no verdict where they are too few for one.")
    lines += [_carry_over_text(carried) for carried in comparisons.carry_over]
    lines += [_sentence(text) for text in (*_left_out(shown), *comparisons.notes)]
    return lines


def _carry_over_text(carried: CarryOver) -> str:
    """Return whether results depend on what ran before, or that it can't be told."""
    if carried.reason is not None:
        reason = carried.reason
        return f"{reason.verdict} {reason.code} ({carried.workload}): {_sentence(reason.text)} {reason.remedy}"
    among = f"{counted(len(carried.treatments), 'treatment')} of {carried.workload}"
    if carried.blocks < carried.blocks_needed:
        return (
            f"Carry-over among {among} can't be told from {counted(carried.blocks, 'block')} whose times are known:"
            f" it takes {carried.blocks_needed}."
        )
    if not carried.pairs:
        return (
            f"Carry-over among {among} can't be told: their order always was the same, or their times are not known."
        )
    return (
        f"Carry-over among {among}: none is shown. {carried.metric} after each of them was compared"
        f" ({counted(len(carried.pairs), 'pair')}, {counted(carried.blocks, 'block')})."
    )


def _units(tested: Sequence[Compared]) -> str:
    """Return what the tests count, with their numbers."""
    kinds: dict[str, set[int]] = {}
    for compared in tested:
        simulated = (
            compared.unit_of_inference == "trial" and compared.base.virtual_clock and compared.new.virtual_clock
        )
        kind = "simulation" if simulated else compared.unit_of_inference
        sides = (compared.base, compared.new)
        kinds.setdefault(kind, set()).update(side.trials if kind == "result" else side.units for side in sides)
    words = {
        "trial": "trials of the same start of a server",
        "start": "starts of a server, each by its median",
        "simulation": "simulated trials, one of each seed",
        "result": "results, one a side, with the interval of its trials",
    }
    ends = {kind: " to ".join(map(str, sorted({min(counts), max(counts)}))) for kind, counts in kinds.items()}
    return f"Units: {'; '.join(f'{words[kind]} ({counts} a side)' for kind, counts in ends.items())}."


def _left_out(shown: Sequence[Compared]) -> list[str]:
    """Return how many trials do not take part, and how many of those that do are doubtful."""
    sides = {side.treatment: side for compared in shown for side in (compared.base, compared.new)}
    lines = []
    if excluded := sum(side.excluded for side in sides.values()):
        lines.append(f"{counted(excluded, 'trial')} left out: INVALID or without figures")
    if suspect := sum(side.suspect for side in sides.values()):
        codes = sum((Counter(side.suspect_reasons) for side in sides.values()), Counter[str]())
        named = ": " + ", ".join(f"{code} {count}" for code, count in codes.most_common()) if codes else ""
        lines.append(
            f"{counted(suspect, 'trial')} of those compared {'is' if suspect == 1 else 'are'} SUSPECT{named}"
        )
    if unmatched := sum(side.unmatched for side in sides.values()):
        lines.append(f"{counted(unmatched, 'trial')} left out: the other side has none in their block and start")
    if apart := sum(side.apart for side in sides.values()):
        lines.append(f"{counted(apart, 'value')} left out: not measured in turns with the other side")
    return lines


def difference_text(difference: Difference) -> str:
    """Return `kernel 6.1 -> 6.8`."""
    one, other = (" | ".join(values) or ABSENT for values in (difference.base, difference.new))
    return f"{difference.fact} {one} -> {other}"


def comparison_markdown(comparisons: Comparisons) -> str:
    """Return the comparisons as a Markdown table, with what they rest on below it."""
    title = comparisons.scenario or f"{comparisons.new} against {comparisons.base}"
    origins = ("origin",) if comparisons.simulated else ()
    scored = any(compared.answers for compared in comparisons.comparisons)
    effect = "effect (interval)" if scored else "ratio (interval)"
    head = ("comparison", *origins, "metric", "baseline", "new", effect, "p", "verdict")
    lines = [
        f"**{cell(title)}**: {cell(counts_text(comparisons))}",
        "",
        *(f"{cell(text)}\n" for text in _other_services(comparisons)),
        _row(head),
        _row(["---"] * len(head)),
    ]
    footnotes: dict[str, int] = {}
    for compared in comparisons.comparisons:
        verdict = f"**{compared.verdict}**" if compared.verdict in ("better", "worse") else verdict_text(compared)
        words = (
            contrast_text(compared, comparisons),
            *((origin_text(compared),) if origins else ()),
            compared.metric,
            *side_texts(compared),
            effect_text(compared) + (f"; {items_text(compared.answers)}" if compared.answers is not None else ""),
            between_text(compared) or p_number(compared) or "-",
        )
        lines.append(_row([*map(cell, words), verdict + _mark(compared, footnotes)]))
    lines += ["", *(cell(text) for text in front_lines(comparisons.fronts))] if comparisons.fronts else []
    lines += ["", *(f"- {cell(text)}" for text in _notes(comparisons, footnotes))]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Return text escaped for a Markdown table."""
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split())


def counts_text(comparisons: Comparisons) -> str:
    """Return how many comparisons have which verdict: `1 better, 2 inconclusive`."""
    counts = Counter(compared.verdict for compared in comparisons.judged)
    parts = [f"{counts[verdict]} {verdict}" for verdict in ORDER if counts[verdict]]
    return ", ".join(parts) or "nothing was compared"


def answer(comparisons: Comparisons | None) -> str | None:
    """Return the sentence that answers a scenario's question by the comparisons of its family; None without any.

    Of several comparisons the one with the smallest p is in full, of exact ones the one with the largest difference;
    after it the counts of the verdicts.
    """
    judged = comparisons.judged if comparisons is not None else ()
    if comparisons is None or not judged:
        return None
    decided = [compared for compared in judged if compared.verdict in ("better", "worse")]
    first = min(decided or judged, key=_rank)
    if len(judged) == 1:
        return _full(first, comparisons)
    of = f"Of {counted(len(judged), 'comparison')}: {counts_text(comparisons)}."
    if decided:
        return f"{_full(first, comparisons)} {of}"
    verdicts = {compared.verdict for compared in judged}
    if verdicts == {"equivalent"}:
        margins = [f"{100 * comparisons.margin:g} %"] if any(compared.answers is None for compared in judged) else []
        margins += [f"{comparisons.quality_margin:g}"] if any(compared.answers for compared in judged) else []
        return f"All {len(judged)} comparisons show levels within {' or '.join(margins)} of each other."
    inconclusive = [compared for compared in judged if compared.verdict == "inconclusive"]
    effects = [
        f"{contrast_text(compared, comparisons)} {effect_text(compared)} {compared.metric}"
        for compared in inconclusive
    ]
    more = f"; and {len(effects) - MOST_EFFECTS} more" if len(effects) > MOST_EFFECTS else ""
    common, count = Counter(reason_text(compared) for compared in inconclusive).most_common(1)[0]
    which = "" if count == len(inconclusive) else f" ({count} of them)"
    shown = f"No difference can be shown: {'; '.join(effects[:MOST_EFFECTS])}{more}."
    return f"{shown}{f' {of}' if len(verdicts) > 1 else ''} {common}{which}"


def certainty(comparisons: Comparisons) -> str:
    """Return how sure the verdicts are: their counts, how they were tested, and what speaks against the trials."""
    judged = comparisons.judged
    lines = [counts_text(comparisons)]
    if any(compared.exact for compared in judged):
        lines.append("exact values: nothing is drawn")
    if comparisons.family > 1:
        lines.append(f"p adjusted by Holm for {counted(comparisons.family, 'comparison')}")
    return f"{_sentence('; '.join((*lines, *_left_out(judged))))}"


def _rank(compared: Compared) -> tuple[bool, float, float]:
    """Return the sort key of comparisons: those of saturated sides last, then by p and the size of the difference."""
    p = compared.p_adjusted
    saturated = any(code in SATURATED for side in (compared.base, compared.new) for code in side.suspect_reasons)
    size = abs(log(compared.ratio.value)) if compared.ratio else 0.0
    return saturated, (0.0 if compared.exact else 2.0) if p is None else p, -size


def _full(compared: Compared, comparisons: Comparisons) -> str:
    """Return one comparison as a sentence: which, by how much, how sure."""
    if compared.verdict == "inconclusive":
        what = f"{contrast_text(compared, comparisons)}: {effect_text(compared)} {compared.metric}"
        return f"No difference can be shown. {what}, inconclusive. {reason_text(compared)}".strip()
    fixed = levels_text(compared.fixed)
    if compared.factor is None:
        base, new = str(comparisons.base), str(comparisons.new)
    else:
        base, new = (side_name(side, compared.factor) for side in (compared.base, compared.new))
        new = f"{compared.factor} = {new}"
    several = len({comparison.workload for comparison in comparisons.comparisons}) > 1
    where = ", ".join(filter(None, (compared.workload if several else "", fixed)))
    mine, theirs = side_texts(compared)
    effect, shown = _effect_of(compared)
    interval = ""
    if effect is not None and effect.low is not None and effect.high is not None:
        confidence = f"{100 * (compared.confidence or 0.0):.3g} %"
        interval = f"{confidence} interval {shown(effect.low)} to {shown(effect.high)}"
    facts = ", ".join(filter(None, (interval, p_text(compared, comparisons.family))))
    if compared.answers is not None:
        gave = f"{new} scored {theirs} in {compared.metric}, {base} {mine}"
        facts = f"{items_text(compared.answers)}, difference {effect_text(compared).split(' (')[0]}, {facts}"
    else:
        assert effect is not None
        unit = "times" if compared.ratio is not None else f"{unit_words(compared.unit)} beside"
        gave = f"{new} gave {shown(effect.value)} {unit.strip()} the {compared.metric} of {base}"
        facts = f"{theirs} against {mine}, {facts}" if compared.exact else facts
    beside = f" {_sentence(compared.note)}" if compared.note else ""
    return f"{gave}{f' at {where}' if where else ''} ({facts}): {compared.verdict}.{beside}"
