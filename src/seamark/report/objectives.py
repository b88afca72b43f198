"""The table of a workload's objectives: limit, value, met or not; goodput; what was offered and what was achieved."""

from collections.abc import Sequence

from seamark.report.canvas import numeric
from seamark.report.content import Cell, Column, Table, absent, known
from seamark.report.grid import levels_of
from seamark.report.numbers import level, number, percent, span, unit_words
from seamark.report.source import Document

OPEN = "No open loop: users send when their last reply is in, so nothing is offered beyond what is achieved."
NOTES = (
    "An objective's value is the median over repetitions, with the least and the greatest; `met` counts the trials "
    "that meet it. An objective on a single request is judged by the p99 of all.",
    "Goodput counts the requests that meet every objective on a single request, of all that were due: failed and "
    "unfinished ones do not meet.",
)

Objective = tuple[str, str, float]


def objectives_table(workload: str, treatments: Sequence[Document], named: bool) -> Table | None:
    """Return a row for each treatment; None where there is neither an objective nor an open loop."""
    objectives = list(dict.fromkeys(_key(slo) for t in treatments for slo in t.get("slos") or ()))
    offers = any(_is_open(treatment) for treatment in treatments)
    good = any(_median(treatment, "goodput") is not None for treatment in treatments)
    if not objectives and not offers:
        return None
    levels = levels_of(treatments)
    columns = [Column(name=name, numeric=numeric(values)) for name, values in levels.items()]
    if offers:
        columns += [
            Column(name="offered", unit="requests/s", title="due inside the measured window", numeric=True),
            Column(name="achieved", unit="requests/s", title="answered inside the measured window", numeric=True),
        ]
    if good:
        columns += [
            Column(name="goodput", unit="requests/s", title="requests that meet their objectives", numeric=True),
            Column(name="goodput", unit="%", title="the same as a share of all requests due", numeric=True),
        ]
    for objective in objectives:
        columns += [Column(name=_named(objective), unit=_unit(objective[0]), numeric=True), Column(name="met")]
    rows = []
    for treatment in treatments:
        factors = treatment.get("factors") or {}
        cells = [Cell(text=level(factors.get(name), name)) for name in levels]
        if offers:
            offered = _figure(treatment, "offered_rps") if _is_open(treatment) else absent(OPEN)
            cells += [offered, _figure(treatment, "achieved_rps")]
        if good:
            cells += [_figure(treatment, "goodput_per_s"), _share(_median(treatment, "goodput"))]
        for objective in objectives:
            cells += _judged(treatment, objective)
        rows.append(tuple(cells))
    caption = f"{workload}: objectives and rates" if named else "Objectives and rates"
    notes = NOTES if good else NOTES[:1] if objectives else ()
    return Table(columns=tuple(columns), rows=tuple(rows), caption=caption, footnotes=notes)


def _key(slo: Document) -> Objective:
    return str(slo["metric"]), str(slo["op"]), float(slo["limit"])


def _named(objective: Objective) -> str:
    metric, op, limit = objective
    name = metric.removesuffix("_s") if _is_time(metric) else unit_words(metric)
    return f"{name.replace('_', ' ')} {'≤' if op == '<=' else '≥'} {number(_scaled(metric, limit))}"


def _is_time(metric: str) -> bool:
    return metric.endswith("_s") and not metric.endswith("_per_s")


def _unit(metric: str) -> str:
    if metric.startswith("throughput"):
        return "units/s"
    return "ms" if _is_time(metric) else ""


def _scaled(metric: str, value: float) -> float:
    return 1e3 * value if _is_time(metric) else value


def _judged(treatment: Document, objective: Objective) -> list[Cell]:
    """Return value and judgement of one objective."""
    metric = objective[0]
    slo = next((one for one in treatment.get("slos") or () if _key(one) == objective), None)
    if slo is None:
        return [absent("Not an objective of this treatment."), absent("Not an objective of this treatment.")]
    value = slo.get("value") or {}
    middle = value.get("median")
    if middle is None:
        why = "Not known: too few samples, or no result."
        return [absent(why), absent(why)]
    text = ("≥ " if slo.get("lower_bounds") else "") + number(_scaled(metric, middle))
    least, most = (_scaled(metric, value[name]) for name in ("min", "max"))
    if number(least) != number(most):
        text += f" ({span(least, most)})"
    met, of = int(slo["met"]), int(slo["of"])
    if not of:
        return [known(text), absent("Not known: the value is a lower bound. Raise timeout_s above the limit.")]
    word = "met" if met == of else "missed" if not met else "in part"
    return [known(text), Cell(text=f"{word}, {met} of {of}")]


def _is_open(treatment: Document) -> bool:
    return (treatment.get("config") or {}).get("pattern") not in (None, "closed")


def _median(treatment: Document, name: str) -> float | None:
    value = (treatment.get(name) or {}).get("median")
    return None if value is None else float(value)


def _figure(treatment: Document, name: str) -> Cell:
    spread = treatment.get(name) or {}
    middle = spread.get("median")
    if middle is None:
        return absent("Not known.")
    return known(number(middle), title=span(spread.get("min"), spread.get("max")))


def _share(ratio: float | None) -> Cell:
    return absent("No objective on a single request.") if ratio is None else known(percent(ratio))
