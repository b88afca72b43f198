"""Tables with a row for each treatment: streamed replies, kinds of request, objectives, energy."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from seamark.model.results.summary import KindSpreads, KindSummary, ObjectiveSummary, Spread, SummaryRow
from seamark.model.results.times import Ranged, Times
from seamark.report.numbers import (
    ABSENT,
    RANGE_NOTE,
    UNSTEADY_NOTE,
    errors_text,
    is_time,
    level,
    median_of,
    number,
    percent,
    range_text,
    saturation_mark,
    span,
    statistic,
    time_unit,
    unit_of,
    unit_words,
)
from seamark.report.ordering import levels_of, numeric
from seamark.report.page.content import Cell, Column, Content, Table, absent, column, faint, figures, known
from seamark.stats.range import Range

MOST_KINDS = 200
STREAM_TIMES = {
    "ttft_ms": ("TTFT", "first token, from the actual send"),
    "ttft_response_ms": ("TTFT response", "first token, from the intended send: what a user waits"),
    "ttfo_ms": ("TTFO", "first token that is no reasoning, from the actual send"),
    "tpot_ms": ("TPOT", "time per token after the first chunk"),
}
STREAM_NOTE = (
    "Times of all repetitions pooled (histograms, within 0.5 %). TTFT and TTFO count from the moment when a request "
    "was sent."
)
STREAM_WITHHELD = "withheld: too few samples (p99 needs 1,000), or not known: see the reasons"
KIND_TIMES = {"ttft_ms": "TTFT", "latency_ms": "response"}
KIND_QUANTILES = ("p50", "p90", "p99")
KIND_NOTE = (
    "Times and rates of a kind are the median over repetitions of the trials' own figures; least and greatest stand "
    "beside a median that they differ from. Requests are those of all repetitions. – : withheld, since a trial has "
    "too few samples of this kind (p90 needs 100, p99 1,000), or not known."
)
KIND_NONE = "no trial of this treatment is ok, or all its requests are alike"
KIND_WITHHELD = "withheld: too few samples of this kind in a trial's measured window (p90 needs 100, p99 1,000)"
CLOSED_LOOP = "No open loop: users send when their last reply is in, so nothing is offered beyond what is achieved."
OBJECTIVE_NOTES = (
    "An objective's value is the median over repetitions, with the least and the greatest; `met` counts the trials "
    "that meet it. An objective on a single request is judged by the p99 of all.",
    "Goodput counts the requests that meet every objective on a single request, of all that were due: failed and "
    "unfinished ones do not meet.",
)
ENERGY = (("per_request_j", "J/request"), ("per_unit_j", "J/unit"), ("power_w", "W"), ("idle_power_w", "W idle"))
OVER_REPETITIONS = "median over the repetitions"
ENERGY_UNKNOWN = "not known: `energy_reason` of the trials' metrics.json says why"
ENERGY_SCOPES = {
    "gpu": "the deployment's GPUs",
    "package": "the node's processors and their memory",
    "node": "the whole node, over the whole load",
}


def streams_table(treatments: Sequence[SummaryRow]) -> Table | None:
    """Return times of streamed replies; None where no reply was streamed. The response of TTFT has columns where it
    is not TTFT itself, as in a closed loop, TTFO where there was reasoning."""
    shown = [group for group in STREAM_TIMES if any(_differs(treatment, group) for treatment in treatments)]
    whole = all(row.virtual_clock and row.throughput.unit == "requests_per_s" for row in treatments)
    if not shown or whole:  # the first part of a simulated request is no token
        return None
    columns: list[Column] = []
    for group in shown:
        name, title = STREAM_TIMES[group]
        times = [(getattr(t, group), t.codes, STREAM_WITHHELD) for t in treatments]
        columns += time_columns(("p50", "p99"), times, f"{name} ", title)
    return _table("Streamed replies", treatments, columns, (STREAM_NOTE, *notes_of(columns)))


def kinds_table(treatments: Sequence[SummaryRow]) -> Table | None:
    """Return a row for each kind of request and treatment; None where all requests are alike."""
    if not any(treatment.by_kind for treatment in treatments):
        return None
    every: list[tuple[SummaryRow, str | None, KindSummary | None]] = []
    for row in treatments:
        every += [(row, name, kind) for name, kind in row.by_kind.items()] if row.by_kind else [(row, None, None)]
    rows = every[:MOST_KINDS]
    shown = [group for group in KIND_TIMES if any(kind and getattr(kind, group) for _, _, kind in every)]

    def cells(make: Callable[[KindSummary, SummaryRow], Content]) -> list[Content]:
        return [absent(KIND_NONE) if kind is None else make(kind, treatment) for treatment, _, kind in rows]

    requests = cells(lambda kind, _: f"{kind.requests:,}")
    rates = cells(lambda kind, _: _spread(kind.requests_per_s, "not known"))
    errors, of_ended = cells(lambda kind, _: kind.errors.rate), "failed requests of those that ended"
    columns = [
        column("kind", [name for _, name, _ in rows], why=KIND_NONE),
        figures("requests", requests, "", "due in the measured windows of all repetitions"),
        figures("rate", rates, "requests/s", "good ones that were due in the window, a second"),
        *(
            figures(f"{KIND_TIMES[group]} {q}", cells(partial(_kind_time, group, q, factor)), unit, OVER_REPETITIONS)
            for group in shown
            for q in KIND_QUANTILES
            for unit, factor in [_kind_unit([kind for _, _, kind in rows], group, q)]
        ),
        figures("errors", errors, "%", of_ended, why="no request of this kind has ended", shown=percent),
    ]
    more = len(every) - MOST_KINDS
    seen = [f"{cell.text} {cell.title}" for table_column in columns for cell in table_column.cells]
    notes = (
        KIND_NOTE,
        *(note for note in (RANGE_NOTE, UNSTEADY_NOTE) if any(note[0] in text for text in seen)),
        *((f"{more} more rows: `by_kind` in summary.json has them.",) if more > 0 else ()),
    )
    return _table("Kinds of request", [treatment for treatment, _, _ in rows], columns, notes, treatments)


def objectives_table(treatments: Sequence[SummaryRow]) -> Table | None:
    """Return each objective's limit and value, goodput, offered and achieved rate; None where there is neither an
    objective nor an open loop."""
    objectives = list(dict.fromkeys((slo.metric, slo.op, slo.limit) for t in treatments for slo in t.slos))
    offers = any(_is_open(treatment) for treatment in treatments)
    good = any(median_of(treatment.goodput) is not None for treatment in treatments)
    if not objectives and not offers:
        return None
    columns = []
    if offers:
        offered = [_rate(t.offered_rps) if _is_open(t) else absent(CLOSED_LOOP) for t in treatments]
        achieved = [_rate(t.achieved_rps) for t in treatments]
        columns.append(figures("offered", offered, "requests/s", "due inside the measured window"))
        columns.append(figures("achieved", achieved, "requests/s", "answered inside the measured window"))
    if good:
        rates = [_rate(t.goodput_per_s) for t in treatments]
        shares = [median_of(t.goodput) for t in treatments]
        of_all, why = "the same as a share of all requests due", "No objective on a single request."
        columns.append(figures("goodput", rates, "requests/s", "requests that meet their objectives"))
        columns.append(figures("goodput", shares, "%", of_all, why=why, shown=percent))
    for metric, op, limit in objectives:
        key = metric, op, limit
        of = [next((slo for slo in t.slos if (slo.metric, slo.op, slo.limit) == key), None) for t in treatments]
        if metric.startswith("throughput"):
            units, factor = dict.fromkeys(unit_words(t.throughput.unit) for t in treatments if t.throughput.unit), 1.0
            unit = " or ".join(units)
        elif is_time(metric):
            seconds = (limit, *(median_of(slo.value) for slo in of if slo))
            unit, factor = unit_of([1e3 * (value or 0.0) for value in seconds])
            factor *= 1e3
        else:
            unit, factor = "", 1.0
        name = metric.removesuffix("_s") if is_time(metric) else unit_words(metric)
        head = f"{name.replace('_', ' ')} {'≤' if op == '<=' else '≥'} {number(factor * limit)}"
        values, met = zip(*(_judgement(slo, factor) for slo in of), strict=True)
        columns += [figures(head, values, unit), column("met", met)]
    notes = OBJECTIVE_NOTES if good else OBJECTIVE_NOTES[:1] if objectives else ()
    return _table("Objectives and rates", treatments, columns, notes)


def energy_table(treatments: Sequence[SummaryRow]) -> Table | None:
    """Return energy and power, medians over repetitions; None where no energy is known."""
    energies = [treatment.energy for treatment in treatments]
    scopes = sorted({energy.scope for energy in energies if energy})
    if not scopes:
        return None
    columns = [
        figures("energy", values, unit, OVER_REPETITIONS, why=ENERGY_UNKNOWN)
        for name, unit in ENERGY
        for values in [[median_of(getattr(energy, name, None)) for energy in energies]]
        if any(value is not None for value in values)
    ]
    columns.append(column("of", [energy.scope if energy else None for energy in energies], why=ENERGY_UNKNOWN))
    notes = [f"{scope}: {ENERGY_SCOPES.get(scope, scope)}." for scope in scopes]
    return _table("Energy", treatments, columns, notes)


def time_columns(
    names: Sequence[str], rows: Sequence[tuple[Times | None, Iterable[str], str]], head: str = "", title: str = ""
) -> list[Column]:
    """Return a column for each percentile, all in one unit; a row has its times, the codes of its reasons, and why
    there may be no number."""
    unit, factor = time_unit([times for times, _, _ in rows], names)
    return [
        figures(f"{head}{name}", [marked(*row, name, factor) for row in rows], unit, title or None) for name in names
    ]


def marked(times: Times | None, codes: Iterable[str], why: str, name: str, factor: float = 1.0) -> Cell:
    """Return a percentile, with what marks a range and one of a saturated load, which grows with the length of the
    trial; greyed where few samples lie beyond it. `codes` are those of the reasons, `why` there may be no number."""
    if times is None or times.range_of(name) is None:
        return absent(why)
    unsteady = saturation_mark(codes)
    notes = " ".join([*[RANGE_NOTE] * times.is_range(name), *[UNSTEADY_NOTE] * bool(unsteady)])
    text = f"{statistic(times, name, factor)}{unsteady}"
    return known(text, title=notes or None) if times.statistic(name) is not None else faint(text, title=notes or why)


def notes_of(columns: Iterable[Column]) -> list[str]:
    """Return the footnotes of the marks in a table's cells."""
    titles = {cell.title or "" for table_column in columns for cell in table_column.cells}
    return [note for note in (RANGE_NOTE, UNSTEADY_NOTE) if any(note in title for title in titles)]


def errors_cell(errors: Ranged, why: str) -> Cell:
    """Return an error rate in percent, or its ends, or the mark of one that is not given with the reason `why`."""
    text = errors_text(errors)
    return absent(why) if text == ABSENT else known(text, title=RANGE_NOTE if errors.is_range("rate") else None)


def factor_columns(rows: Sequence[SummaryRow], treatments: Sequence[SummaryRow]) -> list[Column]:
    """Return a column for each factor that varies among `treatments`."""
    return [
        column(name, [level(row.factors.get(name), name) for row in rows], numeric=numeric(values))
        for name, values in levels_of(treatments).items()
    ]


def _table(
    caption: str,
    rows: Sequence[SummaryRow],
    columns: Iterable[Column],
    notes: Iterable[str],
    treatments: Sequence[SummaryRow] | None = None,
) -> Table:
    """Return a table whose first columns are the factors that vary among `treatments`, or else its rows."""
    heads = factor_columns(rows, rows if treatments is None else treatments)
    return Table(columns=(*heads, *columns), caption=caption, footnotes=tuple(notes))


def _differs(treatment: SummaryRow, group: str) -> bool:
    """Return whether a group of times is there, and another one than TTFT."""
    times, first = getattr(treatment, group), treatment.ttft_ms
    if times is None or group in ("ttft_ms", "tpot_ms"):
        return times is not None
    return first is None or (times.mean, times.max) != (first.mean, first.max)


def _kind_unit(kinds: Iterable[KindSummary | None], group: str, quantile: str) -> tuple[str, float]:
    of = [times for kind in kinds if (times := getattr(kind, group, None)) is not None]
    lows = [times.ranges.get(quantile, (None, None))[0] for times in of]
    return unit_of([*lows, *(getattr(times, quantile).median for times in of)])


def _kind_time(group: str, quantile: str, factor: float, kind: KindSummary, treatment: SummaryRow) -> Cell:
    times: KindSpreads | None = getattr(kind, group)
    if times is None:
        return absent("no reply of this kind was streamed")
    mark, ends, spread = saturation_mark(treatment.codes), times.ranges.get(quantile), getattr(times, quantile)
    if ends is not None and ends[0] is not None and not (limits := Range(low=ends[0], high=ends[1])).is_narrow:
        text = f"{range_text(limits.times(factor))}{mark}"
        return (faint if spread.median is None else known)(text, title=RANGE_NOTE)
    return _spread(spread, KIND_WITHHELD, mark, factor)


def _spread(figure: Spread | None, why: str, mark: str = "", factor: float = 1.0) -> Cell:
    """Return the median in another unit, with least and greatest where they differ from it, and a mark."""
    if figure is None or figure.median is None or figure.min is None or figure.max is None:
        return absent(why)
    middle, least, most = (factor * value for value in (figure.median, figure.min, figure.max))
    return known((number(middle) + (f" ({span(least, most)})" if number(least) != number(most) else "")) + mark)


def _rate(spread: Spread | None) -> Cell:
    if spread is None or spread.median is None:
        return absent("Not known.")
    return known(number(spread.median), title=span(spread.min, spread.max))


def _is_open(treatment: SummaryRow) -> bool:
    return treatment.config.get("pattern") not in (None, "closed")


def _judgement(slo: ObjectiveSummary | None, factor: float) -> list[Cell]:
    """Return value and judgement of one objective of a treatment."""
    if slo is None:
        return [absent("Not an objective of this treatment.")] * 2
    value = _spread(slo.value, "Not known: too few samples, or no result.", factor=factor)
    if value.kind == "absent":
        return [value, value]
    if slo.range is not None and slo.known is not None and not slo.known.is_narrow:
        value = known(range_text(slo.known.times(factor)))
    if not slo.of:
        return [value, absent("Not known: the limit lies between the two ends of the value.")]
    word = "met" if slo.met == slo.of else "missed" if not slo.met else "in part"
    return [value, Cell(text=f"{word}, {slo.met} of {slo.of}")]
