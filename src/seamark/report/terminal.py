"""The summary as a table for a terminal, at the end of `bench submit`."""

import shutil
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from seamark.model.service import Value
from seamark.report.numbers import (
    ABSENT,
    BOUND_NOTE,
    SEARCHED,
    UNSTEADY_NOTE,
    bracket,
    level,
    number,
    percent,
    saturation_mark,
    span,
    statistic,
    unit_words,
)
from seamark.report.ordering import in_order
from seamark.report.servers import SERVER, mixture

COLOURS = {"VALID": "green", "SUSPECT": "yellow", "INVALID": "red"}
MIDDLE, WIDE = 100, 130
"""Columns of a terminal from which on units are named, and everything is shown."""


def summary_table(summary: Mapping[str, Any], width: int | None = None) -> Table:
    """Return a row for each treatment of a summary.json document; a number that is withheld is an en dash.

    Where `width` (that of the terminal, unless given) is small, units, spread, p95 and repetitions are left out.
    Of a search the load that was found comes first, with its bracket, and what it reached only where there is room.
    Lower bounds and percentiles of saturated trials are marked; the caption says with what.
    """
    columns = width or shutil.get_terminal_size().columns
    wide, units = columns >= WIDE, columns >= MIDDLE
    table = Table(header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    table.add_column("workload", no_wrap=True)
    table.add_column("factors", overflow="fold", min_width=20)
    searched = any(treatment.get("search") for treatment in summary.get("treatments") or ())
    if searched:
        table.add_column("largest load" if units else "found", justify="right", no_wrap=True)
        table.add_column("between", justify="right", no_wrap=True)
    reached = wide or not searched
    if reached:
        table.add_column("throughput" if units else "units/s", justify="right", no_wrap=True)
    if wide:
        table.add_column("min – max", justify="right", no_wrap=True)
    if reached and units:
        table.add_column("", no_wrap=True)
    names = ("p50", "p95", "p99") if wide else ("p50", "p99") if units or not searched else ("p99",)
    for name in names:
        table.add_column(f"{name} ms", justify="right", no_wrap=True)
    table.add_column("err %", justify="right", no_wrap=True)
    if wide:
        table.add_column("ok", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    last = None
    marks: set[str] = {warning} if (warning := mixture(summary)) else set()
    for treatment in in_order(summary):
        throughput, latency = treatment.get("throughput") or {}, treatment.get("latency_ms") or {}
        verdict, workload = str(treatment.get("verdict") or "INVALID"), str(treatment["workload"])
        mark = saturation_mark(str(reason["code"]) for reason in treatment.get("reasons") or ())
        bounded = not set(names).isdisjoint(latency.get("lower_bounds") or ())
        marks |= {note for note, sign in ((BOUND_NOTE, bounded), (UNSTEADY_NOTE, mark)) if sign}
        table.add_row(
            Text("" if workload == last else workload),
            Text(_levels(treatment["factors"]) or ABSENT),
            *(_found(treatment.get("search") or {}, units=units) if searched else ()),
            *([number(throughput.get("median"))] if reached else []),
            *([span(throughput.get("min"), throughput.get("max"))] if wide else []),
            *([Text(unit_words(throughput.get("unit")))] if reached and units else []),
            *(Text(f"{statistic(latency, name)}{mark}") for name in names),
            percent((treatment.get("errors") or {}).get("rate")),
            *([f"{treatment.get('repetitions', 0)}/{treatment.get('planned', ABSENT)}"] if wide else []),
            Text(verdict, style=COLOURS.get(verdict, "")),
        )
        last = workload
    table.caption = Text("\n".join(sorted(marks)), justify="left") if marks else None
    return table


def _found(search: Mapping[str, Any], *, units: bool) -> tuple[str, str]:
    """Return the load that a search found and its bracket; without `units` neither the unit nor the confidence."""
    found = (search.get("found") or {}).get("median")
    if not units:
        return number(found), bracket({**search, "confidence": None})
    return ABSENT if found is None else f"{number(found)} {SEARCHED[search['setting']]}", bracket(search)


def _levels(factors: Mapping[str, Value]) -> str:
    """Return a treatment's levels; a word speaks for itself, a number needs its factor's name."""
    words = [
        str(value) if isinstance(value, str) and name != SERVER else f"{name}={level(value, name)}".replace(" ", "")
        for name, value in factors.items()
    ]
    return " ".join(words)
