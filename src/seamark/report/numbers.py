"""Format of numbers, levels and units in reports: three or four significant digits, an en dash for unknown."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import floor, isfinite, log10

from seamark.config.forms.table import is_structured, label_of
from seamark.model.plurals import unit_of_times
from seamark.model.results.comparison import ComparedSide, FrontPoint
from seamark.model.results.summary import SearchSummary, Spread
from seamark.model.results.times import Ranged, Times
from seamark.model.service import Value
from seamark.stats.range import Range

ABSENT = "–"
RANGE_NOTE = (
    "≥ a, a–b : at least, or between two ends. Requests had no answer or were never sent, or samples are few."
)
ARROW_NOTE = " An arrow up marks the lower end of a range: requests that had no answer may have taken longer."
MEAN_NOTE = "( ) : mean of the answered requests only."
UNSTEADY_NOTE = "† : saturated. More was offered than answered, so response times grow as long as the load lasts."
SATURATED = ("saturated", "over_saturated")
"""Codes of reasons why response times have no steady value."""

SEARCHED: Mapping[str, str] = {"rate_rps": "requests/s", "concurrency": "users"}
"""Searched setting -> unit of its level."""


def number(value: float | None) -> str:
    """Return `value` with three significant digits below 1,000 and four above; an en dash for None."""
    if value is None or not isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    magnitude = floor(log10(abs(value)))
    if magnitude < -4:
        return f"{value:.2e}"
    if magnitude < 3:
        text = f"{value:.{2 - magnitude}f}"
        return text if float(text) < 1000 else "1,000"
    return f"{round(value, 3 - magnitude):,.0f}"


def saturation_mark(codes: Iterable[str]) -> str:
    """Return the mark of response times where a reason says that the load was more than the server handled."""
    return " †" if any(code in SATURATED for code in codes) else ""


def time_unit(times: Iterable[Times | None], names: Iterable[str]) -> tuple[str, float]:
    """Return the unit in which some times are printed side by side, and its factor from ms."""
    return unit_of([limits.low for group in times if group for name in names if (limits := group.range_of(name))])


def unit_of(values: Iterable[float | None], unit: str = "ms") -> tuple[str, float]:
    """Return the unit in which values are printed side by side, and its factor: s in place of ms above 10 s."""
    return unit_of_times(max(filter(None, values), default=0.0)) if unit == "ms" else (unit, 1.0)


def with_unit(value: float | None, unit: str) -> str:
    """Return a value with its unit, a time in ms that is above 10 s in seconds: `92.5 s`."""
    unit, factor = unit_of([value], unit)
    return f"{number(None if value is None else factor * value)} {unit}".strip()


def statistic(times: Times | None, name: str, factor: float = 1.0) -> str:
    """Return one statistic of a group of times, by the factor of its unit: a range such as `117–125` or `≥ 2,000`,
    and in parentheses a mean that leaves out requests without an answer."""
    if times is not None and name == "mean" and times.is_conditional:
        value = times.statistic(name)
        return f"({number(None if value is None else value * factor)})"
    limits = None if times is None else times.range_of(name)
    return ABSENT if limits is None else range_text(limits.times(factor))


def range_text(found: Range) -> str:
    """Return a range as it is printed: as a number if it is narrow."""
    if found.high is None:
        return f"≥ {number(found.low)}"
    low, high = number(found.low), number(found.high)
    return low if found.is_narrow or low == high else f"{low}–{high}"


def span(low: float | None, high: float | None) -> str:
    """Return "low–high", or an en dash when either is not known."""
    if low is None or high is None:
        return ABSENT
    return number(low) if number(low) == number(high) else f"{number(low)} – {number(high)}"


def bracket(search: SearchSummary | None, *, confidence: bool = True) -> str:
    """Return the bracket of a search with its confidence, `155 – 205 (92 %)`; with an open side `≥ 155`, `≤ 205`."""
    if search is None or search.bracket == (None, None):
        return ABSENT
    low, high = (None if side is None else number(side) for side in search.bracket)
    sides = f"≤ {high}" if low is None else f"≥ {low}" if high is None else f"{low} – {high}"
    return sides + (f" ({percent(search.confidence)} %)" if confidence and search.confidence else "")


def is_time(metric: str) -> bool:
    """Return whether the values of a metric are seconds."""
    return metric.endswith("_s") and not metric.endswith("_per_s")


def objective_text(metric: str, op: str, limit: float) -> str:
    """Return `p90 <= 100 ms` for `latency_p90_s <= 0.1`: times below 10 s in milliseconds."""
    if not is_time(metric):
        return f"{metric.replace('_', ' ')} {op} {limit:g}"
    words = metric.removesuffix("_s").removeprefix("latency_").split("_")
    name = " ".join(word.upper() if word in ("ttft", "ttfo", "tpot") else word for word in words)
    return f"{name} {op} {f'{1e3 * limit:g} ms' if limit < 10 else f'{limit:g} s'}"


def median_of(spread: Spread | None) -> float | None:
    """Return the median of a figure over the trials, None where no trial has it."""
    return None if spread is None else spread.median


def percent(ratio: float | None) -> str:
    """Return a ratio as a percentage without its sign: the unit stands in the column's head."""
    text = number(None if ratio is None else 100 * ratio)
    return text.rstrip("0").rstrip(".") if "." in text else text


def errors_text(errors: Ranged) -> str:
    """Return an error rate in percent, with both ends where they are not near each other; an en dash for None."""
    limits = errors.range_of("rate")
    if limits is None or limits.is_narrow or limits.high is None:
        return percent(errors.statistic("rate"))
    return f"{percent(limits.low)}–{percent(limits.high)}"


def level(value: Value, name: str = "") -> str:
    """Return a factor's level as text: a size with its unit, a structure by its label."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return size(value) if name.endswith("_bytes") and value % 1024 == 0 else f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return label_of(name, value) if is_structured(name) else str(value)


def levels_text(levels: Mapping[str, Value]) -> str:
    """Return the levels of factors with their names: `task passkey, model small`."""
    return ", ".join(f"{name} {level(value, name)}" for name, value in levels.items())


def side_name(side: ComparedSide | FrontPoint, factor: str | None) -> str:
    """Return the level of a side by a factor; of a service with what it alone was given: `milvus (index hnsw)`."""
    own = levels_text(side.own or {})
    return level(side.level, factor or "") + (f" ({own})" if own else "")


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,), gap: str = "  ") -> list[str]:
    """Return the rows of a table as lines: columns as wide as their longest cell, with a gap between them. Those at
    the places `left` are flush left, the others flush right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        gap.join(
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def unit_words(unit: str | None) -> str:
    """Return `items_per_s` as `items/s`."""
    return (unit or "").replace("_per_", "/").replace("_", " ")


def duration(seconds: float | None) -> str:
    """Return a length of time with its unit: `950 ms`, `12.3 s`, `4 min 10 s`, `2 h 5 min`."""
    if seconds is None:
        return ABSENT
    if seconds < 1:
        return f"{number(1000 * seconds)} ms"
    if seconds < 120:
        return f"{number(seconds)} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest_s} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count_bytes: float | None) -> str:
    """Return an amount of memory in binary units."""
    if count_bytes is None:
        return ABSENT
    for power, prefix in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count_bytes >= 1 << power:
            amount = number(count_bytes / (1 << power))
            return f"{amount.rstrip('0').rstrip('.') if '.' in amount else amount} {prefix}"
    return f"{count_bytes:.0f} B"
