"""Section of a score of file I/O after IO500: geometric means of bandwidths and of rates of metadata operations."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from seamark.model.results.summary import SummaryRow
from seamark.report.numbers import number
from seamark.report.page.content import Section, Table, Text, column, figures

DATA = ("sequential write", "sequential read", "random write", "random read")
METADATA = ("create", "stat", "open", "unlink", "list")
GIB_PER_MB = 1e6 / 2**30
NOTE = (
    "As IO500 defines it: the square root of bandwidth x metadata, each a geometric mean. The parts are Seamark's and"
    " not IOR and mdtest, so it is no IO500 result. Medians over the repetitions."
)


def score_section(treatments: Sequence[SummaryRow]) -> Section | None:
    """Return a table of scores, one for each group of treatments that differ in operation, access and block alone and
    have each part once; None without any. An INVALID treatment is no part."""
    groups: defaultdict[tuple[str, ...], dict[str, list[SummaryRow]]] = defaultdict(lambda: defaultdict(list))
    for row in treatments:
        if row.service == "fileio" and row.verdict != "INVALID" and (part := _part(row)):
            key = tuple(str(row.config.get(name)) for name in ("concurrency", "harness", "directory"))
            groups[key][part].append(row)
    whole = {key: parts for key, parts in groups.items() if _is_whole(parts)}
    if not whole:
        return None
    rates = [{part: _rate(part, row) for part, (row,) in parts.items()} for parts in whole.values()]
    columns = [column("threads", [key[0] for key in whole])]
    for part in DATA + METADATA:
        columns.append(
            figures(part, [one[part] for one in rates], "GiB/s" if part in DATA else "kIOPS", shown=number)
        )
    for name, parts in (("bandwidth", DATA), ("metadata", METADATA)):
        means = [geometric_mean(one[part] for part in parts) for one in rates]
        columns.append(figures(name, means, "GiB/s" if parts == DATA else "kIOPS", shown=number))
    columns.append(figures("score", [score(one) for one in rates], shown=number))
    doubts = dict.fromkeys(code for parts in whole.values() for (row,) in parts.values() for code in row.codes)
    blocks = [Table(columns=tuple(columns), footnotes=(NOTE,))]
    said = [Text(text=f"Reasons of its parts: {', '.join(doubts)}.", kind="warning")] if doubts else []
    return Section(id="io-score", title="Score of file I/O", blocks=(*blocks, *said))


def geometric_mean(values: Iterable[float]) -> float:
    """Return exp of the mean of the logarithms of positive values."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def score(rates: Mapping[str, float]) -> float:
    """Return the score of IO500: sqrt(bandwidth in GiB/s x metadata rate in kIOPS), each a geometric mean."""
    return math.sqrt(geometric_mean(rates[part] for part in DATA) * geometric_mean(rates[part] for part in METADATA))


def _is_whole(parts: Mapping[str, Sequence[SummaryRow]]) -> bool:
    """Return whether each part was measured once, with a rate above 0."""
    return all(len(parts.get(part, ())) == 1 and _rate(part, parts[part][0]) > 0 for part in DATA + METADATA)


def _part(row: SummaryRow) -> str | None:
    operation = str(row.config.get("operation"))
    name = operation if operation in METADATA else f"{row.config.get('access')} {operation}"
    return name if name in DATA + METADATA else None


def _rate(part: str, row: SummaryRow) -> float:
    """Return the median in GiB/s, of metadata operations in 1,000/s; 0 where it is not known."""
    if part in METADATA:
        return (row.throughput.median or 0.0) / 1e3
    return ((row.bandwidth_mb_per_s.median if row.bandwidth_mb_per_s else None) or 0.0) * GIB_PER_MB
