"""The headline of a scenario: which question it asks, and the answer from its summary. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from seamark.model.plugin import parts
from seamark.model.plurals import counted, in_percent
from seamark.model.results.comparison import Comparisons, PredictionScore
from seamark.model.results.headline import Headline, HeadlineNumber
from seamark.model.results.summary import Knee, ObjectiveSummary, SearchSummary, Summary, SummaryRow
from seamark.model.trial import SERVICE, Plan
from seamark.report.asked import figure_head, figure_of, known_by, meets, rankings
from seamark.report.comparison import answer, certainty, contrast_text
from seamark.report.fronts import MOST_LISTED, choice_sentence
from seamark.report.numbers import (
    SEARCHED,
    level,
    levels_text,
    number,
    objective_text,
    side_name,
    span,
    unit_of,
    unit_words,
    with_unit,
)
from seamark.report.ordering import ORIGIN, SERVER, in_order, numeric, only_simulated
from seamark.report.predicted import score_sentence

MOST_NUMBERS = 8
RATE = "rate_rps"


def headline_of(plan: Plan, summary: Summary, score: PredictionScore | None = None) -> Headline:
    """Return the answer to what a scenario asks: whether a prediction came true, the largest load of a search, the
    method to take, the best policy, a declared comparison, a sweep of one factor; else what was measured.

    `score` is how the scenario's prediction did, None for a scenario without one.
    """
    rows = [row for row in in_order(summary) if row.repetitions]
    comparisons, workloads = summary.comparisons, dict.fromkeys(row.workload for row in rows)
    if not rows:
        failed = f": {summary.failed[0].category}" if summary.failed else ""
        return Headline(kind="nothing", question="", answer=f"No trial has a result{failed}.")
    if score is not None:
        return Headline(
            kind="prediction",
            question=f"Did the predictions of {score.fit} come true?",
            answer=score_sentence(score),
            numbers=(
                HeadlineNumber(name="figures inside", value=score.inside, unit=f"of {score.compared}"),
                HeadlineNumber(name="verdicts right", value=score.right, unit=f"of {score.judged}"),
            ),
            certainty=f"Intervals of {in_percent(score.interval)}.",
        )
    if any(row.search for row in rows):
        return _of_searches(rows)
    if comparisons is not None and comparisons.fronts and (choice := choice_sentence(comparisons.fronts)) is not None:
        return _of_evaluation(comparisons, choice)
    if plan.compare is not None and comparisons is not None and (text := answer(comparisons)) is not None:
        own: Iterable[Headline | None] = (headline(comparisons, rows) for headline in parts("headline"))
        if (first := next(filter(None, own), None)) is not None:
            return first
        best = _best_services(rows, comparisons)
        return _of_comparisons(comparisons, " ".join(filter(None, (best, text, _met_by(rows)))))
    factors = {name for row in rows for name in row.factors if name not in (ORIGIN, SERVER)}
    if len(factors) == 1 and len(workloads) == 1:
        return _of_sweep(rows, factors.pop(), summary, plan.scenario)
    return _of_tour(rows, summary)


def number_text(one: HeadlineNumber) -> str:
    """Return a number with its unit and its range: `1.07 x (1.03 to 1.12)`."""
    ends = [end for end in (one.low, one.high) if end is not None]
    unit, factor = unit_of([one.value, *ends], one.unit)
    limits = f" ({' to '.join(number(factor * end) for end in ends)})" if len(ends) == 2 else ""
    return f"{number(None if one.value is None else factor * one.value)} {unit}".strip() + limits


def _name(row: SummaryRow) -> str:
    return levels_text({name: value for name, value in row.factors.items() if name not in (ORIGIN, SERVER)})


def _of_searches(rows: Sequence[SummaryRow]) -> Headline:
    names, searches = zip(*((_name(row), row.search) for row in rows if row.search), strict=True)
    unit, noun = ("/s", "rate") if searches[0].setting == RATE else (" users", "number of users")
    limits = _objectives(next(row.slos for row in rows if row.search))
    shown = list(zip(names, searches, strict=True))[:MOST_NUMBERS]
    texts = [f"{f'{name}: ' if name else ''}{_found(search, unit)}" for name, search in shown]
    of, confirmed = sum(search.of for search in searches), sum(search.confirmed for search in searches)
    sure = min((search.confidence for search in searches if search.confidence), default=None)
    outcomes = sum((Counter(search.outcomes) for search in searches), Counter[str]())
    ends = ", ".join(f"{name.replace('_', ' ')} ({count})" for name, count in outcomes.items())
    held = "" if sure is None else f", each bracket right with a confidence of {100 * sure:.3g} %"
    nothing = not any(search.bracket[0] for _, search in shown) and any(search.found.median for _, search in shown)
    first = f"No {noun} is sure to meet {limits} yet" if nothing else f"Largest {noun} with {limits}"
    return Headline(
        kind="search",
        question=f"What is the largest {noun} with {limits}?",
        answer=f"{first}: {'; '.join(texts)}.",
        numbers=tuple(_searched(name or "largest load", search) for name, search in shown),
        certainty=f"{confirmed} of {counted(of, 'search')} confirmed{held}. Ended: {ends}.",
    )


def _searched(name: str, search: SearchSummary) -> HeadlineNumber:
    low, high = search.bracket
    return HeadlineNumber(name=name, value=search.found.median, unit=SEARCHED[search.setting], low=low, high=high)


def _found(search: SearchSummary, unit: str) -> str:
    """Return `200/s (219 fails)`."""
    load, (low, high) = search.found.median, search.bracket
    fails = "no load is shown to fail" if high is None else f"{number(high)} fails"
    if load is None:
        return f"none ({fails})"
    if set(search.outcomes) == {"all_pass"}:
        return f"at least {number(load)}{unit} (every load that was tried passes)"
    if low is None:
        return f"{number(load)}{unit} passed, but not for sure ({fails})"
    sure = "" if low == load else f"; {number(low)} is sure to pass"
    return f"{number(load)}{unit} ({fails}{sure})"


def _objectives(slos: Sequence[ObjectiveSummary]) -> str:
    return " and ".join(objective_text(slo.metric, slo.op, slo.limit) for slo in slos)


def _of_evaluation(found: Comparisons, choice: str) -> Headline:
    front = found.fronts[0]
    points = [point for point in front.points if point.quality is not None][:MOST_NUMBERS]
    scores: list[HeadlineNumber] = []
    costs: list[HeadlineNumber] = []
    unit = unit_words(front.cost_unit)
    for point in points:
        of = f"of {side_name(point, front.factor)}"
        low, high = point.quality_low, point.quality_high
        scores.append(HeadlineNumber(name=f"{front.quality} {of}", value=point.quality, low=low, high=high))
        if point.cost is not None:
            costs.append(HeadlineNumber(name=f"{front.cost} {of}", value=point.cost, unit=unit))
    shown = "; ".join(f"{score.name} {number_text(score)}" for score in scores)
    kind = " (95 % intervals)" if any(score.low is not None for score in scores) else ""
    return Headline(
        kind="evaluation",
        question=f"Which {front.factor} to take?",
        answer=choice,
        numbers=(*scores, *costs),
        certainty=" ".join(filter(None, (shown and f"{shown[0].upper()}{shown[1:]}{kind}.", certainty(found)))),
    )


def _best_services(rows: Sequence[SummaryRow], found: Comparisons) -> str | None:
    """Return which of the services under one load is best by its median, at each combination of the levels that they
    share; None where no services are compared, or none of equal quality."""
    texts, workloads = [], dict.fromkeys(row.workload for row in rows)
    for workload in workloads:
        of_workload = [row for row in rows if row.workload == workload]
        ranked = [ranking for ranking in rankings(found, of_workload) if len(ranking.rows) > 1]
        places: dict[str, list[str]] = {}
        for ranking in ranked:
            best, beside = ranking.rows[0], {SERVICE, SERVER, ORIGIN, *ranking.shared}
            own = levels_text({name: value for name, value in best.factors.items() if name not in beside})
            name = f"{best.service} ({own})" if own else best.service
            places.setdefault(name, []).append(levels_text(ranking.shared))
        if ranked:
            which = "Lowest" if ranked[0].better == "lower" else "Greatest"
            named = "; ".join(f"{name} at {' and '.join(at)}" if any(at) else name for name, at in places.items())
            head = f"{which} {figure_head(of_workload, ranked[0].metric)[0]}: {named}."
            texts.append(f"{workload}: {head}" if len(workloads) > 1 else head)
    return " ".join(texts) or None


def _of_comparisons(found: Comparisons, text: str) -> Headline:
    judged = found.judged
    names = list(dict.fromkeys(compared.factor for compared in judged if compared.factor))
    numbers = tuple(
        HeadlineNumber(
            name=f"{compared.metric}: {contrast_text(compared, found)}",
            value=effect.value,
            unit="x" if compared.ratio is not None else unit_words(compared.unit),
            low=effect.low,
            high=effect.high,
        )
        for compared in judged[:MOST_NUMBERS]
        if (effect := compared.ratio or compared.shift) is not None
    )
    question = f"Does {' or '.join(names)} make a difference?" if names else "Do the two differ?"
    question = "Which service is best?" if SERVICE in names else question
    return Headline(kind="comparison", question=question, answer=text, numbers=numbers, certainty=certainty(found))


def _of_sweep(rows: Sequence[SummaryRow], factor: str, summary: Summary, scenario: str) -> Headline:
    texts = [knee_text(knee) for knee in summary.knees]
    if rows[0].slos:
        texts.append(_largest_that_meets(rows, factor))
    shown = summary.comparisons.comparisons if summary.comparisons is not None else ()
    judged = any(compared.verdict for compared in shown)
    if not texts and judged and not numeric([row.factors[factor] for row in rows]):
        texts.append(answer(summary.comparisons) or "")
    if not texts:
        texts = [_course(rows, factor)]
        if factor == RATE and not only_simulated(summary):
            texts.append(f"`bench fit -c {scenario}` fits a model to these loads, for `bench capacity`.")
    values = [(row, *_figure(row)) for row in rows[:MOST_NUMBERS]]
    few = min(row.repetitions for row in rows)
    return Headline(
        kind="sweep",
        question=f"What does {factor} change?",
        answer=" ".join(texts),
        numbers=tuple(
            HeadlineNumber(name=f"{name} at {_name(row)}", value=value, unit=unit)
            for row, name, value, unit in values
        ),
        certainty=f"Medians of {counted(few, 'repetition')}.",
    )


def knee_text(found: Knee) -> str:
    """Return where the knee of a sweep lies, or that it lies outside."""
    factor, fixed = found.factor, levels_text(found.fixed)
    where = f" ({fixed})" if fixed else ""
    if found.knee is None:
        edge = found.levels[0 if found.place == "first" else -1]
        side = "below" if found.place == "first" else "above"
        return f"No knee by {factor}{where}: it lies {side} {level(edge, factor)}, where the measured range ends."
    return (
        f"Knee by {factor}{where}: {level(found.knee, factor)}, with {number(found.requests_per_s)} requests/s at a"
        f" mean of {knee_mean(found)}."
    )


def knee_mean(found: Knee) -> str:
    """Return the mean response time at a knee; in parentheses where unanswered requests are not in it."""
    mean = with_unit(found.latency_mean_ms, "ms")
    return f"({mean})" if found.mean_conditional else mean


def _met_by(rows: Sequence[SummaryRow]) -> str | None:
    """Return which treatments that are compared meet their objectives; None where these are not the same for all."""
    limits = {_objectives(row.slos) for row in rows}
    if limits == {""} or len(limits) > 1:
        return None
    good, bad = ([levels_text(row.factors) for row in rows if meets(row) is which] for which in (True, False))
    if not good or not bad:
        which = "every treatment" if good else "none"
    elif min(len(good), len(bad)) > MOST_LISTED:
        which = f"{len(good)} of {len(rows)} treatments"
    else:
        which = "; ".join(good) if len(good) <= len(bad) else f"all but {'; '.join(bad)}"
    return f"{limits.pop()}: met by {which}."


def _largest_that_meets(rows: Sequence[SummaryRow], factor: str) -> str:
    """Return the level up to which most trials meet all objectives, and the next, which misses one."""
    limits = _objectives(rows[0].slos)
    met = list(map(meets, rows))
    names = [level(row.factors[factor], factor) for row in rows]
    if not numeric([row.factors[factor] for row in rows]) or (any(met) and not met[0]):
        good = [name for name, is_met in zip(names, met, strict=True) if is_met]
        return f"{limits}: met by {', '.join(good) or 'no level'} of {factor}."
    until = met.index(False) if False in met else len(met)
    missed = (
        "misses it" if until == len(met) or all(slo.of for slo in rows[until].slos) else "is not known to meet it"
    )
    if until == 0:
        return f"No level of {factor} meets {limits}: {names[0]} {missed}."
    after = f"{names[until]} {missed}" if until < len(names) else "every level meets it"
    return f"Largest {factor} that meets {limits}: {names[until - 1]} ({after})."


def _course(rows: Sequence[SummaryRow], factor: str) -> str:
    known = [(row, value) for row in rows if (value := _figure(row)[1]) is not None]
    if not known:
        return f"No figure was measured at any level of {factor}."
    name, _, unit = _figure(known[0][0])
    unit, scale = unit_of([value for _, value in known], unit)
    texts = [f"{number(scale * value)} at {level(row.factors[factor], factor)}" for row, value in known]
    best = (max if name == "throughput" else min)(known, key=lambda pair: pair[1])[0]
    which = "Greatest" if name == "throughput" else "Lowest"
    return f"{which} {name} at {factor} {level(best.factors[factor], factor)} ({', '.join(texts)} {unit})."


def _figure(row: SummaryRow) -> tuple[str, float | None, str]:
    """Return name, value and unit of what a treatment is known by."""
    metric = known_by(row)
    name, unit = figure_head([row], metric)
    return name.removeprefix("latency "), figure_of(row, metric), unit


def _of_tour(rows: Sequence[SummaryRow], summary: Summary) -> Headline:
    texts, numbers = [], []
    ranges: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        figure, value, unit = _figure(row)
        if value is not None:
            ranges.setdefault((row.workload, figure, unit), []).append(value)
    for (name, figure, unit), values in ranges.items():
        shown, factor = unit_of(values, unit)
        what = "" if figure == "throughput" else f" {figure}"
        texts.append(f"{name}{what} {span(factor * min(values), factor * max(values))} {shown}".rstrip())
        of, low = (f", greatest of {len(values)}", min(values)) if len(values) > 1 else ("", None)
        high = None if low is None else max(values)
        numbers.append(HeadlineNumber(name=f"{name}: {figure}{of}", value=max(values), unit=unit, low=low, high=high))
    verb = "Simulated" if only_simulated(summary) else "Measured"
    services = len({row.service for row in rows})
    more = f"; and {len(texts) - MOST_NUMBERS} more" if len(texts) > MOST_NUMBERS else ""
    knees = "".join(f" {knee_text(knee)}" for knee in summary.knees[:2])
    return Headline(
        kind="tour",
        question="What was measured?",
        answer=f"{verb} {counted(services, 'service')} in {counted(len(rows), 'treatment')}:"
        f" {'; '.join(texts[:MOST_NUMBERS])}{more}.{knees} Each treatment is in the Summary.",
        numbers=tuple(numbers[:MOST_NUMBERS]),
        certainty="The scenario declares no question (`compare`).",
    )
